"""Apps by a beginning of their name, and names that shells complete."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from themis.errors import DeniedError, UnavailableError

Cli = Callable[..., Any]
Service = Any

NAMES = ["resnet-a", "resnet-b", "vgg", "(another owner's)", "\x1b[2Jevil; rm"]
OVER = {"app": "vgg-1", "owner": "v", "outcome": "finished", "submitted": 0.0, "ended": 1.0}
SHEET = {"app": "vgg", "owner": "v", "reason": "SERVED", "submitted": 1.0, "demand": 1, "held": 1,
         "weight": 1.0, "phase": 0, "phases": 1, "work_left_seconds": 1.0, "suspended": [],
         "leases": [], "runs": [], "jobs": [{"job": "00"}, {"job": "01"}, {"job": "$(x)"}],
         }  # fmt: skip


@pytest.fixture(autouse=True)
def service(canned: Service) -> Service:
    canned.answers |= {
        "GET /v1/apps": {"apps": [{"app": name} for name in NAMES], "gpus": {}},
        "GET /v1/apps/vgg": SHEET,
        "POST /v1/apps/vgg/cancel": {"done": True},
        "GET /v1/apps/vgg-1": OVER,
    }
    return canned


def test_a_beginning_that_fits_one_app_is_enough(cli: Cli) -> None:
    assert json.loads(cli("status", "vg", "--json").out)["app"] == "vgg"
    assert cli("cancel", "v").out == "vgg is cancelled\n"


def test_a_beginning_that_fits_several_names_them(cli: Cli, service: Service) -> None:
    done = cli("cancel", "res")
    assert done.code == 2
    assert "2 apps begin like this (resnet-a, resnet-b)" in done.err
    assert not [route for route, _, _ in service.asked if route == "POST /v1/apps/resnet-a/cancel"]


def test_nothing_that_begins_so_is_not_found(cli: Cli) -> None:
    done = cli("pause", "nothing")
    assert (done.code, "nothing: no such thing" in done.err) == (3, True), done.err
    assert cli("logs", "(another").code == 3


def test_ended_app_name_affects_no_other_app(cli: Cli, service: Service) -> None:
    service.answers["GET /v1/apps"] = {"apps": [{"app": "vgg-1-2"}], "gpus": {}}
    service.answers["POST /v1/apps/vgg-1-2/cancel"] = {"done": True}
    assert cli("cancel", "vgg-1").code == 3
    assert service.bodies("POST /v1/apps/vgg-1-2/cancel") == []


@pytest.fixture
def sealed(service: Service) -> Service:
    """A service as a tenant sees it: an app that is not there looks like somebody else's."""
    denied = DeniedError("tenant ann", "`status` is allowed to tenant for what is its own only")
    for app in ("vg", "other", "res"):
        service.answers[f"GET /v1/apps/{app}"] = denied
        service.answers[f"POST /v1/apps/{app}/cancel"] = denied
    service.answers["GET /v1/whoami"] = {"role": "tenant", "subject": "ann"}
    return service


def test_a_beginning_is_enough_for_tenants_too(cli: Cli, sealed: Service) -> None:
    assert json.loads(cli("status", "vg", "--json").out)["app"] == "vgg"
    assert cli("cancel", "vg").out == "vgg is cancelled\n"
    assert cli("cancel", "res").code == 2


def test_tenant_sees_that_no_own_app_has_this_name(cli: Cli, sealed: Service) -> None:
    done = cli("status", "other")
    assert done.code == 3
    assert "you have no app of this name" in done.err


def test_forbidden_operation_of_a_role_is_denied(cli: Cli, sealed: Service) -> None:
    sealed.answers["GET /v1/whoami"] = {"role": "viewer", "subject": "eve"}
    assert cli("cancel", "other").code == 5
    sealed.answers["POST /v1/apps/vgg/cancel"] = DeniedError("viewer eve", "not to viewers")
    assert cli("cancel", "vgg").code == 5


def completions(words: str, **environment: str) -> list[str]:
    """What a shell is told to offer."""
    shell = {"_THEMIS_COMPLETE": "complete_bash", "COMP_WORDS": words,
             "COMP_CWORD": str(len(words.split(" ")) - 1)}  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-m", "themis"],
        env={**os.environ, **shell, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    return run.stdout.split()


def test_shells_complete_names_of_apps_and_jobs(service: Service) -> None:
    assert completions("themis status res") == ["resnet-a", "resnet-b"]
    assert completions("themis logs vgg 0") == ["00", "01"]


def test_completion_is_silent_without_a_service(service: Service) -> None:
    service.answers["GET /v1/apps"] = UnavailableError("not now")
    assert completions("themis status ") == []
    assert completions("themis status ", THEMIS_TOKEN_FILE="/nowhere") == []
