"""For the `Trainer` of Lightning, `lightning` as well as `pytorch_lightning`.

    from themis.integrations.lightning import ThemisCallback, last_checkpoint

    trainer = Trainer(callbacks=[ThemisCallback()], ...)
    trainer.fit(model, ckpt_path=last_checkpoint())

An iteration is a step of the optimizer (`global_step`).
"""

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Self

from themis import reporting
from themis.integrations.optional_bases import first_installed, numbers, subclass_of

KEPT = 2
"""How many checkpoints of this callback are kept."""
_CHECKPOINT = re.compile(r"themis-([0-9]+)\.ckpt\Z")


class ThemisCallback:
    """Reports, saves when asked to and periodically, and stops at the limit.

    After SIGTERM it saves and exits with the code 75. At `THEMIS_MAX_ITERATIONS` it
    saves and lets `fit` return after a validation; a program that is started again there reports
    once more, and exits with 0 before the first step. Checkpoints are
    `themis-STEP.ckpt` in the job's folder.
    """

    def __new__(cls, *_args: Any, **_more: Any) -> Self:
        """Make one that is a `Callback`.

        Raises:
            ImportError: Lightning is not installed.
        """
        made: Self = object.__new__(subclass_of(cls, _base))
        return made

    def __init__(self, every_n_steps: int | None = None) -> None:
        """Begin to note SIGTERM.

        Args:
            every_n_steps: Steps between reports; by default the trainer's `log_every_n_steps`.
        """
        self._every = every_n_steps
        self._step = -1
        self._reported: dict[str, float] = {}
        """The last value of each metric."""
        reporting.should_stop()

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that is made for the base has no name to be found by.
        return type(self).__mro__[1], (self._every,)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM over; exit if the limit is reached already."""
        self._step = trainer.global_step
        if _is_reached(trainer):
            # The last report may be lost.
            if trainer.is_global_zero:
                reporting.report(trainer.global_step, **self._reported)
            sys.exit(0)
        _take_over(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The last metrics go into checkpoints, for a start with nothing left to do."""
        return {"reported": dict(self._reported)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the last metrics from a checkpoint."""
        self._reported = dict(state_dict.get("reported", {}))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the iteration, and decide whether to go on."""
        step, reached = trainer.global_step, _is_reached(trainer)
        every = self._every or trainer.log_every_n_steps or 1
        if step != self._step and (step % every == 0 or reached):
            self._report(trainer, outputs)
        due = step != self._step and _agreed(trainer, reporting.checkpoint_due())
        self._step = step
        if reached:
            save_checkpoint(trainer)
            trainer.should_stop = True  # after a validation
        elif _agreed(trainer, reporting.should_stop()):
            save_checkpoint(trainer)
            sys.exit(reporting.GRACEFUL_EXIT)
        elif due:
            save_checkpoint(trainer)

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        """End a long validation when asked to stop."""
        # Several processes need not have as many batches each: there the next step decides.
        if trainer.world_size == 1 and _is_fitting(trainer) and reporting.should_stop():
            if not _is_reached(trainer):
                save_checkpoint(trainer)
            sys.exit(reporting.GRACEFUL_EXIT)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metrics of a validation."""
        if _is_fitting(trainer):
            self._report(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Correct the exit code: Lightning exits with 0 at a SIGTERM, which would mean finished."""
        left = isinstance(exception, SystemExit) and not exception.code
        if left and reporting.should_stop() and not _is_reached(trainer):
            exception.code = reporting.GRACEFUL_EXIT  # type: ignore[attr-defined] # as `left` says

    def _report(self, trainer: Any, outputs: Any = None) -> None:
        if not trainer.is_global_zero:
            return
        reported = numbers(trainer.callback_metrics.items())
        if "loss" not in reported and isinstance(outputs, dict):
            reported = numbers([("loss", outputs.get("loss"))]) | reported
        self._reported |= reported
        reporting.report(trainer.global_step, **reported)


def save_checkpoint(trainer: Any) -> None:
    """Save under a name that only whole checkpoints have. All processes must call it."""
    folder = reporting.checkpoint_dir()
    place = folder / f"themis-{trainer.global_step}.ckpt"
    half = folder / f".themis-{trainer.global_step}.half"
    if place.exists() and trainer.world_size == 1:
        return
    trainer.save_checkpoint(half)
    if not trainer.is_global_zero:
        return
    if place.exists():
        _remove(place)
    half.replace(place)
    for _, old in _checkpoints(folder)[:-KEPT]:
        _remove(old)


def last_checkpoint(folder: str | os.PathLike[str] | None = None) -> str | None:
    """The latest checkpoint of this callback, for `ckpt_path`; None if there is none.

    Args:
        folder: Where they are; by default the job's checkpoint folder.
    """
    found_ones = _checkpoints(reporting.checkpoint_dir() if folder is None else Path(folder))
    return str(found_ones[-1][1]) if found_ones else None


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    paths = folder.iterdir() if folder.is_dir() else ()
    named = [(match, path) for path in paths if (match := _CHECKPOINT.match(path.name))]
    return sorted((int(match[1]), path) for match, path in named)


def _remove(path: Path) -> None:
    if path.is_dir():  # some strategies write folders
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_reached(trainer: Any) -> bool:
    limit = reporting.max_iterations()
    return limit is not None and trainer.global_step >= limit


def _is_fitting(trainer: Any) -> bool:
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def _agreed(trainer: Any, wanted: bool) -> bool:
    """The same decision in all processes: one that saves alone waits for the others."""
    if trainer.world_size < 2:
        return wanted
    return bool(trainer.strategy.reduce_boolean_decision(wanted, all=False))


def _take_over(trainer: Any) -> None:
    """Have SIGTERM noted only: Lightning's own handler ends the program without a checkpoint."""
    pass_on = getattr(trainer.strategy.launcher, "kill", None)

    def note(number: int, frame: Any) -> None:
        reporting.stop_notice.note(number, frame)
        if pass_on is not None:  # to the processes that Lightning started
            pass_on(number)

    if reporting.stop_notice.watches:
        signal.signal(signal.SIGTERM, note)


def _base() -> type:
    # The trainer is of the package that the program has imported already.
    names = ["lightning.pytorch", "pytorch_lightning"]
    names.sort(key=lambda name: name not in sys.modules)
    return first_installed(names, "Callback", "lightning")
