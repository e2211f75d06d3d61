"""From a fork of the supervisor to the job's program: streams, user, folders, exec."""

import os
import signal

from themis.engines.supervisor import libc
from themis.engines.task import Task

OWN_FAULT, NOT_FOUND, NOT_STARTED = 70, 127, 126
"""Exit codes of a job that never became its program; the latter two as shells have them."""
_DEFAULT_AGAIN = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
)
"""Ignored signals stay ignored across exec, and Python ignores some."""


def become_job(task: Task, log: int, errors: int, parent: int | None) -> None:
    """Turn the calling process into the task. Never returns; what went wrong goes to `errors`.

    The text starts with the exit code that the failure counts as: OWN_FAULT is not the job's.
    `parent` is the supervisor, where the job is its child and has to die with it.
    """
    step, code = "streams", OWN_FAULT
    try:
        os.setsid()
        for number in _DEFAULT_AGAIN:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.umask(0o077)
        expose_to_oom()
        step = "user"
        if task.account is not None:
            uid, gid, *groups = task.account
            become_user(uid, gid, groups)
        libc.forbid_new_privileges()
        # After the user has changed, which would undo it.
        if parent is not None:
            libc.die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(OWN_FAULT)
        # From here on as the owner: root must not touch folders that an owner can write to.
        # If owners cannot pass through the node's folder, the node is at fault.
        step = "metrics file"
        os.stat(task.env["THEMIS_METRICS"])
        step, code = "checkpoint folder", NOT_STARTED
        os.makedirs(task.checkpoint_dir, 0o700, exist_ok=True)
        step = "working directory"
        os.chdir(task.workdir or task.checkpoint_dir)
        step = f"program {task.argv[0]}"
        os.execvpe(task.argv[0], task.argv, task.env)
    except FileNotFoundError as error:
        code = NOT_FOUND if code == NOT_STARTED else code
        _report(errors, code, step, error)
    except Exception as error:  # no other code in this process would catch it
        _report(errors, code, step, error)


def expose_to_oom(path: str = "/proc/self/oom_score_adj") -> None:
    """Drop the protection from the OOM killer that node and supervisor may have.

    A job that takes all memory must be killed, and not another process of the machine.
    """
    try:
        with open(path, "r+", encoding="ascii") as file:
            if int(file.read()) < 0:
                file.seek(0)
                file.write("0")
    except (OSError, ValueError):
        return  # a kernel without the OOM killer's file


def become_user(uid: int, gid: int, groups: list[int]) -> None:
    """Change to this user for good.

    Raises:
        PermissionError: It did not work, or could be undone.
    """
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise PermissionError(f"did not become uid {uid}, gid {gid}")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise PermissionError("could become root again")


def _report(errors: int, code: int, step: str, error: Exception) -> None:
    os.write(errors, f"{code} {step}: {error}".encode("utf-8", "backslashreplace")[:1000])
    os._exit(code)
