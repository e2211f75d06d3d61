"""Finished runs of a folder as one file: to be published, or to go on with on another machine.

pack(Path("out/runs"), Path("runs.jsonl.xz"))
unpack(Path("runs.jsonl.xz"), Path("elsewhere/runs"))     # what is there already stays

One line for each file, in order of names, so that the same runs give the same bytes. Who held which
GPU when is left out: it is most of the bytes, and no experiment asks for it. So is where files of
workloads and clusters lay: it says something of the machine and nothing of the run.
"""

import io
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, BinaryIO

from themis.errors import ConfigError, MissingFileError, RefusedError
from themis.recording.atomic_files import check_writable, writable, write_whole
from themis.recording.codec import dumps, loads

KINDS = ("json", "live", "timing")
"""The last part of the names of files that are packed."""
RUN = ".json"
"""How the name of a run itself ends."""
LONGEST = 32 << 20
"""Bytes of a line. A few kilobytes of an archive can stand for gigabytes."""

_NAME = re.compile(rf"[0-9a-z-]{{1,80}}\.(?:{'|'.join(KINDS)})\Z")

Heard = Callable[[int], None]
"""Called with how many files have been looked at."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What came out of an archive."""

    files: int
    """Files that are new in the folder."""
    runs: int
    """Runs among them; the other files go with one, or were played live."""
    there: int
    """Files that the folder had already."""


def check_archive(archive: Path) -> None:
    """Look whether an archive could be written, and would take the place of nothing else.

    Raises:
        ConfigError: It could not.
    """
    check_writable(archive, "pack")
    if not archive.is_file():
        return
    try:
        ours = archive.stat().st_size == 0 or _holds_runs(archive)
    except OSError as error:
        raise ConfigError("pack", str(archive), f"a readable file ({error.strerror})") from error
    if not ours:
        raise ConfigError("pack", str(archive), "a new file, or an archive of runs to replace")


def _holds_runs(archive: Path) -> bool:
    """Whether a file begins as those that `pack` writes."""
    try:
        with lzma.open(archive, "rb") as file:
            line = loads(file.readline(LONGEST).decode())
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, RefusedError):
        return False
    return isinstance(line, dict) and isinstance(line.get("file"), str) and "text" in line


def pack(folder: Path, archive: Path, heard: Heard = lambda _: None) -> int:
    """Write the finished runs of a folder as one file; returns how many files it holds.

    Raises:
        ConfigError: There are none, or it cannot be written.
    """
    check_archive(archive)
    names = sorted(path.name for path in folder.glob("*") if _NAME.match(path.name))
    if not names:
        raise ConfigError("pack", str(folder), "a folder with finished runs")
    packed = io.BytesIO()
    with lzma.open(packed, "wb", preset=6) as file:
        for number, name in enumerate(names):
            text = _without_folders((folder / name).read_text("utf-8"))
            file.write((dumps({"file": name, "text": text}) + "\n").encode())
            heard(number)
    write_whole(archive, packed.getvalue(), "pack")
    return len(names)


def _without_folders(text: str) -> str:
    """A file of a run whose configuration names files, without where they are."""
    try:
        data: Any = loads(text)
    except RefusedError:
        return text  # No run, or a damaged one: whoever reads it says so.
    match data:
        case {"config": {"cluster": str(cluster), "workload": str(workload)}}:
            named = {"cluster": Path(cluster).name, "workload": Path(workload).name}
            if "/" in cluster + workload:
                return dumps({**data, "config": {**data["config"], **named}}) + "\n"
        case _:
            pass
    return text


def unpack(archive: Path, folder: Path, heard: Heard = lambda _: None) -> Taken:
    """Put the runs of an archive into a folder, but for those it has.

    All of them or none: what was read waits in a folder beside until the last line was a good one.

    Raises:
        ConfigError: It is no archive of runs, or the folder cannot be written. Nothing came.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(mkdtemp(prefix=".unpacking-", dir=folder))
    there = 0
    try:
        for number, (name, text) in enumerate(_files(archive)):
            if (folder / name).exists():
                there += 1
            elif not (draft / name).exists():
                with writable(folder):
                    (draft / name).write_bytes(text)
            heard(number)
        names = sorted(path.name for path in draft.iterdir())
        with writable(folder):
            for name in names:
                (draft / name).replace(folder / name)
        return Taken(len(names), sum(name.endswith(RUN) for name in names), there)
    finally:
        rmtree(draft, ignore_errors=True)
        with suppress(OSError):  # What is not empty stays.
            for place in new:
                place.rmdir()


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with lzma.open(archive, "rb") as file:
            yield from _lines(file, archive)
    except FileNotFoundError as error:
        raise MissingFileError("unpack", str(archive)) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError("unpack", why, "an archive of runs", str(archive)) from error
    except (EOFError, lzma.LZMAError) as error:
        why = "a file that is damaged, or no archive"
        raise ConfigError("unpack", why, "an archive of runs", str(archive)) from error


def _lines(file: BinaryIO | lzma.LZMAFile, archive: Path) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise ConfigError("line", "more", f"{LONGEST} bytes", f"{archive}:{number}")
        yield _file(line, f"{archive}:{number}")


def _file(line: bytes, where: str) -> tuple[str, bytes]:
    try:
        match loads(line.decode()):
            case {"file": str(name), "text": str(text)} if _NAME.match(name):
                return name, text.encode()  # JSON can hold halves of characters.
            case _:
                pass
    except (UnicodeError, RefusedError) as error:
        raise ConfigError("line", str(error), "a JSON object", where) from error
    raise ConfigError("line", line[:60], 'a "file" of a run and its "text"', where)
