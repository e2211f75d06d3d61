from dataclasses import fields

from themis.apps import AppFile, app_schema
from themis.apps.app_file import CheckpointRules, Gpus, MetricSpec, Search, StopConditions


def test_the_schema_has_every_key_of_the_file_and_no_other() -> None:
    properties = app_schema()["properties"]
    assert set(properties) == {each.name for each in fields(AppFile)}
    for name, kind in {
        "search": Search,
        "stop": StopConditions,
        "metric": MetricSpec,
        "gpus": Gpus,
        "checkpoint": CheckpointRules,
    }.items():
        assert set(properties[name]["properties"]) == {each.name for each in fields(kind)}


def test_every_key_says_what_it_means() -> None:
    assert all(each["description"] for each in app_schema()["properties"].values())
