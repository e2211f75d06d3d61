"""`themis logs`: what jobs print, without what steers a terminal."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from themis.cli.logs import plain_line
from themis.errors import LimitError, UnavailableError

Cli = Callable[..., Any]
Service = Any


class Log:
    """A job's log that grows by a part whenever somebody waits for it."""

    def __init__(self, text: str = "", *later: str) -> None:
        self.text = text
        self.later = list(later)
        self.asked: list[int] = []

    def __call__(self, query: dict[str, str]) -> dict[str, Any]:
        offset, limit = int(query["offset"]), int(query["limit"])
        self.asked.append(offset)
        start = max(0, len(self.text) + offset) if offset < 0 else offset
        if start == len(self.text) and float(query["wait"]) > 0 and self.later:
            self.text += self.later.pop(0)
        text = self.text[start : start + limit]
        over = not self.later and start + len(text) == len(self.text)
        return {"job": "0", "run": 1, "offset": start, "next": start + len(text), "text": text,
                "over": over}  # fmt: skip


def sheet(*states: str, **more: Any) -> dict[str, Any]:
    jobs = [{"job": f"{at}", "state": state} for at, state in enumerate(states)]
    return {"app": "sweep", "owner": "v", "jobs": jobs, **more}


@pytest.fixture(autouse=True)
def service(canned: Service) -> Service:
    canned.answers |= {"GET /v1/apps": {"apps": [], "gpus": {}}}
    return canned


def having(service: Service, app: Any, *texts: Log) -> None:
    service.answers["GET /v1/apps/sweep"] = app
    for at, log in enumerate(texts):
        service.answers[f"GET /v1/apps/sweep/jobs/{at}/log"] = log


def test_the_log_of_an_only_job_needs_no_number(cli: Cli, service: Service) -> None:
    text = "".join(f"line {n}\n" for n in range(20_000))
    having(service, sheet("running"), Log(text))
    assert cli("logs", "sweep").out == text
    assert cli("logs", "sweep/0").out == text
    assert cli("logs", "sweep", "00", "--tail", "2").out == "line 19998\nline 19999\n"
    assert cli("logs", "sweep", "--tail", "0").out == ""


def test_the_last_lines_are_looked_for_as_far_back_as_needed(cli: Cli, service: Service) -> None:
    log = Log("first\n" + "x" * 90_000 + "\nlast\n")
    having(service, sheet("running"), log)
    assert len(cli("logs", "sweep", "--tail", "2").out) == 90_000 + len("\nlast\n")
    assert [offset for offset in log.asked if offset < 0] == [-4096, -4 * 4096, -16 * 4096, -262144]


def test_following_continues_until_the_job_ends(cli: Cli, service: Service) -> None:
    having(service, sheet("running"), Log("a\nb\n", "half ", "line\n", "", "end"))
    done = cli("logs", "sweep", "-f", "--tail", "1")
    assert (done.code, done.out) == (0, "b\nhalf line\nend\n")


def test_following_a_log_as_json(cli: Cli, service: Service) -> None:
    having(service, sheet("running"), Log("\x1b[31ma\n", "b"))
    told = [json.loads(line) for line in cli("logs", "sweep", "-f", "--json").out.splitlines()]
    assert [item["text"] for item in told] == ["\x1b[31ma\n", "b"]


def test_logs_of_several_jobs_have_headings(cli: Cli, service: Service) -> None:
    long = "".join(f"{n}\n" for n in range(99))
    having(service, sheet("running", "finished", "waiting"), Log("a\n"), Log(long), Log())
    out = cli("logs", "sweep").out
    assert out.startswith("==> job 0 <==\na\n\n==> job 1 <==\n89\n")
    assert out.endswith("98\n")


def test_several_jobs_are_followed_until_the_app_ends(cli: Cli, service: Service) -> None:
    first, second = Log("a\n"), Log("")

    def begun(_: Any) -> dict[str, Any]:
        second.text = "c\n"
        return sheet("running", "running")

    def over(_: Any) -> dict[str, Any]:
        first.text = "a\nb\n"
        return {**sheet("finished", "finished"), "outcome": "finished"}

    waiting = sheet("running", "waiting")
    gone = UnavailableError("the service is stopping")
    having(service, [waiting, waiting, begun, gone, gone, gone, over], first, second)
    done = cli("logs", "sweep", "-f")
    assert done.code == 0, done.err
    assert done.out == "==> job 0 <==\na\n\n==> job 1 <==\nc\n\n==> job 0 <==\nb\n"


def test_jobs_that_come_and_go_between_two_looks_are_shown(cli: Cli, service: Service) -> None:
    first, second = Log("a\n"), Log("")

    def over(_: Any) -> dict[str, Any]:
        second.text = "c\n"
        return {"app": "sweep", "owner": "v", "outcome": "finished"}

    waiting = sheet("running", "waiting")
    having(service, [waiting, waiting, over], first, second)
    service.answers["GET /v1/apps/sweep/results"] = sheet("finished", "finished")
    done = cli("logs", "sweep", "-f")
    assert done.code == 0, done.err
    assert done.out == "==> job 0 <==\na\n\n==> job 1 <==\nc\n"


def test_a_service_that_is_asked_too_often_is_asked_again_later(cli: Cli, service: Service) -> None:
    log, calls = Log("a\n"), []

    def busy(query: dict[str, str]) -> Any:
        calls.append(query)
        return LimitError("admin", "too many calls") if len(calls) == 3 else log(query)

    running = sheet("running", "waiting")
    over = {**sheet("finished", "stopped"), "outcome": "finished"}
    having(service, [running, running, over], log, Log(""))
    service.answers["GET /v1/apps/sweep/jobs/0/log"] = busy
    done = cli("logs", "sweep", "-f")
    assert done.code == 0, done.err
    assert done.out == "==> job 0 <==\na\n"
    assert len(calls) > 3


def test_jobs_that_have_not_begun_are_not_asked_for(cli: Cli, service: Service) -> None:
    crashed = {"job": "1", "state": "waiting", "iterations": 0, "failures": 1}
    jobs = [{"job": "0", "state": "waiting", "iterations": 0}, crashed]
    having(service, {"app": "sweep", "owner": "v", "jobs": jobs}, Log("no"), Log("why\n"))
    assert cli("logs", "sweep").out == "==> job 1 <==\nwhy\n"
    having(service, {"app": "sweep", "owner": "v", "jobs": [jobs[0], jobs[0]]}, Log("no"))
    done = cli("logs", "sweep")
    assert (done.code, done.out, "has begun yet" in done.err) == (0, "", True)


def test_a_job_that_is_not_there_is_not_found(cli: Cli, service: Service) -> None:
    having(service, sheet("running", "waiting"), Log("a\n"))
    done = cli("logs", "sweep", "7")
    assert (done.code, "allowed: 0, 1" in done.err) == (3, True)


def test_jobs_of_an_ended_app_come_from_its_results(cli: Cli, service: Service) -> None:
    having(service, {"app": "sweep", "owner": "v", "outcome": "finished"}, Log("a\n"))
    service.answers["GET /v1/apps/sweep/results"] = {"jobs": [{"job": "0"}]}
    assert cli("logs", "sweep").out == "a\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m text", "red text"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jclear\x1bc", "clear"),
        ("\x1bP1$q\x1b\\dcs", "dcs"),
        ("a\tb", "a       b"),
        ("10%\r 50%\r100%", "100%"),
        ("100%\r", "100%"),
        ("bell\x07 nul\x00 \u202eback", "bell\ufffd nul\ufffd \ufffdback"),
        ("\x1b", "\ufffd"),
    ],
)
def test_nothing_in_a_line_steers_the_terminal(line: str, shown: str) -> None:
    assert plain_line(line) == shown
