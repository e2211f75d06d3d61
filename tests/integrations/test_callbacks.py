"""The callbacks keep the job contract, whatever version of a framework calls them."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from themis import reporting
from themis.integrations import lightning, transformers
from themis.integrations.optional_bases import numbers


class Base:
    """Stands for what a framework's callbacks derive from."""


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins: what is tested here is what the callbacks do when they are called."""
    for name, base in (
        ("transformers", "TrainerCallback"),
        ("lightning", ""),
        ("lightning.pytorch", "Callback"),
    ):
        module = ModuleType(name)
        if base:
            setattr(module, base, Base)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(reporting, "stop_notice", reporting.StopNotice())
    monkeypatch.setenv("THEMIS_JOB_ID", "job")
    monkeypatch.setenv("THEMIS_METRICS", str(tmp_path / "metrics.jsonl"))
    monkeypatch.setenv("THEMIS_CHECKPOINT_DIR", str(tmp_path / "saved"))
    monkeypatch.delenv("THEMIS_CHECKPOINT_EVERY", raising=False)
    monkeypatch.setenv("THEMIS_MAX_ITERATIONS", "10")
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


def told(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [{k: v for k, v in json.loads(line).items() if k != "t"} for line in lines]


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


ARGS = SimpleNamespace(world_size=1, eval_strategy="no")


def control(**given: bool) -> SimpleNamespace:
    names = ("should_log", "should_evaluate", "should_save", "should_training_stop")
    return SimpleNamespace(**dict.fromkeys(names, False) | given)


def at(step: int, **given: Any) -> SimpleNamespace:
    known = {"global_step": step, "is_world_process_zero": True, "log_history": []}
    return SimpleNamespace(**known | given)


def wants(given: SimpleNamespace) -> set[str]:
    return {name.removeprefix("should_") for name, value in vars(given).items() if value}


@pytest.mark.parametrize("module", [transformers, lightning])
def test_callbacks_are_the_frameworks_and_can_be_copied_and_sent(module: ModuleType) -> None:
    made = module.ThemisCallback(7)
    assert isinstance(made, Base)
    assert isinstance(made, module.ThemisCallback)
    assert type(made) is type(module.ThemisCallback())
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(other) is type(made)
        assert other._every == 7

    class Own(module.ThemisCallback):  # type: ignore[misc, name-defined] # a class of either module
        pass

    assert isinstance(Own(), Own)
    assert isinstance(Own(), Base)


@pytest.mark.parametrize(
    ("name", "gone", "install"),
    [
        ("transformers", ["transformers"], "pip install transformers"),
        (
            "lightning",
            ["lightning", "lightning.pytorch", "pytorch_lightning"],
            "pip install lightning",
        ),
    ],
)
def test_without_its_framework_a_callback_says_what_to_install(
    name: str, gone: list[str], install: str
) -> None:
    lines = ["import sys", *(f"sys.modules[{each!r}] = None" for each in gone)]
    lines += [f"from themis.integrations.{name} import ThemisCallback, last_checkpoint"]
    lines += ["last_checkpoint()", "ThemisCallback()"]
    env = {**os.environ, "PYTHONPATH": str(Path(reporting.__file__).parents[1])}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"ImportError: ThemisCallback needs {name}: {install}"


def test_a_trainer_reports_what_it_logs_and_only_in_its_first_process(job: Path) -> None:
    made = transformers.ThemisCallback()
    logs = {"loss": 0.5, "eval_accuracy": 0.9, "total_flos": 1e9, "note": "text", "x_runtime": 3.0}
    made.on_log(ARGS, at(4), control(), logs=logs)
    made.on_log(ARGS, at(5, is_world_process_zero=False), control(), logs=logs)
    assert told(job) == [{"it": 4, "loss": 0.5, "eval_accuracy": 0.9}]


def test_a_trainer_that_logs_seldom_still_says_how_far_it_is(job: Path) -> None:
    made = transformers.ThemisCallback(every=0.0)
    made.on_step_end(ARGS, at(4), control())
    made.on_step_end(ARGS, at(5), control(should_log=True))  # `on_log` will say it
    assert told(job) == [{"it": 4, "loss": None}]
    transformers.ThemisCallback(every=1e9).on_step_end(ARGS, at(6), control())
    assert len(told(job)) == 1


def test_trainer_asked_to_stop_saves_without_evaluation_and_exits_with_75() -> None:
    made = transformers.ThemisCallback()
    made.on_train_begin(ARGS, at(0), control())
    assert wants(made.on_step_end(ARGS, at(3), control(should_evaluate=True))) == {"evaluate"}
    ask_to_stop()
    stop = made.on_step_end(ARGS, at(4), control(should_evaluate=True))
    assert wants(stop) == {"save", "training_stop"}
    stop.should_evaluate = True  # at the end of each epoch, the trainer says
    assert wants(made.on_epoch_end(ARGS, at(4), stop)) == {"training_stop"}
    with pytest.raises(SystemExit) as left:
        made.on_train_end(ARGS, at(4), stop)
    assert left.value.code == 75


def test_trainer_asked_to_stop_during_evaluation_saves_after_it() -> None:
    made = transformers.ThemisCallback()
    assert wants(made.on_evaluate(ARGS, at(3), control())) == set()
    ask_to_stop()
    assert wants(made.on_evaluate(ARGS, at(3), control())) == {"save", "training_stop"}


@pytest.mark.parametrize("asked", [False, True])
def test_a_trainer_at_its_limit_logs_evaluates_saves_and_returns(asked: bool) -> None:
    made = transformers.ThemisCallback()
    if asked:  # what is finished is finished
        ask_to_stop()
    args = SimpleNamespace(world_size=1, eval_strategy="epoch")
    stop = made.on_step_end(args, at(10), control())
    assert wants(stop) == {"log", "evaluate", "save", "training_stop"}
    assert wants(made.on_epoch_end(args, at(10), stop)) == {"training_stop"}
    made.on_train_end(args, at(10), stop)
    with pytest.raises(SystemExit) as left:
        made.on_train_begin(args, at(10), control())
    assert left.value.code == 0


def test_trainer_without_work_left_reports_its_progress_once_more(job: Path) -> None:
    history = [{"loss": 0.9, "step": 5}, {"loss": 0.5, "step": 10}, {"eval_loss": 0.6, "step": 10}]
    with pytest.raises(SystemExit):
        transformers.ThemisCallback().on_train_begin(ARGS, at(10, log_history=history), control())
    assert told(job) == [{"it": 10, "loss": 0.5, "eval_loss": 0.6}]


def test_a_trainer_saves_when_a_checkpoint_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_CHECKPOINT_EVERY", "1")
    monkeypatch.setattr(reporting._pace, "last", -1e9)
    made = transformers.ThemisCallback()
    assert wants(made.on_step_end(ARGS, at(3), control())) == {"save"}


def test_the_last_checkpoint_of_a_trainer_is_the_latest_whole_one(job: Path) -> None:
    saved = job / "saved"
    assert transformers.last_checkpoint() is None
    assert transformers.last_checkpoint(job / "nowhere") is None
    for name, text in (("9", "{}"), ("100", "{}"), ("200", '{"ha'), ("x", "{}")):
        (saved / f"checkpoint-{name}").mkdir()
        (saved / f"checkpoint-{name}" / "trainer_state.json").write_text(text)
    (saved / "checkpoint-300").mkdir()
    assert transformers.last_checkpoint() == str(saved / "checkpoint-100")


class Trainer:
    """What the callback asks of Lightning's."""

    def __init__(self, step: int = 0) -> None:
        self.global_step = step
        self.world_size = 1
        self.is_global_zero = True
        self.log_every_n_steps = 2
        self.should_stop = self.sanity_checking = False
        self.callback_metrics: dict[str, Any] = {"val_loss": 0.25}
        self.state = SimpleNamespace(fn="fit")
        self.strategy = SimpleNamespace(launcher=None)

    def save_checkpoint(self, path: Path) -> None:
        path.write_text("state")


def batch(made: Any, trainer: Trainer, step: int) -> None:
    trainer.global_step = step
    made.on_train_batch_end(trainer, None, {"loss": 0.5}, None, 0)


def saved(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "saved").glob("themis-*"))


def test_lightning_reports_every_few_steps_and_what_validation_found(job: Path) -> None:
    made, trainer = lightning.ThemisCallback(), Trainer()
    made.on_train_start(trainer, None)
    for step in (1, 2, 2, 3):  # the second one again: gradients were accumulated
        batch(made, trainer, step)
    made.on_validation_end(trainer, None)
    trainer.sanity_checking = True
    made.on_validation_end(trainer, None)
    assert told(job) == [
        {"it": 2, "loss": 0.5, "val_loss": 0.25},
        {"it": 3, "loss": None, "val_loss": 0.25},
    ]
    assert saved(job) == []


def test_lightning_that_is_asked_to_stop_saves_and_leaves_with_75(job: Path) -> None:
    made, trainer = lightning.ThemisCallback(), Trainer()
    signal.signal(signal.SIGTERM, lambda *_: pytest.fail("Lightning's own handler was called"))
    made.on_train_start(trainer, None)
    batch(made, trainer, 1)
    ask_to_stop()
    with pytest.raises(SystemExit) as left:
        batch(made, trainer, 2)
    assert left.value.code == 75
    assert saved(job) == ["themis-2.ckpt"]
    assert lightning.last_checkpoint() == str(job / "saved" / "themis-2.ckpt")


def test_lightning_does_not_finish_a_validation_when_asked_to_stop(job: Path) -> None:
    made, trainer = lightning.ThemisCallback(), Trainer(step=3)
    made.on_train_start(trainer, None)
    made.on_validation_batch_end(trainer, None, None, None, 0)
    ask_to_stop()
    with pytest.raises(SystemExit) as left:
        made.on_validation_batch_end(trainer, None, None, None, 0)
    assert left.value.code == 75
    assert saved(job) == ["themis-3.ckpt"]


def test_lightning_at_its_limit_saves_and_returns_and_does_not_begin_again(job: Path) -> None:
    made, trainer = lightning.ThemisCallback(), Trainer(step=9)
    made.on_train_start(trainer, None)
    batch(made, trainer, 10)
    assert trainer.should_stop
    assert saved(job) == ["themis-10.ckpt"]
    with pytest.raises(SystemExit) as left:
        made.on_train_start(trainer, None)
    assert left.value.code == 0


def test_lightning_without_work_left_reports_its_progress_once_more(job: Path) -> None:
    made, trainer = lightning.ThemisCallback(), Trainer(step=9)
    made.on_train_start(trainer, None)
    batch(made, trainer, 10)
    again, later = lightning.ThemisCallback(), Trainer(step=10)
    later.callback_metrics = {}  # Lightning does not keep them.
    again.load_state_dict(made.state_dict())
    with pytest.raises(SystemExit):
        again.on_train_start(later, None)
    assert told(job) == [{"it": 10, "loss": 0.5, "val_loss": 0.25}] * 2


def test_lightning_with_an_old_checkpoint_reports_a_minimum_progress(job: Path) -> None:
    made = lightning.ThemisCallback()
    made.load_state_dict({})
    with pytest.raises(SystemExit):
        made.on_train_start(Trainer(step=10), None)
    assert [each["it"] for each in told(job)] == [10]


def test_lightning_keeps_two_periodic_checkpoints_and_no_half_ones(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_CHECKPOINT_EVERY", "1")
    made, trainer = lightning.ThemisCallback(), Trainer()
    made.on_train_start(trainer, None)
    for step in (7, 8, 9):
        monkeypatch.setattr(reporting._pace, "last", -1e9)
        batch(made, trainer, step)
    assert saved(job) == ["themis-8.ckpt", "themis-9.ckpt"]
    assert not list((job / "saved").glob(".*"))


def test_a_stop_that_lightning_noticed_itself_is_not_taken_for_the_end() -> None:
    made, trainer = lightning.ThemisCallback(), Trainer(step=3)
    ask_to_stop()
    by_itself, failed = SystemExit(), SystemExit(3)
    made.on_exception(trainer, None, by_itself)
    made.on_exception(trainer, None, failed)
    made.on_exception(trainer, None, ValueError("no"))
    assert (by_itself.code, failed.code) == (75, 3)


def test_processes_agree_before_they_save() -> None:
    made, trainer = lightning.ThemisCallback(), Trainer()
    trainer.world_size = 2
    asked: list[bool] = []

    def decide(decision: bool, all: bool) -> bool:  # noqa: A002 - Lightning's word
        asked.append(decision)
        assert not all
        return len(asked) == 2  # the other process was asked to stop

    trainer.strategy = SimpleNamespace(launcher=None, reduce_boolean_decision=decide)
    with pytest.raises(SystemExit):
        batch(made, trainer, 1)
    assert asked == [False, False]


def test_only_numbers_are_reported() -> None:
    class Tensor:
        def __init__(self, *values: float) -> None:
            self.values = values

        def __float__(self) -> float:
            if len(self.values) != 1:
                raise RuntimeError("many")
            return self.values[0]

    given = {"a": Tensor(0.5), "b": Tensor(1, 2), "c": True, "d": "1", "e": None, "it": 1, "f": 2}
    assert numbers(given.items()) == {"a": 0.5, "f": 2.0}
