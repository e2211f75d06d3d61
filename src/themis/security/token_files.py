"""Tokens in files that only their owner can read: never on a command line, never in a log.

    write_secret(folder / "admin.token", token)     # mode 0600; never over another file
    token = read_token(path)                        # refused if others could have read it
    find_token(os.environ)                          # where the command line looks

The first start of the service writes the admin's token to such a file, where the command line finds
it.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from themis.config.secret import STATE, TOKEN, Secret
from themis.errors import ConfigError, MissingFileError

if TYPE_CHECKING:
    from themis.security.tokens import TokenStore

VARIABLE = "THEMIS_TOKEN_FILE"
ADMIN_FILE = "admin.token"
_MAX_BYTES = 4096


def state_folder(environ: Mapping[str, str], *, root: bool) -> Path:
    """The default folder for the state of the service."""
    if root:
        return STATE
    base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or '.'}/.local/state"
    return Path(base) / "themis"


def token_places(environ: Mapping[str, str], *, root: bool) -> tuple[Path, ...]:
    """Where a token may be; the first file that exists counts."""
    if environ.get(VARIABLE):
        return (Path(environ[VARIABLE]),)
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME') or '.'}/.config"
    own = Path(base) / "themis" / "token"
    return (own, state_folder(environ, root=root) / ADMIN_FILE)


def find_token(environ: Mapping[str, str], *, root: bool) -> Secret:
    """The token for this user's commands.

    Raises:
        ConfigError: There is none, or its file is open to others.
    """
    places = token_places(environ, root=root)
    for place in places:
        if _is_there(place):
            return read_token(place)
    looked = ", ".join(str(place) for place in places)
    raise ConfigError(
        "token", "none", f"a token in a file of mode 0600 at {looked} (or {VARIABLE})"
    )


def ensure_admin(token_store: "TokenStore", folder: Path, *, now: float) -> Path | None:
    """Make a token for an admin if there is no valid one; returns its file.

    The file is written first: a crash leaves a token that is not valid yet, which the next start
    replaces, and never a valid token that no file has.

    Raises:
        ConfigError: The file cannot be written.
    """
    from themis.security.tokens import (  # noqa: PLC0415 - late: every command reads a token
        Role,
        draft_token,
        has_admin,
        keep_token,
    )

    if has_admin(token_store, now=now):
        return None
    issued = draft_token(Role.ADMIN, "admin", now=now, note="made at the first start")
    path = folder / ADMIN_FILE
    path.unlink(missing_ok=True)
    write_secret(path, issued.token)
    keep_token(token_store, issued.credential)
    return path


def read_token(path: Path) -> Secret:
    """The token in a file.

    Raises:
        ConfigError: There is no such file, others can read it, or it holds no token.
    """
    try:
        # Neither a link nor a pipe that another user may have put there.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFileError("token", str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("token", reason, "a readable file", str(path)) from None
    try:
        _refuse_open_file(os.fstat(number), path)
        raw = os.read(number, _MAX_BYTES)
    finally:
        os.close(number)
    text = raw.decode("ascii", errors="replace").strip()
    if not TOKEN.fullmatch(text):
        raise ConfigError("token", "something else", "one line: themis_<id>_<secret>", str(path))
    return Secret(text)


def write_secret(path: Path, secret: Secret) -> None:
    """Write a secret to a new file of mode 0600, all of it or nothing.

    Raises:
        ConfigError: The file exists already, or cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        number = os.open(draft, flags, 0o600)
        try:
            with os.fdopen(number, "wb") as handle:
                handle.write(secret.reveal().encode() + b"\n")
                handle.flush()
                os.fsync(number)
            # A link fails where a rename would replace an existing file.
            os.link(draft, path)
        finally:
            draft.unlink()
    except FileExistsError:
        raise ConfigError("file", str(path), "a name that is not taken yet") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("file", reason, "a folder that can be written to", str(path)) from None


def _refuse_open_file(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("token", "no regular file", "a regular file", str(path))
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        allowed = f"0600: chmod 600 {path}, and a new token if others may have seen this one"
        raise ConfigError("mode of the token file", f"{mode:04o}", allowed, str(path))
    if found.st_uid not in {os.geteuid(), 0}:
        raise ConfigError("owner of the token file", found.st_uid, "you, or root", str(path))


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
