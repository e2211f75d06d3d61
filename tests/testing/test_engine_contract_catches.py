"""The contract for engines must fail engines that break it."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from themis.engines.attempt.layout import StateFolder
from themis.engines.attempt.record_file import read_page
from themis.engines.base import Engine, FoundProgram
from themis.engines.host.accounts import Owners
from themis.engines.host.gpu_inventory import GpuInventory, PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.engines.supervisor import processes
from themis.engines.supervisor.control_probe import ChosenControl
from themis.engines.task import Task
from themis.testing.engines import EngineContract, OpenEngine


class AsksTwice(LocalEngine):
    """Sends SIGTERM whenever it is asked to."""

    async def checkpoint(self, job: str, token: int) -> None:
        page = read_page(str(self._starts.find(job, token).attempt.folder / "status"))
        assert page is not None
        pid, _ = processes.identity(page["first"])
        os.kill(pid, signal.SIGTERM)


class ForgetsToRenew(LocalEngine):
    async def renew(self, job: str, token: int, end: float, grace: float | None = None) -> None:
        del end, grace
        self._starts.find(job, token)


class BelievesAnyToken(LocalEngine):
    async def kill(self, job: str, token: int) -> None:
        start = self._starts.get(job)
        assert start is not None
        await super().kill(job, start.attempt.task.token)


class ForgetfulFolder(StateFolder):
    def check_tokens(self, task: Task) -> None:
        pass


class TakesOldTokens(LocalEngine):
    def __init__(
        self, folder: StateFolder, inventory: GpuInventory, owners: Owners, choice: ChosenControl
    ) -> None:
        super().__init__(ForgetfulFolder(folder.path, folder.limits), inventory, owners, choice)


class FindsNothing(LocalEngine):
    async def reattach(self) -> tuple[FoundProgram, ...]:
        await super().reattach()
        return ()


class NeverForgets(LocalEngine):
    async def forget(self, job: str, token: int) -> None:
        pass


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


CONTRACT = EngineContract()


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (AsksTwice, "test_a_checkpoint_is_asked_for_once"),
        (ForgetsToRenew, "test_a_renewed_lease_leaves_the_process_alone"),
        (BelievesAnyToken, "test_messages_with_another_token_change_nothing"),
        (TakesOldTokens, "test_a_stale_token_starts_nothing"),
        (FindsNothing, "test_unacknowledged_end_is_reported_until_it_is_forgotten"),
        (NeverForgets, "test_unacknowledged_end_is_reported_until_it_is_forgotten"),
    ],
)
def test_the_contract_catches(broken: type[LocalEngine], test: str, place: Path) -> None:
    async def open_engine() -> Engine:
        machine = PretendGpus("m0", slots=(2,))
        return await broken.open(place / "state", machine, Owners.trusting("nobody"))

    opener: OpenEngine = open_engine
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        getattr(CONTRACT, test)(opener)
