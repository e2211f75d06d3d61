"""Every policy of the package, in every variant that could behave differently."""

import pytest

from themis.core.policies import POLICIES, Policy, policy
from themis.testing.policies import PolicyContract


class TestThemis(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("themis")


class TestThemisByGpus(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("themis", payment="gpus", rank="now", f=0.0)


class TestThemisByTime(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("themis", payment="time", f=0.5, fresh_tables=True)


class TestThemisByLotteries(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("themis", payment="lottery-pf", f=0.8)


class TestThemisPaper(PolicyContract):
    work_conserving = False

    @pytest.fixture
    def policy(self) -> Policy:
        return policy("themis-paper")


class TestEqualShare(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("equal-share")


class TestWorstFirst(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("worst-first")


class TestTiresias(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("tiresias")


class TestTiresiasPacked(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("tiresias+pack")


class TestFifo(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("fifo")


class TestMinMaxRho(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("min-max-rho")


class TestGandiva(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("gandiva")


class TestGandivaThatMovesReadily(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("gandiva", margin=0.0)


class TestOptimus(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("optimus")


class TestOptimusPacked(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("optimus+pack")


class TestSlaq(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("slaq")


class TestSlaqPacked(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("slaq+pack")


class TestDrf(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("drf")


class TestStatic(PolicyContract):
    work_conserving = False  # what is free in one part is not for the apps of another

    @pytest.fixture
    def policy(self) -> Policy:
        return policy("static")


class TestStaticInOnePart(PolicyContract):
    @pytest.fixture
    def policy(self) -> Policy:
        return policy("static", parts=1)


def test_every_policy_of_the_package_is_under_contract() -> None:
    suites = [item for item in globals().values() if isinstance(item, type)]
    named = {
        suite.policy.__wrapped__(suite()).name  # type: ignore[attr-defined]  # a fixture's function
        for suite in suites
        if issubclass(suite, PolicyContract) and suite is not PolicyContract
    }
    assert named == set(POLICIES)
