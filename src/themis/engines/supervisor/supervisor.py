"""The supervisor of one start of one job: `themis exec FILE`.

It holds the lease (token, end, grace) on the clock of leases, asks the job for a checkpoint at
end - grace and kills all its processes at the end, whether or not its node is still there. The
node writes the page `lease` beside the task and reads the page `status`; SIGUSR1 makes the
supervisor read the lease now. Imports little, because every start waits for it.

States: starting, running, stopping (a checkpoint was asked for), stuck (a process survived SIGKILL;
the supervisor keeps trying), exited.
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
"""Seconds between looks: when the log grows fast, while killing, and while stuck."""
OVERTIME = 2.0
"""Seconds after the end of the lease when the kernel kills a supervisor that hangs."""
REFUSED_CODE = 78
HOLDER_VARIABLE = "THEMIS_HOLDER"
"""The process that a cluster's scheduler knows: when it ends, others may get the GPUs."""
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
    """Runs one start of one job, until its last process was seen dead."""

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
        """The reason, once it was killed."""
        self.children = True
        self.armed = 0.0
        """The end of the lease that the kernel's timer is set for."""
        self.beat_at = 0.0
        self.holder = int(os.environ.get(HOLDER_VARIABLE, "0"))
        """The process that holds our GPUs, which must stay our parent; 0: there is none."""
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
        """Run the job to its end; returns the exit code."""
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
            # Even with a bug here nothing may outlive the lease, and only we hold it.
            self.killed = "its supervisor failed"
            self.finish_off(control)
            raise
        return self.conclude(control)

    def check(self) -> None:
        """Refuse a lease that has ended, a stale token, and a GPU in use."""
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
            # Tokens belong to the ledger's numbers, which are not the GPUs' own here.
            self.fence.hold([f"device-{name}" for name in chosen])
        self.fence.take(numbers, task.token, task.tokens)

    def read_lease(self) -> LeaseTimer | None:
        """The lease in the page; None if that is damaged, or not on this machine's clock."""
        lease = LeaseTimer.from_page(read_page(self.path("lease")), self.task.token)
        if lease is None or lease.boot in {"", self.boot}:
            return lease
        # The engine does not know our clock, or not since this boot. Its wish to stop counts.
        stop = lease.stop if lease.stop != RUN else self.lease.stop
        if self.lease.end or stop == KILL:
            return LeaseTimer(self.lease.token, self.lease.end, self.lease.grace, stop)
        return None

    def start(self) -> Control:
        """Make the job's files and fork; `listen` finds out whether the program runs."""
        task = self.task
        uid, gid = task.user or (-1, -1)
        log = BoundedFile(self.path("log"), task.log_limit, uid, gid)
        metrics = BoundedFile(task.metrics, task.metrics_limit, uid, gid, keep=False)
        self.files = [log, metrics]
        # Handed to the owner only now, so that no link of the owner's was followed above.
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
        """Read errors on the way to the job's program. The pipe closes when the program runs.

        Never blocks: a folder on a file server that is gone must not hold up the lease.
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
        """Hold the lease until no process of the job is alive."""
        since = 0.0
        while True:
            self.listen()
            self.reap(control)
            if control.status is None and not self.killed:
                self.keep_lease(control)
            if self.killed or control.status is not None:
                # The job ends with its first process; the others are killed.
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
        """Kill all processes, and do nothing else."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        while not control.is_empty(children=self.children):
            control.kill()
            self.reap(control)
            signal.sigtimedwait(_SIGNALS, LOOK_KILL)

    def keep_lease(self, control: Control) -> None:
        """Read the lease and do what is due."""
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
                signal.setitimer(signal.ITIMER_REAL, 0.0)  # we are alive to do it
            case _:
                pass

    def is_held(self) -> bool:
        """Whether the process that holds our GPUs is still our parent."""
        return not self.holder or os.getppid() == self.holder

    def arm(self) -> None:
        """Let the kernel kill us a little after the end, in case we hang in a file system then.

        The job dies with us, or with the scope that the engine runs us in.
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
        """Wait for a signal, or for this time. After waking up the clock is read again."""
        if self.errors >= 0:
            select.select([self.errors], [], [], min(seconds, LOOK_KILL))
            seconds = 0.0
        info = signal.sigtimedwait(_SIGNALS, seconds)
        # A batch system wants its machine back: as at the end of the lease.
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
        """All processes are dead: write the end."""
        status = control.status
        control.clear()
        self.listen()
        if self.trouble:
            number, _, reason = self.trouble.partition(" ")
            if int(number) == OWN_FAULT:
                return self.end(NEVER_RAN, None, reason)
            return self.end(FAILED, int(number), reason)
        if status is None:  # killed as number one, or reaped by another process
            return self.end(RESUMABLE if self.killed else LOST, None, self.killed)
        outcome, code = outcome_of(status, asked=self.asked, killed=bool(self.killed))
        reason = f"killed: {self.killed}" if self.killed else _reason(outcome, code, self.asked)
        left = self.end(outcome, code, reason)
        self.keep_progress()
        return left

    def end(self, outcome: str, code: int | None, reason: str) -> int:
        """Write the end, after the GPUs were released for their next owner."""
        self.fence.release()
        self.page |= {"outcome": outcome, "code": code, "reason": reason, "ended": boottime.now()}
        self.tell(EXITED)
        return self.exit_code()

    def keep_progress(self) -> None:
        """Write down the job's progress, for a start elsewhere that finds nothing left to do.

        A node that is there does so too, from any source. Done after the end is written, because a
        file server that is down may hang us here.
        """
        task = self.task
        if task.rank or not task.checkpoint_dir or task.source.kind != JSONL:
            return
        from themis.engines.metrics.progress_file import keep_last  # noqa: PLC0415 - only needed at the end

        keep_last(task.metrics, task.checkpoint_dir, task.user, task.source.name)

    def exit_code(self) -> int:
        """The job's exit code, or 75 if it may be resumed."""
        outcome, code = self.page["outcome"], self.page["code"]
        if outcome == FINISHED:
            return 0
        if outcome in {RESUMABLE, LOST}:
            return RESUMABLE_CODE
        if outcome == NEVER_RAN or not isinstance(code, int):
            return REFUSED_CODE
        return code if code >= 0 else 128 - code

    def tell(self, state: str = STARTING) -> None:
        """Write the status page. A disk that fails must not end the supervision."""
        self.page["state"] = state
        self.page["clock"] = boottime.now()
        self.page["reason"] = str(self.page["reason"])[:_REASON]
        with contextlib.suppress(OSError):
            write_page(self.path("status"), self.page)


def _reason(outcome: str, code: int, asked: bool) -> str:
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
    # A job must not inherit the parent's open files.
    os.closerange(3, 1 << 20)
    lock = os.open(supervisor.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.stderr.write(f"error: {supervisor.folder}: another supervisor has it\n")
        return REFUSED_CODE
    page = read_page(supervisor.path("status"))
    # A node that restarted before this process began has given the task up.
    if page is None or page.get("state") != STARTING:
        sys.stderr.write(f"error: {supervisor.folder}: its node has given it up\n")
        return REFUSED_CODE
    return supervisor.run()
