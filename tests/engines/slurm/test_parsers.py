"""What Slurm prints, of several versions. 22.05 was recorded; 23.11 is in its documented form."""

from pathlib import Path

import pytest

from themis.engines.remote.backoff import themis_name
from themis.engines.slurm.cluster import SlurmSettings, granted
from themis.engines.slurm.hostlists import expand
from themis.engines.slurm.parsers import (
    gpus_in,
    jobs_from,
    nodes_from_json,
    nodes_from_text,
    number_of,
    racks_from,
    steps_from,
)
from themis.errors import UnavailableError

OUTPUTS = Path(__file__).parent / "outputs"


def test_machines_of_22_05() -> None:
    one, other = nodes_from_json((OUTPUTS / "sinfo-22.05.json").read_text())
    assert (one.name, one.gpus, one.used, one.partitions) == ("n0", 4, 3, ("main",))
    assert (one.down, one.closed) == ("", "")
    assert (other.used, other.down) == (0, "")
    assert other.closed == "Slurm lists it as drain: fan broken"


def test_machines_of_23_11_where_states_are_lists_and_numbers_objects() -> None:
    mixed, down, drained, bare = nodes_from_json((OUTPUTS / "nodes-23.11.json").read_text())
    assert (mixed.gpus, mixed.model, mixed.used) == (8, "a100", 3)
    assert (mixed.down, mixed.closed) == ("", "")
    assert down.down == "Slurm lists it as down: Not responding"
    assert (drained.gpus, drained.model) == (8, "")
    assert drained.closed
    assert not drained.down
    assert bare.gpus == 0


def test_machines_where_there_is_no_json() -> None:
    one, other = nodes_from_text((OUTPUTS / "nodes-22.05.txt").read_text())
    assert (one.name, one.gpus, one.partitions, one.closed) == ("n0", 4, ("main",), "")
    assert "fan broken" in other.closed


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": 3}', "slurm_load_node error"])
def test_invalid_machine_list_is_reported_as_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        nodes_from_json(text)


@pytest.mark.parametrize(
    ("text", "count", "model"),
    [
        ("gpu:8", 8, ""),
        ("gpu:a100:8(S:0-1)", 8, "a100"),
        ("gpu:a100:4,gpu:v100:2", 6, ""),
        ("cpu=4,gres/gpu=4,gres/gpu:a100=4", 4, "a100"),
        ("gres:gpu:2", 2, ""),
        ("gpu:a100_1g.5gb:7(S:0)", 7, "a100_1g.5gb"),
        ("gpumem:80,shard:4", 0, ""),
        ("(null)", 0, ""),
        ("", 0, ""),
    ],
)
def test_gpus_in_lists_of_resources(text: str, count: int, model: str) -> None:
    assert gpus_in(text) == (count, model)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (8, 8.0),
        ("8", 8.0),
        ({"set": True, "infinite": False, "number": 8}, 8.0),
        ({"set": False, "number": 8}, -1.0),
        ({"set": True, "infinite": True, "number": 0}, -1.0),
        (True, -1.0),
        (None, -1.0),
    ],
)
def test_numbers(value: object, number: float) -> None:
    assert number_of(value, -1.0) == number


def test_racks_are_leaf_switches() -> None:
    racks = racks_from((OUTPUTS / "topology.txt").read_text())
    assert racks == {"gpu01": "leaf0", "gpu02": "leaf0", "gpu03": "leaf1", "cpu01": "leaf1"}


def test_allocations_and_steps() -> None:
    text = "themis-a-1|7|RUNNING|n0|gres:gpu:2|None\nodd|name|x\nb|8|PENDING||N/A|Resources\n"
    one, other = jobs_from(text)
    assert (one.name, one.number, one.state, one.node, one.gpus) == (
        "themis-a-1", "7", "RUNNING", "n0", 2,
    )  # fmt: skip
    assert (other.state, other.gpus, other.why) == ("PENDING", 0, "Resources")
    assert steps_from("7.0\n8.batch\n9.extern\n10.1\n") == {"7", "10"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n0", ("n0",)),
        ("n[0-2,7],login", ("n0", "n1", "n2", "n7", "login")),
        ("gpu[08-10]", ("gpu08", "gpu09", "gpu10")),
        ("r[0-1]n[0-1]x", ("r0n0x", "r0n1x", "r1n0x", "r1n1x")),
        ("", ()),
        ("(null)", ()),
    ],
)
def test_lists_of_names(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[0-", "n[a-b]", "n[0-9999999]", "n[]"])
def test_invalid_name_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(text)


def test_salloc_gets_the_expected_arguments() -> None:
    assert SlurmSettings().options(2) == ["--gres=gpu:2", "--cpus-per-task=2"]
    given = SlurmSettings(
        partition="gpu", account="ml", qos="high", reservation="ours", memory="32G", cpus=8
    )
    assert given.options(0) == [
        "--partition=gpu", "--account=ml", "--qos=high", "--reservation=ours", "--mem=32G",
        "--cpus-per-task=8",
    ]  # fmt: skip
    assert granted("salloc: Granted job allocation 17\n") == "17"
    with pytest.raises(UnavailableError):
        granted("salloc: Pending job allocation")


def test_names_that_themis_can_have() -> None:
    assert themis_name("GPU_01.lab") == "gpu-01-lab"
