"""Control groups of the kernel (cgroup version 2): no process leaves one by forking.

base = own_base()               # where this process may make groups, or None
group = Group(f"{base}/themis-7")
group.create(); group.join(); group.kill(); group.is_empty()
"""

import contextlib
import os
import signal


def own_base() -> str | None:
    """The folder of this process's group, if it may be able to make others below."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = file.read()
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        return find_base(mounts, file.read())


def find_base(mounts: str, membership: str) -> str | None:
    """The same, from the text of /proc/self/mountinfo and /proc/self/cgroup.

    The file system's type decides, never the path: /sys/fs/cgroup is a tmpfs on some machines,
    with version 2 below `unified` and files that can be written to no effect.
    """
    mine = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), None)
    if mine is None:
        return None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or right.split(" ")[0] != "cgroup2":
            continue
        root, point = _unescaped(fields[3]), _unescaped(fields[4])
        inside = _below(mine, root)
        if inside is not None:
            return (point + inside).rstrip("/") or "/"
    return None


def _below(path: str, root: str) -> str | None:
    if path.startswith("/.."):  # outside of this process's view of the groups
        return None
    if root == "/":
        return path
    if path == root or path.startswith(root + "/"):
        return path[len(root) :]
    return None


def _unescaped(field: str) -> str:
    for code in ("040", "011", "012", "134"):
        field = field.replace("\\" + code, chr(int(code, 8)))
    return field


class Cgroup:
    """One group, by its folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create(self) -> None:
        """Make the group. It must not exist: another job's would be killed with ours."""
        os.mkdir(self.path, 0o700)

    def join(self) -> None:
        """Move the calling process into the group."""
        self._write("cgroup.procs", "0")

    def kill(self) -> None:
        """SIGKILL to all its processes, those of groups below included."""
        try:
            self._write("cgroup.kill", "1")
        except OSError:  # before Linux 5.14
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def members(self) -> list[int]:
        """Its processes, and those of groups below."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", "rb") as file:
                found += [int(line) for line in file.read().split()]
        return sorted(found)

    def is_empty(self) -> bool:
        """Whether no process in it is alive, or it is gone."""
        try:
            with open(f"{self.path}/cgroup.events", encoding="ascii") as file:
                return "populated 0" in file.read()
        except FileNotFoundError:
            # Gone; or no group at all, which does not count as empty.
            return not os.path.isdir(self.path)

    def remove(self) -> None:
        """Remove the empty group and empty groups below."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _write(self, name: str, text: str) -> None:
        # Without O_CREAT: in a folder that is no group the file must not appear.
        fd = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)
