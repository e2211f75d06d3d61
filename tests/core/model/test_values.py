"""Values that are quick to make are values all the same."""

from dataclasses import FrozenInstanceError, dataclass, fields

import pytest

from themis.core.model import AppId, GpuId, Lease, LeaseSource
from themis.core.model.values import value


@value
class Quick:
    at: float
    name: str = "a"


@dataclass(frozen=True, slots=True)
class Frozen:
    at: float
    name: str = "a"


def test_a_quick_value_equals_and_hashes_as_a_frozen_one() -> None:
    assert Quick(1.0) == Quick(1.0, "a") != Quick(2.0)
    assert hash(Quick(1.0)) == hash(Frozen(1.0))
    assert repr(Quick(1.0)) == "Quick(at=1.0, name='a')"
    assert not hasattr(Quick(1.0), "__dict__")


def test_values_are_immutable_for_type_checkers_only() -> None:
    with pytest.raises(FrozenInstanceError):
        Frozen(1.0).at = 2.0  # type: ignore[misc]  # refused by both
    changed = Quick(1.0)
    changed.at = 2.0  # type: ignore[misc]  # refused by the type checker alone
    assert changed == Quick(2.0)


def test_leases_are_such_values() -> None:
    assert {"gpu", "app", "token", "end"} <= {field.name for field in fields(Lease)}
    lease = Lease(GpuId(0), AppId("a"), 1, 0.0, 600.0, LeaseSource.AUCTION)
    assert {lease: 1}[Lease(GpuId(0), AppId("a"), 1, 0.0, 600.0, LeaseSource.AUCTION)] == 1
