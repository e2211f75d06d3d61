"""The process that stands over one start of one job: `themis exec FILE`.

It holds the lease (token, end, grace) on the clock of leases, asks the job for a checkpoint at
end - grace and kills everything at the end by itself, whether or not its node is still there. The
node writes what it wants into the page `lease` beside the task, and reads how things are from the
page `status`; a SIGUSR1 only says "look now". Imports little, because every start pays for it.

States: starting, running, stopping (a checkpoint was asked for), stuck (it could not be killed; we
keep trying), exited.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys

from themis.engines.attempt.lease_timing import (
    FAILED,
    FINISHED,
    KILL,
    LOST,
    NEVER_RAN,
    RESUMABLE,
    RESUMABLE_CODE,
    RUN,
    LeaseTimer,
    due,
    outcome_of,
    wait,
)
from themis.engines.attempt.record_file import read_page, write_page
from themis.engines.host import boottime
from themis.engines.supervisor import processes
from themis.engines.supervisor.assigned_gpus import chosen_devices, passed_on
from themis.engines.supervisor.bounded_log import BoundedFile
from themis.engines.supervisor.gpu_locks import Fence, RefusedStartError
from themis.engines.supervisor.job_exec import OWN_FAULT, become_job
from themis.engines.supervisor.process_control import NAMESPACE, Control, control_from
from themis.engines.task import JSONL, Task, read_task

STARTING, RUNNING, STOPPING, STUCK, EXITED = "starting", "running", "stopping", "stuck", "exited"
LOOK_FAST, LOOK_KILL, LOOK_STUCK = 0.02, 0.01, 0.25
"""Seconds between looks: when the log grows fast, while killing, when that does not help."""
OVERTIME = 2.0
"""Seconds behind the end of the lease at which the kernel kills a supervisor that hangs."""
REFUSED_CODE = 78
HOLDER_VARIABLE = "THEMIS_HOLDER"
"""The process that an engine's own scheduler knows: without it others may have the GPUs."""
_SIGNALS = (
    signal.SIGCHLD,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
)
_LEAVE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REASON = 600


class Supervisor:
    """One start of one job, from the first look at its lease to the last process seen dead."""

    def __init__(self, folder: str, task: Task) -> None:
        self.folder = folder
        self.task = task
        self.lease = LeaseTimer(task.token, 0.0, 0.0)
        self.errors = -1
        self.trouble = ""
        self.fence = Fence(task.fence)
        self.files: list[BoundedFile] = []
        self.asked = False
        self.killed = ""
        """Why, once it was killed."""
        self.children = True
        self.armed = 0.0
        """The end of the lease that the kernel knows of."""
        self.beat_at = 0.0
        self.holder = int(os.environ.get(HOLDER_VARIABLE, "0"))
        """The process that holds our GPUs, if our parent has to be one."""
        pid, self.boot = os.getpid(), boottime.boot_id()
        self.page: dict[str, object] = {
            "job": task.job,
            "token": task.token,
            "run": task.run,
            "tag": task.tag,
            "boot": self.boot,
            "clock": boottime.now(),
            "supervisor": [pid, processes.start_time(pid)],
            "state": STARTING,
            "outcome": "",
            "code": None,
            "reason": "",
            "gpus": [str(gpu) for gpu in task.gpus],
            "control": task.control,
            "group": task.group,
            "first": [0, 0],
            "began": None,
            "ended": None,
        }

    def path(self, name: str) -> str:
        """A file beside the task."""
        return os.path.join(self.folder, name)

    def run(self) -> int:
        """Do all of it; returns the exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.tell()
        try:
            self.check()
            control = self.start()
        except RefusedStartError as error:
            return self.end(NEVER_RAN, None, str(error))
        except OSError as error:
            return self.end(NEVER_RAN, None, f"cannot be started here: {error}")
        try:
            self.watch(control)
        except BaseException:
            # Whatever is wrong with us: nothing may outlive the lease, and nobody else holds it.
            self.killed = "its supervisor failed"
            self.finish_off(control)
            raise
        return self.conclude(control)

    def check(self) -> None:
        """Refuse what must not start: a lease that is over, a stale token, a GPU in use."""
        task = self.task
        until = boottime.now() + task.lease_wait
        while (lease := self.read_lease()) is None and boottime.now() < until and self.is_held():
            signal.sigtimedwait(_SIGNALS, LOOK_FAST)
        if lease is None:
            raise RefusedStartError(f"there is no lease with token {task.token}")
        if due(boottime.now(), lease, asked=True) == KILL:
            raise RefusedStartError("its lease is over")
        self.lease = lease
        numbers = [str(gpu) for gpu in task.gpus]
        if task.gpu_variables:
            chosen = chosen_devices(task.gpu_variables, len(numbers))
            self.page["gpus"] = chosen
            task.env |= {"THEMIS_GPUS": ",".join(chosen)} | passed_on(chosen)
            # Tokens belong to the numbers in the ledger, which are not the GPUs' own here.
            self.fence.hold([f"device-{name}" for name in chosen])
        self.fence.take(numbers, task.token, task.tokens)

    def read_lease(self) -> LeaseTimer | None:
        """What the node said last; None if that is damaged, or not on this machine's clock."""
        lease = LeaseTimer.from_page(read_page(self.path("lease")), self.task.token)
        if lease is None or lease.boot in {"", self.boot}:
            return lease
        # Nobody has seen our clock yet, or not since this machine restarted. To go is to go.
        stop = lease.stop if lease.stop != RUN else self.lease.stop
        if self.lease.end or stop == KILL:
            return LeaseTimer(self.lease.token, self.lease.end, self.lease.grace, stop)
        return None

    def start(self) -> Control:
        """Make the job's files and fork; `listen` hears whether it became its program."""
        task = self.task
        uid, gid = task.user or (-1, -1)
        log = BoundedFile(self.path("log"), task.log_limit, uid, gid)
        metrics = BoundedFile(task.metrics, task.metrics_limit, uid, gid, keep=False)
        self.files = [log, metrics]
        # Only now the owner may do as it likes in there: no link was followed above.
        os.chown(os.path.dirname(task.metrics), uid, gid)
        control = control_from(task.control, task.group)
        parent = None if task.control == NAMESPACE else os.getpid()
        self.errors, write = os.pipe()
        output = log.writer()
        control.launch(lambda: become_job(task, output, write, parent), write)
        os.close(write)
        os.close(output)
        self.page |= control.described()
        self.tell()
        return control

    def listen(self) -> None:
        """Hear of trouble on the way to the job's program. The pipe's end says that it runs.

        Never waited for: a folder on a file server that is gone must not hold up the lease.
        """
        if self.errors < 0 or not select.select([self.errors], [], [], 0)[0]:
            return
        self.trouble = os.read(self.errors, 4096).decode("utf-8", "replace")
        os.close(self.errors)
        self.errors = -1
        if not self.trouble:
            self.page["began"] = boottime.now()
            self.tell(RUNNING)

    def watch(self, control: Control) -> None:
        """Until nothing of the job is alive."""
        since = 0.0
        while True:
            self.listen()
            self.reap(control)
            if control.status is None and not self.killed:
                self.keep_lease(control)
            if self.killed or control.status is not None:
                # The job is over when its first process is; what it left behind goes with it.
                since = since or boottime.now()
                control.kill()
                self.reap(control)
                if control.is_empty(children=self.children):
                    return
                if boottime.now() - since > self.task.patience and self.page["state"] != STUCK:
                    self.page["reason"] = "SIGKILL was sent, and something is still alive"
                    self.tell(STUCK)
                self.sleep(control, LOOK_KILL if self.page["state"] != STUCK else LOOK_STUCK)
                continue
            growing = [file.trim() for file in self.files]
            most = LOOK_FAST if any(growing) else self.task.look_every
            self.sleep(control, wait(boottime.now(), self.lease, asked=self.asked, most=most))

    def finish_off(self, control: Control) -> None:
        """Kill, and nothing else."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        while not control.is_empty(children=self.children):
            control.kill()
            self.reap(control)
            signal.sigtimedwait(_SIGNALS, LOOK_KILL)

    def keep_lease(self, control: Control) -> None:
        """Look at the lease and do what is due."""
        self.arm()
        self.lease = self.read_lease() or self.lease
        now = boottime.now()
        if self.task.beat_every and now >= self.beat_at:
            self.beat_at = now + self.task.beat_every
            self.tell(str(self.page["state"]))
        if not self.is_held():
            self.killed = "the process that held its GPUs is gone"
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            return
        match due(now, self.lease, asked=self.asked):
            case "checkpoint":
                self.ask(control)
            case "kill":
                self.killed = "its lease ended" if now >= self.lease.end else "its node said so"
                signal.setitimer(signal.ITIMER_REAL, 0.0)  # We are here to do it.
            case _:
                pass

    def is_held(self) -> bool:
        """Whether the process that has to hold our GPUs still does."""
        return not self.holder or os.getppid() == self.holder

    def arm(self) -> None:
        """Let the kernel kill us a little after the end, should we hang in a file system then.

        What we started dies with us, or with what the engine holds us in.
        """
        if self.armed != self.lease.end:
            self.armed = self.lease.end
            left = max(0.0, self.lease.end - boottime.now()) + OVERTIME
            signal.setitimer(signal.ITIMER_REAL, left)

    def ask(self, control: Control) -> None:
        """Ask for a checkpoint, once."""
        if not self.asked:
            self.asked = True
            control.terminate()
            self.tell(STOPPING)

    def sleep(self, control: Control, seconds: float) -> None:
        """Until something happens, or so long. On waking up the clock of leases is asked again."""
        if self.errors >= 0:
            select.select([self.errors], [], [], min(seconds, LOOK_KILL))
            seconds = 0.0
        info = signal.sigtimedwait(_SIGNALS, seconds)
        # A batch system that wants its machine back: as at the end of the lease.
        if info is not None and info.si_signo in _LEAVE and not self.killed:
            self.ask(control)

    def reap(self, control: Control) -> None:
        """Collect children that have ended, adopted orphans included."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                control.reaped(*ended)
        except ChildProcessError:
            self.children = False

    def conclude(self, control: Control) -> int:
        """Everything is dead: say how it ended."""
        status = control.status
        control.clear()
        self.listen()
        if self.trouble:
            number, _, reason = self.trouble.partition(" ")
            if int(number) == OWN_FAULT:
                return self.end(NEVER_RAN, None, reason)
            return self.end(FAILED, int(number), reason)
        if status is None:  # killed as number one, or adopted by nobody
            return self.end(RESUMABLE if self.killed else LOST, None, self.killed)
        outcome, code = outcome_of(status, asked=self.asked, killed=bool(self.killed))
        reason = f"killed: {self.killed}" if self.killed else _told(outcome, code, self.asked)
        left = self.end(outcome, code, reason)
        self.keep_progress()
        return left

    def end(self, outcome: str, code: int | None, reason: str) -> int:
        """The last word, after the next owner has been let in."""
        self.fence.release()
        self.page |= {"outcome": outcome, "code": code, "reason": reason, "ended": boottime.now()}
        self.tell(EXITED)
        return self.exit_code()

    def keep_progress(self) -> None:
        """Write down how far the job is, for a start elsewhere that finds nothing left to do.

        Its node does so too, from any source, if it is there. After the last word, because a file
        server that is down may never let us finish.
        """
        task = self.task
        if task.rank or not task.checkpoint_dir or task.source.kind != JSONL:
            return
        from themis.engines.metrics.progress_file import keep_last  # noqa: PLC0415 - only needed at the end

        keep_last(task.metrics, task.checkpoint_dir, task.user, task.source.name)

    def exit_code(self) -> int:
        """For whoever started this process: the job's code, 75 where it may be resumed."""
        outcome, code = self.page["outcome"], self.page["code"]
        if outcome == FINISHED:
            return 0
        if outcome in {RESUMABLE, LOST}:
            return RESUMABLE_CODE
        if outcome == NEVER_RAN or not isinstance(code, int):
            return REFUSED_CODE
        return code if code >= 0 else 128 - code

    def tell(self, state: str = STARTING) -> None:
        """Write the status page. A disk that fails is no reason to let go of the lease."""
        self.page["state"] = state
        self.page["clock"] = boottime.now()
        self.page["reason"] = str(self.page["reason"])[:_REASON]
        with contextlib.suppress(OSError):
            write_page(self.path("status"), self.page)


def _told(outcome: str, code: int, asked: bool) -> str:
    if outcome == FINISHED:
        return "exited with 0"
    end = f"died of signal {-code}" if code < 0 else f"exited with {code}"
    if code == -signal.SIGKILL:
        end += ", which was not Themis; was it out of memory?"
    return f"{end} after a checkpoint was asked for" if asked else end


def main(path: str) -> int:
    """Run the task in this file; returns the exit code of the supervisor."""
    return supervise(path, read_task(path))


def supervise(path: str, task: Task) -> int:
    """Run the task of this file, unless another supervisor has it or its node gave it up."""
    supervisor = Supervisor(os.path.dirname(os.path.abspath(path)), task)
    os.chdir("/")
    os.umask(0o077)
    # Whatever the parent left open is none of a job's business.
    os.closerange(3, 1 << 20)
    lock = os.open(supervisor.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.stderr.write(f"error: {supervisor.folder}: another supervisor has it\n")
        return REFUSED_CODE
    page = read_page(supervisor.path("status"))
    # A node that came back before this process did has given the task up.
    if page is None or page.get("state") != STARTING:
        sys.stderr.write(f"error: {supervisor.folder}: nobody waits for it any more\n")
        return REFUSED_CODE
    return supervisor.run()
