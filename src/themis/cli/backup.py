"""`themis backup` and `themis restore`: the store in one file, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from themis.cli.common.config_flags import ServiceFile, service_configuration
from themis.cli.common.options import Json
from themis.cli.common.output import note, print_json
from themis.cli.common.service_calls import say

Backup = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    context: typer.Context, file: Backup, config: ServiceFile = None, json: Json = False
) -> None:
    """Back up the store into one new file, also while the service runs.

    Certificates and token files are not in it.
    """
    from themis.service.persistence.store import open_store  # noqa: PLC0415 - late, so that --help is quick

    url = service_configuration(context, config).config.store
    with open_store(url, read_only=True) as store:
        store.backup(file)
        place, epochs = store.url, store.epochs()
    epoch = epochs[-1].number if epochs else 0
    size = file.stat().st_size
    if json:
        print_json({"backup": str(file), "bytes": size, "store": place, "epoch": epoch})
    else:
        say(f"{file}: {size / 1e6:.1f} MB of {place}, as of epoch {epoch}")


def restore(
    context: typer.Context, file: Backup, config: ServiceFile = None, json: Json = False
) -> None:
    """Restore the store from a backup. Move an existing store away first; never delete it.

    The service must not run. What happened after the backup was made is forgotten: apps submitted
    since then must be submitted again.
    """
    from themis.errors import MissingFileError  # noqa: PLC0415 - late, so that --help is quick
    from themis.service.persistence.store import restore as bring_back  # noqa: PLC0415 - see above
    from themis.service.persistence.store.urls import sqlite_path  # noqa: PLC0415 - see above

    settings = service_configuration(context, config).config
    if not file.is_file():
        raise MissingFileError("backup", str(file))  # before a folder is made for it
    path = sqlite_path(settings.store)
    if path is not None and path.parent == settings.state_dir:
        settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    epoch = bring_back(file, settings.store)
    if path is not None:
        _hand_over(path)
    place = str(path) if path is not None else settings.store.rpartition("@")[2]
    if json:
        print_json({"store": place, "backup": str(file), "epoch": epoch.number})
        return
    say(f"{place} is restored from {file}")
    note(
        f"The next start is in an epoch above {epoch.number}, with fencing tokens above all that "
        "were ever given:\nnodes refuse what an older service says, and leases given after the "
        "backup cannot come back.\nApps submitted after the backup must be submitted again."
    )


def _hand_over(path: Path) -> None:
    """Give a store that root restored to the owner of its folder."""
    if os.geteuid() != 0:
        return
    folder = path.parent.stat()
    for file in (path, path.with_name(path.name + ".lock")):
        if file.exists():
            os.chown(file, folder.st_uid, folder.st_gid, follow_symlinks=False)
