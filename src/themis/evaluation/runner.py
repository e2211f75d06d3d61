"""Finishes the runs that experiments name.

results = run_experiments(chosen(["E1", "E2"]), Scope(quick=True), Path("out"))

Runs are kept as soon as they are finished, in out/runs, and are found again by their configuration.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from themis.errors import ConfigError
from themis.evaluation.experiment import Experiment, Results, Scope
from themis.evaluation.levers import family
from themis.evaluation.metrics import LITERAL
from themis.evaluation.provenance import commit_here
from themis.evaluation.run_estimates import costs
from themis.recording.atomic_files import write_whole
from themis.sim.config import RunConfig
from themis.sim.runs.result_cache import ResultCache
from themis.sim.runs.worker_pool import Progress, cores, finish_all

Forecast = Callable[[int, float, Sequence[str]], None]
"""Called before runs begin with their number, their estimated seconds, and texts about further work
that is not counted."""


def run_experiments(
    experiments: Sequence[Experiment],
    scope: Scope,
    out: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
    expect: Forecast | None = None,
    policies: Collection[str] = (),
) -> Results:
    """Finish all runs that the experiments name, those of all experiments together.

    Runs go seed by seed, so that the time left is known early and finished ones can be compared.
    `missing` counts the rest. With `fresh` a search sees no run before it was made again, or it
    would follow the old ones.

    Args:
        experiments: Which.
        scope: How much of them.
        out: The folder; its finished runs are used.
        workers: Processes at the same time; all cores by default.
        progress: Called with the progress of the runs.
        fresh: Make finished runs again.
        stop: Once it returns true, no other run begins.
        expect: Called before runs begin.
        policies: If not empty, only their runs begin; naming LITERAL runs it on all seeds.

    Raises:
        ConfigError: A configuration is invalid, or the folder cannot be written.
        ThemisError: A run failed; finished runs are kept.
    """
    store = ResultCache(out / "runs", commit=commit_here())
    store.make()

    def on_read() -> None:
        if progress is not None:
            progress(0, 1, "reading finished runs")

    done: set[str] = set()

    def outdated(config: RunConfig) -> bool:
        return fresh and _begins(config, policies) and repr(config) not in done

    results = Results(scope, store, on_read, outdated=outdated)
    _check_policies(experiments, results, policies)
    complete = replace(results, outdated=lambda _: False)
    while True:
        named = [config for item in experiments for config in _chosen(item, results, policies)]
        if fresh:  # Also finished runs beyond the plan, or the report would mix old and new ones.
            named += [
                config
                for item in experiments
                for config in item.plan(results)
                if _begins(config, policies) and store.has(config)
            ]
        new = {repr(config): config for config in named if repr(config) not in done}
        if not new:
            _make_extra_data(experiments, complete, fresh=fresh, stop=stop, progress=progress)
            return complete
        wanted = sorted(new.values(), key=lambda config: config.seed)
        todo = [config for config in wanted if fresh or not store.has(config)]
        cost = costs(todo, store.timings()) if todo else {}
        if todo and expect is not None:
            seconds = sum(cost.values()) / min(workers or cores(), len(todo))
            expect(len(todo), seconds, _to_follow(experiments, complete, fresh=fresh))
        if finish_all(
            wanted, store, workers=workers, progress=progress, fresh=fresh, stop=stop, cost=cost
        ):
            return complete
        done |= new.keys()


def _check_policies(
    experiments: Sequence[Experiment], results: Results, policies: Collection[str]
) -> None:
    """Refuse a policy that none of the experiments has."""
    if not policies:
        return
    named = {family(config.policy) for item in experiments for config in item.plan(results)}
    if unknown := [name for name in policies if named and name not in named]:
        raise ConfigError("policies", ", ".join(unknown), f"some of {', '.join(sorted(named))}")


def _to_follow(experiments: Sequence[Experiment], results: Results, *, fresh: bool) -> list[str]:
    """Further work: runs that a search will name, and data that is not made of runs."""
    scope = results.scope
    follow = []
    for item in experiments:
        if item.grows:
            in_all = "" if scope.quick or scope.seeds else f", {item.grows}"
            follow.append(f"{item.id} may name more runs after these{in_all}")
        data = [one.title for one in item.extra_data(results) if fresh or not one.exists]
        if data:
            follow.append(f"{item.id} continues with {' and '.join(data)}, which is not counted")
    return follow


def _begins(config: RunConfig, policies: Collection[str]) -> bool:
    return not policies or family(config.policy) in policies


def _chosen(
    experiment: Experiment, results: Results, policies: Collection[str]
) -> Iterator[RunConfig]:
    """The runs that an experiment wants of these policies, or of all if none is named."""
    named = (config for config in experiment.wanted(results) if _begins(config, policies))
    if LITERAL not in policies:
        return named
    more = (config for config in experiment.plan(results) if config.policy == LITERAL)
    return iter({repr(config): config for config in (*named, *more)}.values())


def _make_extra_data(
    experiments: Sequence[Experiment],
    results: Results,
    *,
    fresh: bool,
    stop: Callable[[], bool],
    progress: Progress | None,
) -> None:
    """Make the data that experiments need besides runs, one after the other."""
    data = [(item, one) for item in experiments for one in item.extra_data(results)]
    todo = [(item, one) for item, one in data if fresh or not one.exists]
    for done, (item, one) in enumerate(todo):
        if stop():
            return

        def say(text: str, label: str = f"{item.id}: {one.title}", done: int = done) -> None:
            if progress is not None:
                progress(done, len(todo), f"{label} {text}".rstrip())

        say("")
        write_whole(one.path, one.make(say))


def missing(experiment: Experiment, results: Results, policies: Collection[str] = ()) -> int:
    """How many runs of these policies an experiment still needs; a search may then name more."""
    runs = sum(not results.has(config) for config in _chosen(experiment, results, policies))
    return runs + sum(not one.exists for one in experiment.extra_data(results))


def left_out(experiment: Experiment, results: Results, policies: Collection[str]) -> int:
    """How many runs of other policies than these are missing."""
    return sum(
        not _begins(config, policies) and not results.has(config)
        for config in experiment.wanted(results)
    )
