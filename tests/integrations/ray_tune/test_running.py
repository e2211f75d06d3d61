"""The wrapper with Ray's own schedulers inside, and everything else pretended."""

import pickle
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.requirements import missing

if find_spec("ray") is None or find_spec("pyarrow") is None:
    missing("Ray Tune is not installed (pip install 'themis-scheduler[ray]')")

from ray.tune import PlacementGroupFactory
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, HyperBandScheduler
from ray.tune.trainable import FunctionTrainable

from themis.errors import ConfigError, TunerError
from themis.integrations.ray_tune import script_run
from themis.integrations.ray_tune.scheduler import ThemisScheduler
from themis.integrations.ray_tune.trial_node_server import TrialNode

MARK = "themis-ab-"


class FakeNodeServer:
    """Nodes as a test says."""

    def __init__(self) -> None:
        self.nodes: dict[str, TrialNode] = {}
        self.reports: list[tuple[str, float, dict[str, float]]] = []
        self.gone: list[str] = []
        self.dismissed = self.closed = False
        self._keys = 0

    def node(self, job: str) -> TrialNode | None:
        return self.nodes.get(job)

    def report(self, job: str, iteration: float, values: dict[str, float]) -> None:
        self.reports.append((job, iteration, values))

    def let_go(self, job: str) -> None:
        self.gone.append(job)

    def dismiss(self) -> None:
        self.dismissed = True

    def close(self) -> None:
        self.closed = True

    def come(self, *jobs: str) -> None:
        for job in jobs:
            self._keys += 1
            self.nodes[job] = TrialNode(self._keys, 1, 1, 1, 1000.0)

    def leave(self, job: str, since: float = 1e9, grace: float = 1000.0) -> None:
        self.nodes[job] = TrialNode(self.nodes[job].key, 1, 1, 1, grace, since)


class FakeAgent:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.app = "mine"
        self.error: Exception | None = None
        self.over = SimpleNamespace(is_set=lambda: False, wait=lambda _: True)
        self.tuner = SimpleNamespace(given_up=set[str]())
        self.parked: frozenset[str] = frozenset()
        self.ends: dict[str, tuple[float, float | None]] = {}
        self.cancels = 0

    def cancel(self) -> None:
        self.cancels += 1

    def park(self, jobs: frozenset[str]) -> None:
        self.parked = jobs

    def conclude(self, job: str, iterations: float, metric: float | None) -> None:
        self.ends.setdefault(job, (iterations, metric))


class Trial:
    """What the wrapper and Ray's schedulers look at."""

    def __init__(self, number: int, gpus: float = 1.0) -> None:
        self.trial_id = f"t{number}"
        self.status = "PENDING"
        self.placement_group_factory = PlacementGroupFactory([{"CPU": 1.0, "GPU": gpus}])
        self.stopping_criterion: dict[str, float] = {}
        self.storage = None
        self.config = {"lr": 0.1}
        self.max_failures = 0
        self.temporary_state = SimpleNamespace(saving_to=None)
        self.last_result: dict[str, Any] = {}
        self.kind: type = object

    @property
    def is_saving(self) -> bool:
        return self.temporary_state.saving_to is not None

    def get_trainable_cls(self) -> type:
        return self.kind

    def update_resources(self, resources: PlacementGroupFactory) -> None:
        self.placement_group_factory = resources


class Tune:
    """Tune's loop, turned by hand."""

    def __init__(self, scheduler: ThemisScheduler, trials: int) -> None:
        self.scheduler = scheduler
        self.search_alg = SimpleNamespace(total_samples=trials, is_finished=lambda: True)
        self.trials = [Trial(number) for number in range(trials)]
        for trial in self.trials:
            scheduler.on_trial_add(self, trial)

    def get_trials(self) -> list[Trial]:
        return self.trials

    def turn(self) -> Trial | None:
        """What the scheduler names; it and what Ray can start run at once."""
        chosen: Trial | None = self.scheduler.choose_trial_to_run(self)
        run = cast("Any", self.scheduler._run)
        for trial in self.trials:
            node = run._node_server.node(run._entry(trial).job)
            here = node is not None and node.leaving_since is None
            if here and (trial is chosen or trial.status == "PENDING"):
                trial.status = "RUNNING"
        return chosen

    def report(self, number: int, iteration: int, loss: float = 1.0, **more: Any) -> str:
        trial = self.trials[number]
        assert trial.status == "RUNNING"
        result = trial.last_result = {"training_iteration": iteration, "loss": loss, **more}
        decided = self.scheduler.on_trial_result(self, trial, result)
        if decided == "PAUSE":
            trial.status = "PAUSED"
        elif decided == "STOP":
            self.stop_trial(trial)
        return decided

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        assert not should_checkpoint
        assert not trial.is_saving, "Tune would stop it after its next save"
        trial.status = "PAUSED"

    def stop_trial(self, trial: Trial) -> None:
        if trial.status == "RUNNING":
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)
        trial.status = "TERMINATED"


class Stage:
    """A wrapper whose app and nodes are pretended."""

    def __init__(self, inside: Any, trials: int) -> None:
        self.scheduler = ThemisScheduler(inside, server="http://127.0.0.1:1", max_iterations=9)
        self.scheduler.set_search_properties("loss", "min")
        self.tune = Tune(self.scheduler, trials)
        self.run = cast("Any", self.scheduler._run)
        self.node_server: FakeNodeServer = self.run._node_server
        self.agent: FakeAgent = self.run._agent


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, int], Stage]:
    def opened(_: Any, __: Any, terms: Any, *___: Any) -> Any:
        jobs = [str(number) for number in range(terms.trials)]
        return SimpleNamespace(
            node_server=FakeNodeServer(), agent=FakeAgent(), jobs=jobs, mark=MARK
        )

    cluster = SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(gcs_address="127.0.0.1:1"),
        cluster_resources=lambda: {f"{MARK}{job}": 1.0 for job in range(99)},
    )
    monkeypatch.setattr(script_run, "open_script", opened)
    monkeypatch.setattr(script_run, "ray", cluster)
    monkeypatch.setattr("themis.integrations.ray_tune.scheduler.ServiceAddress.of", lambda *_: None)
    monkeypatch.setattr("atexit.register", lambda _: None)
    return Stage


Staged = Callable[[Any, int], Stage]


def test_no_trial_can_start_without_its_own_node(staged: Staged) -> None:
    stage = staged(FIFOScheduler(), 3)
    asked = [trial.placement_group_factory.bundles for trial in stage.tune.trials]
    assert asked == [[{"CPU": 1.0, "GPU": 1.0, f"{MARK}{number}": 0.001}] for number in range(3)]
    assert stage.tune.turn() is None
    assert stage.agent.parked == frozenset(), "all of them want GPUs"


@pytest.mark.parametrize(
    "inside",
    [
        FIFOScheduler,
        lambda: ASHAScheduler(max_t=9, grace_period=9),
        lambda: HyperBandScheduler(max_t=9),
    ],
)
def test_a_trial_leaves_with_its_lease_and_comes_back(
    staged: Staged, inside: Callable[[], Any]
) -> None:
    stage = staged(inside(), 3)
    stage.node_server.come("0", "1")
    stage.tune.turn()
    assert [trial.status for trial in stage.tune.trials] == ["RUNNING", "RUNNING", "PENDING"]
    assert stage.tune.report(0, 1) == stage.tune.report(1, 1) == "CONTINUE"
    stage.node_server.leave("1")
    assert stage.tune.report(0, 2) == "CONTINUE"
    assert stage.tune.report(1, 2) == "PAUSE"
    stage.tune.turn()
    assert stage.node_server.gone == ["1"], "its node may go"
    assert "1" not in stage.agent.parked, "it wants GPUs again"
    del stage.node_server.nodes["1"]
    assert stage.tune.turn() is None
    stage.node_server.come("1")
    assert stage.tune.turn() is stage.tune.trials[1], "though another one is pending"
    assert stage.tune.report(1, 3) == "CONTINUE"
    assert stage.node_server.reports[-1] == ("1", 3.0, {"loss": 1.0})


def test_a_function_leaves_where_it_has_saved(staged: Staged) -> None:
    stage = staged(None, 1)
    stage.tune.trials[0].kind = FunctionTrainable
    stage.node_server.come("0")
    stage.tune.turn()
    stage.node_server.leave("0")
    assert stage.tune.report(0, 1) == "CONTINUE"
    assert stage.tune.report(0, 2, should_checkpoint=True) == "PAUSE"


def test_silent_trial_is_paused_in_time(staged: Staged) -> None:
    stage = staged(None, 1)
    stage.node_server.come("0")
    stage.tune.turn()
    stage.node_server.leave("0", since=0.0, grace=1.0)
    stage.tune.turn()
    assert stage.tune.trials[0].status == "PAUSED"
    assert stage.node_server.gone == ["0"]


def test_a_trial_whose_node_was_killed_is_no_failure(staged: Staged) -> None:
    stage = staged(None, 1)
    (trial,) = stage.tune.trials
    stage.node_server.come("0")
    stage.tune.turn()
    stage.tune.report(0, 1)
    del stage.node_server.nodes["0"]
    stage.tune.turn()
    assert trial.status == "PAUSED"
    assert trial.max_failures == 1, "should Tune see it all the same"
    stage.node_server.come("0")
    assert stage.tune.turn() is trial
    stage.tune.report(0, 2)
    assert trial.max_failures == 0, "a failure of its own counts"


def test_trial_starting_when_its_node_was_killed_is_no_failure(staged: Staged) -> None:
    stage = staged(None, 1)
    (trial,) = stage.tune.trials
    stage.node_server.come("0")
    stage.scheduler.choose_trial_to_run(stage.tune)
    assert trial.max_failures == 0
    del stage.node_server.nodes["0"]
    stage.scheduler.choose_trial_to_run(stage.tune)
    assert trial.max_failures == 1


def test_interrupted_save_does_not_end_the_trial_later(staged: Staged) -> None:
    stage = staged(None, 1)
    (trial,) = stage.tune.trials
    stage.node_server.come("0")
    stage.tune.turn()
    stage.tune.report(0, 1)
    trial.temporary_state.saving_to = object()
    stage.node_server.leave("0", since=0.0, grace=1.0)
    stage.tune.turn()
    assert trial.status == "RUNNING", "it is waited for"
    del stage.node_server.nodes["0"]
    stage.tune.turn()
    assert trial.status == "PAUSED"
    assert not trial.is_saving


def test_retried_trial_stays_in_its_bracket(staged: Staged) -> None:
    inside = HyperBandScheduler(max_t=9)
    stage = staged(inside, 3)
    trial = stage.tune.trials[0]
    stage.node_server.come("0", "1", "2")
    stage.tune.turn()
    before = inside._trial_info[trial]
    stage.run._expect_loss(trial, stage.run._entry(trial))
    trial.status = "ERROR"  # as Tune has it between a failure and the next try
    stage.scheduler.on_trial_error(stage.tune, trial)
    trial.status = "PENDING"
    stage.scheduler.on_trial_add(stage.tune, trial)
    assert inside._trial_info[trial] is before
    assert trial in before[0].current_trials()
    assert trial.max_failures == 1, "that one does not count"


def test_halving_parks_waiting_trials_and_resumes_promoted_ones(staged: Staged) -> None:
    # Three in the first bracket, five in the second, which is halved after three iterations.
    stage = staged(HyperBandScheduler(max_t=9, reduction_factor=3), 8)
    stage.node_server.come(*map(str, range(8)))
    stage.tune.turn()
    for number in (3, 4, 5, 6):
        assert stage.tune.report(number, 3, loss=float(number)) == "PAUSE"
    stage.tune.turn()
    assert stage.agent.parked == {"3", "4", "5", "6"}
    stage.node_server.leave("3")
    stage.tune.turn()
    assert stage.node_server.gone == ["3"]
    del stage.node_server.nodes["3"]
    # The last one of the rung: the best two go on, it is not among them.
    assert stage.tune.report(7, 3, loss=7.0) == "STOP"
    assert {job: end[1] for job, end in stage.agent.ends.items()} == {
        "5": 5.0,
        "6": 6.0,
        "7": 7.0,
    }
    assert stage.tune.turn() is stage.tune.trials[4], "its node is still there"
    assert stage.agent.parked == {"5", "6", "7"}, "the other one wants its GPUs back"
    stage.node_server.come("3")
    assert stage.tune.turn() is stage.tune.trials[3]


def test_trial_waiting_behind_others_is_requested_too(staged: Staged) -> None:
    stage = staged(HyperBandScheduler(max_t=9, reduction_factor=3), 8)
    stage.node_server.come("3", "4", "5", "6", "7")
    stage.tune.turn()
    for number in (3, 4, 5, 6, 7):
        stage.tune.report(number, 3, loss=float(number))
    for job in ("3", "4"):
        del stage.node_server.nodes[job]
    stage.tune.turn()
    # HyperBand itself names trial 0 for ever, which has no GPUs.
    assert stage.agent.parked == {"5", "6", "7"}


def test_the_end_of_all_trials_is_the_end_of_the_app(staged: Staged) -> None:
    stage = staged(None, 2)
    stage.run._books._free.append("9")  # declared, and never asked for
    stage.node_server.come("0", "1")
    stage.tune.turn()
    stage.tune.report(0, 4, loss=0.5)
    stage.tune.stop_trial(stage.tune.trials[0])
    assert stage.agent.ends == {"0": (4.0, 0.5)}
    stage.tune.turn()
    assert stage.node_server.gone == [], "its end may have more to do there"
    stage.node_server.leave("0")
    stage.tune.turn()
    assert stage.node_server.gone == ["0"]
    assert not stage.node_server.dismissed
    stage.tune.trials[1].status = "RUNNING"
    stage.scheduler.on_trial_error(stage.tune, stage.tune.trials[1])
    assert stage.agent.ends == {"0": (4.0, 0.5), "1": (0.0, None), "9": (0.0, None)}
    assert stage.node_server.dismissed


def test_app_cancelled_elsewhere_ends_the_script(staged: Staged) -> None:
    stage = staged(None, 1)
    stage.agent.over.is_set = lambda: True
    with pytest.raises(TunerError, match="ended by somebody else"):
        stage.tune.turn()


def test_an_agent_that_failed_ends_the_script(staged: Staged) -> None:
    stage = staged(None, 1)
    stage.agent.error = ValueError("denied")
    with pytest.raises(TunerError, match="denied"):
        stage.tune.turn()
    assert stage.agent.cancels == 1, "nothing waits for an agent that cannot be"


def test_the_end_of_the_script_cancels_an_app_whose_agent_failed_since(staged: Staged) -> None:
    stage = staged(None, 1)
    stage.agent.error = ValueError("denied")
    stage.agent.over.is_set = lambda: True
    stage.run._close()
    assert stage.agent.cancels == 1
    assert stage.node_server.closed


def test_a_trial_that_gets_no_node_is_stopped(staged: Staged) -> None:
    stage = staged(None, 2)
    stage.agent.tuner.given_up.add("1")
    stage.tune.turn()
    assert [trial.status for trial in stage.tune.trials] == ["PENDING", "TERMINATED"]


def test_another_trial_may_fail_while_one_is_stopped(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = staged(None, 3)
    given_up, stop = stage.agent.tuner.given_up, stage.tune.stop_trial

    def meanwhile(trial: Trial) -> None:
        given_up.add("2")  # as the agent's thread does
        stop(trial)

    monkeypatch.setattr(stage.tune, "stop_trial", meanwhile)
    given_up.add("1")
    stage.tune.turn()
    stage.tune.turn()
    assert [trial.status for trial in stage.tune.trials] == ["PENDING", "TERMINATED", "TERMINATED"]


@pytest.mark.parametrize("gpus", [0.0, 0.5, 1.5])
def test_trials_have_whole_gpus(staged: Staged, gpus: float) -> None:
    scheduler = ThemisScheduler(server="http://127.0.0.1:1")
    tune = Tune(scheduler, 0)
    with pytest.raises(ConfigError, match="GPUs of a trial"):
        scheduler.on_trial_add(tune, Trial(0, gpus))


def test_all_trials_ask_for_the_same(staged: Staged) -> None:
    stage = staged(None, 2)
    stage.run._books._free.append("9")
    with pytest.raises(ConfigError, match="as of the first trial"):
        stage.scheduler.on_trial_add(stage.tune, Trial(5, 2.0))


def test_more_trials_than_declared_are_refused(staged: Staged) -> None:
    stage = staged(None, 2)
    with pytest.raises(ConfigError, match="2 as declared"):
        stage.scheduler.on_trial_add(stage.tune, Trial(5))


def test_without_a_service_it_is_the_scheduler_inside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    monkeypatch.delenv("THEMIS_SERVER", raising=False)
    monkeypatch.setenv("THEMIS_TOKEN_FILE", str(tmp_path / "none"))
    scheduler = ThemisScheduler(FIFOScheduler())
    tune = Tune(scheduler, 2)
    assert "trials run without it" in caplog.text
    assert tune.trials[0].placement_group_factory.bundles == [{"CPU": 1.0, "GPU": 1.0}]
    assert scheduler.choose_trial_to_run(tune) is tune.trials[0]
    assert scheduler.on_trial_result(tune, tune.trials[0], {}) == "CONTINUE"


def test_stored_tune_wrapper_holds_no_token() -> None:
    given = ThemisScheduler(FIFOScheduler(), server="http://127.0.0.1:1", token="hush", grace=7.0)
    stored = pickle.dumps(given)
    assert b"hush" not in stored
    copy = pickle.loads(stored)
    assert copy._settings.service == ("http://127.0.0.1:1", None, None, None)
    assert (copy._settings.grace, given._settings.service[1]) == (7.0, "hush")
