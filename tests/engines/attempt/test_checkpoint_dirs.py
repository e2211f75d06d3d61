"""Folders for checkpoints: each owner's own, made by several nodes at once, on any storage."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.requirements import missing
from themis.engines.attempt.checkpoint_dirs import Checkpoints
from themis.engines.host.accounts import Account, Owners
from themis.engines.host.gpu_inventory import PretendGpus
from themis.engines.local.engine import LocalEngine
from themis.testing.engines import KillContract, play

ANN, BOB = Account("ann", 40001, 40001, (40001,)), Account("bob", 40002, 40002, (40002,))


def require_root() -> None:
    if os.geteuid() != 0:
        missing("root")


def test_a_job_has_the_same_folder_at_every_start(tmp_path: Path) -> None:
    places = Checkpoints(tmp_path)
    assert places.folder("vision", "sweep/j0", None) == tmp_path / "vision" / "sweep" / "j0"
    assert places.folder("vision", "sweep/j0", None) == tmp_path / "vision" / "sweep" / "j0"
    odd = places.folder("vision", "../../etc//x Y", None)
    assert odd.resolve().is_relative_to(tmp_path / "vision")
    assert ".." not in odd.parts
    assert (tmp_path / "vision").stat().st_mode & 0o777 == 0o700


def test_an_owners_folder_is_the_owners(tmp_path: Path) -> None:
    require_root()
    Checkpoints(tmp_path).folder("ann", "sweep/j0", ANN)
    about = (tmp_path / "ann").stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (ANN.uid, ANN.gid, 0o700)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda place: (place / "theirs").mkdir(), id="a folder of another user"),
        pytest.param(lambda place: (place / "theirs").symlink_to("/etc"), id="a link"),
        pytest.param(lambda place: (place / "theirs").touch(), id="a file"),
    ],
)
def test_foreign_checkpoint_files_are_not_used(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    require_root()
    spoil(tmp_path)
    os.chown(tmp_path / "theirs", BOB.uid, BOB.gid, follow_symlinks=False)
    (tmp_path / "theirs").rename(tmp_path / "ann")
    with pytest.raises(PermissionError, match="folder of ann alone"):
        Checkpoints(tmp_path).folder("ann", "sweep/j0", ANN)


def test_first_starts_of_one_owner_do_not_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root()
    places = Checkpoints(tmp_path)
    chown = os.chown
    met: list[Path] = []

    def meet(path: Path, *ids: int, **how: bool) -> None:
        """Another start comes when the folder is there and not yet the owner's."""
        if not met:
            met.append(path)
            places.folder("ann", "sweep/j1", ANN)
            assert Path(path).stat().st_uid == ANN.uid, "it would start in a folder of root's"
        chown(path, *ids, **how)

    monkeypatch.setattr(os, "chown", meet)
    places.folder("ann", "sweep/j0", ANN)
    assert met
    assert (tmp_path / "ann").stat().st_uid == ANN.uid


def test_many_first_starts_at_once_all_get_the_folder(tmp_path: Path) -> None:
    account = ANN if os.geteuid() == 0 else None
    for round_ in range(20):
        places = Checkpoints(tmp_path / str(round_))
        places.root.mkdir()
        with ThreadPoolExecutor(8) as pool:
            jobs = [f"sweep/j{n}" for n in range(8)]
            found = list(pool.map(lambda job: places.folder("ann", job, account), jobs))  # noqa: B023 - used up in this turn
        assert len(set(found)) == 8


def test_where_root_has_no_rights_the_owner_makes_the_folder(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root()
    state.mkdir(0o1777)
    state.chmod(0o1777)
    mkdir, tried = Path.mkdir, []

    def squashed(self: Path, mode: int = 0o777, **how: bool) -> None:
        tried.append(self)
        if len(tried) == 1:
            raise PermissionError(13, "Permission denied")
        mkdir(self, mode, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", squashed)
        Checkpoints(state).folder("ann", "sweep/j0", ANN)
    assert (state / "ann").stat().st_uid == ANN.uid
    assert os.geteuid() == 0
    state.chmod(0o755)
    tried.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", squashed)
        with pytest.raises(PermissionError, match="make it for bob, mode 0700"):
            Checkpoints(state).folder("bob", "sweep/j0", BOB)


def test_a_job_goes_on_under_another_node_that_sees_its_checkpoints(
    state: Path, owners: Owners
) -> None:
    shared = state.with_name("shared")
    shared.mkdir(0o711)

    async def scene() -> None:
        for node, expected in (("m0", ""), ("m1", "m0 ")):
            folder = state / node
            machine = PretendGpus(node, slots=(1,))
            opened = LocalEngine.open(folder, machine, owners, checkpoints=shared)
            async with KillContract().stage(lambda: opened) as stage:  # noqa: B023 - called at once
                task = stage.task(f"cat saved; printf '{node} ' >> saved", job="sweep/j0")
                await stage.engine.start(task)
                await stage.next()
                await stage.ending()
                assert expected in await stage.engine.tail("sweep/j0")
        assert (shared / "ann" / "sweep" / "j0" / "saved").read_text() == "m0 m1 "

    play(scene())
