"""Per GPU one supervisor at a time, and never with an older token."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from themis.engines.supervisor.gpu_locks import (
    Fence,
    RefusedStartError,
    highest_below,
    highest_token,
)

HOLD = """
import sys
from themis.engines.supervisor.gpu_locks import Fence
fence = Fence(sys.argv[1])
fence.take(["1"], 5)
print("held", flush=True)
sys.stdin.read()
"""


def test_the_highest_token_is_remembered_per_gpu(tmp_path: Path) -> None:
    first = Fence(str(tmp_path))
    first.take(["0", "1"], 7)
    first.release()
    second = Fence(str(tmp_path))
    second.take(["1"], 9)
    second.release()
    tokens = [highest_token(str(tmp_path), gpu) for gpu in ("0", "1", "2")]
    assert tokens == [7, 9, 0]


def test_the_highest_token_of_all_machines_is_found(tmp_path: Path) -> None:
    unread: list[OSError] = []
    assert highest_below(str(tmp_path / "none"), unread.append) == 0
    for machine, gpu, token in (("m0", "0", 7), ("m0", "1", 12), ("m1", "0", 9)):
        gpus = tmp_path / machine / "gpus"
        gpus.mkdir(parents=True, exist_ok=True)
        fence = Fence(str(gpus))
        fence.take([gpu], token)
        fence.release()
    (tmp_path / "m1" / "gpus" / "1").write_text("9" * 24)  # nobody gave this
    (tmp_path / "m1" / "gpus" / "folder").mkdir()
    os.mkfifo(tmp_path / "m1" / "gpus" / "pipe")  # whose other end nobody has
    (tmp_path / "notes").touch()
    assert highest_below(str(tmp_path), unread.append) == 12
    assert {type(error) for error in unread} >= {IsADirectoryError}


def test_an_older_token_is_refused_and_the_same_is_not(tmp_path: Path) -> None:
    for token in (7, 7):
        fence = Fence(str(tmp_path))
        fence.take(["0"], token)
        fence.release()
    with pytest.raises(RefusedStartError, match="token 6 for GPU 0 is stale: it has seen 7"):
        Fence(str(tmp_path)).take(["0"], 6)


def test_a_refusal_for_one_gpu_changes_nothing_for_the_others(tmp_path: Path) -> None:
    fence = Fence(str(tmp_path))
    fence.take(["1"], 9)
    fence.release()
    with pytest.raises(RefusedStartError):
        Fence(str(tmp_path)).take(["0", "1"], 8)
    assert highest_token(str(tmp_path), "0") == 0


def test_a_gpu_that_another_process_holds_is_refused_until_it_dies(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RefusedStartError, match="GPU 1 is held by another supervisor"):
            Fence(str(tmp_path)).take(["0", "1"], 6)
        holder.kill()
    fence = Fence(str(tmp_path))
    fence.take(["0", "1"], 6)
    fence.release()


def test_each_gpu_remembers_the_token_of_its_own_lease(tmp_path: Path) -> None:
    fence = Fence(str(tmp_path))
    fence.take(["0", "1"], 9, (5, 9))
    fence.release()
    # The lease of GPU 0 is still good when a smaller job is started under it.
    Fence(str(tmp_path)).take(["0"], 5, (5,))
    with pytest.raises(RefusedStartError, match="token 8 for GPU 1 is stale"):
        Fence(str(tmp_path)).take(["1"], 8)
