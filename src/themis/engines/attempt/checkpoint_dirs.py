"""Where jobs keep their checkpoints: ROOT/OWNER/APP/ID/JOB, each owner's folder its own alone.

    places = Checkpoints(Path("/shared/themis"))
    places.folder("vision", "sweep/3f09a1b2/j0", account)   # /shared/themis/vision/sweep/...

The root may be on storage that machines share, so several nodes may make the same folder at once,
and root may have no rights there. The job itself, as its owner, makes the folders below its owner's
folder. All functions block.
"""

import errno
import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from themis.engines.host.accounts import Account
from themis.engines.supervisor import libc


class Checkpoints:
    """The folders below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, owner: str, place: str, account: Account | None) -> Path:
        """The folder of a job, the same for every start of it; its owner's is there on return.

        Args:
            owner: The owner of the job.
            place: The way to it; parts between slashes are folders of their own.
            account: The account it runs as; None for this process's own user.

        Raises:
            OSError: The owner's folder cannot be made, or belongs to another user.
        """
        home = self.root / slug(owner)
        self._make(home, account)
        return home.joinpath(*(slug(part) for part in place.split("/") if part))

    def _make(self, home: Path, account: Account | None) -> None:
        with suppress(FileExistsError):
            try:
                home.mkdir(0o700)
            except PermissionError:  # a file server may map root to a user without rights
                self._make_as(account, home)
        about = home.lstat()
        uid = os.geteuid() if account is None else account.uid
        if account is not None and about.st_uid == os.geteuid() != uid and _is_folder(about):
            # Just made, by us or by another start that has not come this far; no other user can
            # have put a folder of ours here.
            os.chown(home, account.uid, account.gid, follow_symlinks=False)
            about = home.lstat()
        if about.st_uid != uid or not _is_folder(about):
            name = account.name if account else f"uid {uid}"
            reason = f"it must be a folder of {name} alone (it is uid {about.st_uid}'s)"
            raise PermissionError(errno.EPERM, reason, str(home))

    def _make_as(self, account: Account | None, home: Path) -> None:
        if account is None or os.geteuid() != 0:
            raise PermissionError(errno.EACCES, "it cannot be made by this node", str(home))
        try:
            with libc.files_as((account.uid, account.gid)):
                home.mkdir(0o700)
        except PermissionError:
            reason = f"make it for {account.name}, mode 0700: root may not, and neither may they"
            raise PermissionError(errno.EACCES, reason, str(home)) from None


def _is_folder(about: os.stat_result) -> bool:
    return stat.S_ISDIR(about.st_mode)


def slug(text: str) -> str:
    """A file name for any text; different texts have different ones."""
    plain = re.sub(r"[^a-z0-9-]+", "-", text.lower())[:40]
    if plain == text:
        return plain
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
