"""The environment of a job: the job contract of docs/guides/jobs.md."""

from collections.abc import Sequence

from themis.engines.host.accounts import Account
from themis.engines.supervisor.process_control import RUN_VARIABLE
from themis.engines.task import Task

_PATH = "/usr/local/bin:/usr/bin:/bin"


def job_environment(task: Task, devices: Sequence[str], account: Account | None) -> dict[str, str]:
    """The whole environment of a job; it inherits none of the node's.

    Args:
        task: The job, with the folders that its engine chose.
        devices: CUDA's names of the task's GPUs.
        account: The account it runs as, if not the node's user.
    """
    home = account.home if account else ""
    env = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": home or task.checkpoint_dir}
    if account:
        env |= {"USER": account.name, "LOGNAME": account.name}
    env |= task.env
    numbers = ",".join(str(gpu) for gpu in task.gpus)
    tokens = task.tokens or (task.token,) * len(task.gpus)
    env |= {
        RUN_VARIABLE: task.run,
        "THEMIS_JOB_ID": task.job,
        "THEMIS_METRICS": task.metrics,
        "THEMIS_CHECKPOINT_DIR": task.checkpoint_dir,
        "THEMIS_GPUS": numbers,
        # No secrets. Each is larger than all before it, so that storage can refuse old writers.
        "THEMIS_LEASES": ",".join(map(str, tokens)),
        # An empty value hides every GPU from a job without any.
        "CUDA_VISIBLE_DEVICES": ",".join(devices) if any(devices) else numbers,
        "THEMIS_RANK": str(task.rank),
        "THEMIS_WORLD_SIZE": str(task.world),
        "THEMIS_GRACE": f"{task.grace:g}",
    }
    if task.rendezvous:
        env["THEMIS_RENDEZVOUS"] = task.rendezvous
    if task.number:
        env["THEMIS_RUN_NUMBER"] = str(task.number)
    if task.max_iterations is not None:
        env["THEMIS_MAX_ITERATIONS"] = str(task.max_iterations)
    return env
