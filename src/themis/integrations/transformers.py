"""For the `Trainer` of Hugging Face's transformers.

    from themis.integrations.transformers import ThemisCallback, last_checkpoint

    args = TrainingArguments(output_dir=themis.checkpoint_dir(), ...)
    trainer = Trainer(model, args, ..., callbacks=[ThemisCallback()])
    trainer.train(resume_from_checkpoint=last_checkpoint())

An iteration is a step of the optimizer (`global_step`).
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Self

from themis import reporting
from themis.integrations.optional_bases import first_installed, numbers, subclass_of

_NOT_REPORTED = ("total_flos",)
_BOOKKEEPING = ("_runtime", "_per_second")
_CHECKPOINT = re.compile(r"checkpoint-([0-9]+)\Z")
_GO_ON, _SAVE, _STOP = 0, 1, 2


class ThemisCallback:
    """Reports what is logged, saves when asked to and periodically, and stops at the limit.

    After SIGTERM it saves, and exits with the code 75 at the end of `train`. At
    `THEMIS_MAX_ITERATIONS` it logs, evaluates (if there is an evaluation strategy), saves and lets
    `train` return; a program that is started again there exits with 0 before the first step.
    """

    def __new__(cls, *_args: Any, **_more: Any) -> Self:
        """Make one that is a `TrainerCallback`.

        Raises:
            ImportError: transformers is not installed.
        """
        made: Self = object.__new__(subclass_of(cls, _base))
        return made

    def __init__(self, every: float = 10.0) -> None:
        """Begin to note SIGTERM.

        Args:
            every: Seconds after which progress is reported without values if nothing is logged.
        """
        self._every = every
        self._ended = ""
        self._reported = time.monotonic()
        reporting.should_stop()

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that is made for the base has no name to be found by.
        return type(self).__mro__[1], (self._every,)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Exit if the limit is reached already."""
        self._ended = ""
        if _is_reached(state):
            # The last report may be lost.
            logged = {name: each for entry in state.log_history for name, each in entry.items()}
            logged.pop("step", None)
            self.on_log(args, state, control, logged)
            sys.exit(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Decide whether to go on, and report the iteration."""
        action = _agree(args)
        if _is_reached(state):
            # Trials are compared by their metrics at the limit.
            control.should_log = True
            control.should_evaluate = getattr(args, "eval_strategy", "no") != "no"
            self._end(control, "finished")
        elif action == _STOP:
            control.should_evaluate = False  # it could take longer than the grace
            self._end(control, "stopped")
        elif action == _SAVE:
            control.should_save = True
        overdue = time.monotonic() - self._reported >= self._every
        if overdue and not control.should_log and state.is_world_process_zero:
            self._report(state)
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Stop after an evaluation during which SIGTERM came."""
        if not self._ended and _agree(args) == _STOP:
            self._end(control, "stopped")
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Do nothing more: the last step did it."""
        if self._ended:
            control.should_log = control.should_evaluate = control.should_save = False
        return control

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Report what was logged."""
        if logs and state.is_world_process_zero:
            values = numbers(logs.items(), without=_NOT_REPORTED)
            self._report(
                state,
                **{name: each for name, each in values.items() if not name.endswith(_BOOKKEEPING)},
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Exit if asked to stop."""
        if self._ended == "stopped":
            sys.exit(reporting.GRACEFUL_EXIT)

    def _end(self, control: Any, how: str) -> None:
        control.should_save = control.should_training_stop = True
        self._ended = how

    def _report(self, state: Any, **values: float) -> None:
        self._reported = time.monotonic()
        reporting.report(state.global_step, **values)


def last_checkpoint(folder: str | os.PathLike[str] | None = None) -> str | None:
    """The latest whole checkpoint, for `resume_from_checkpoint`; None if there is none.

    Args:
        folder: The trainer's `output_dir`; by default the job's checkpoint folder.
    """
    place = reporting.checkpoint_dir() if folder is None else Path(folder)
    steps = {}
    for path in place.iterdir() if place.is_dir() else ():
        if (match := _CHECKPOINT.match(path.name)) is not None and _is_whole(path):
            steps[int(match[1])] = str(path)
    return steps[max(steps)] if steps else None


def _is_whole(checkpoint: Path) -> bool:
    """Whether its last file is there: a killed trainer leaves partial checkpoints."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


def _is_reached(state: Any) -> bool:
    limit = reporting.max_iterations()
    return limit is not None and state.global_step >= limit


def _agree(args: Any) -> int:
    """The same decision in all processes: one that saves alone waits for the others."""
    action = _STOP if reporting.should_stop() else _SAVE if reporting.checkpoint_due() else _GO_ON
    if getattr(args, "world_size", 1) < 2:
        return action
    import torch  # noqa: PLC0415 - only there
    from torch import distributed  # noqa: PLC0415

    values = torch.tensor(action, device=args.device)
    distributed.all_reduce(values, op=distributed.ReduceOp.MAX)
    return int(values.item())


def _base() -> type:
    return first_installed(["transformers"], "TrainerCallback", "transformers")
