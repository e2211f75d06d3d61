"""What notebooks show: harmless whatever is in it, and the same as text."""

import copy
import json
import pickle
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.support.notebooks import terminal_text
from themis.answers import Answer, Answers
from themis.display import Sheet, Table, shown

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "\x1b[2J\x1b]0;t\x07",
    "a\nb\u2028c\u202ed",
    "\ud800",
    "&lt;b&gt;",
    "x" * 100_000,
]
ALLOWED = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}


class Reading(HTMLParser):
    """Which tags and attributes there are, and which text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(html: str) -> Reading:
    reading = Reading()
    reading.feed(html)
    reading.close()
    assert reading.tags <= ALLOWED, reading.tags
    assert reading.attributes <= {"style"}
    assert html.isprintable()
    return reading


def job(name: str, text: str) -> dict[str, Any]:
    return {
        "job": name, "state": text, "gpus": [0, 1], "iterations": 3.0, "target": 9.0,
        "metric": None, "params": {text: text, "lr": 0.34857899}, "failed": text,
    }  # fmt: skip


def answers(text: str) -> list[Answer]:
    """One of every kind, with a text wherever somebody else chose one."""
    line = {"app": text, "owner": text, "held": 1, "demand": 4, "rho": 1.234567, "reason": text}
    return [
        Answer(apps=[line], gpus={text: 3}, ended=[{"app": text, "outcome": text}]),
        Answer(nodes=[{"node": text, "rack": text, "present": True, "gpus": [{"state": text}]}]),
        Answer(nodes=[], trouble=text),
        Answer(rounds=[{"round": 1, "trigger": text, "apps": [text]}]),
        Answer(**line, jobs=[job(text, text)], state=text),
        Answer(app=text, best={"job": text}, metric={"name": text, "goal": text}, outcome=text,
               jobs=[job("0", text)]),
        Answer(app=text, reason=text, what=text, why=text, then=text),
        Answer({text: text, "list": [text], "deep": {text: {text: text}}}),
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_as_harmless_text(text: str) -> None:
    for answer in answers(text):
        html = answer._repr_html_()
        reading = read(html)
        assert len(html) < 20_000
        for line in terminal_text(answer).split("\n"):
            assert line.isprintable()
        if text.isprintable() and len(text) < 100:
            assert text in " ".join(reading.words)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(),
        Answer(apps=[]),
        Answer(apps=["no mapping", None, 3]),
        Answer(nodes=[{}]),
        Answer(jobs=[{}]),
        Answer(jobs=[], best=None),
        Answer(jobs=[], best="3", metric=None),
        Answer(rounds=[]),
        Answer(apps={"no": "list"}),
        Answer(number=10**5000),
    ],
    ids=range(10),
)
def test_answers_of_any_shape_can_be_shown(answer: Answer) -> None:
    read(answer._repr_html_())
    terminal_text(answer)


def test_an_answer_is_the_dict_that_it_is() -> None:
    data: dict[str, Any] = {"apps": [{"app": "sweep", "rho": 1.5}], "now": 3.0}
    answer = Answer(data)
    assert answer == data
    assert json.loads(json.dumps(answer)) == data
    assert repr(answer) == repr(data)
    assert copy.deepcopy(answer) == pickle.loads(pickle.dumps(answer)) == data
    assert {**answer, "more": 1}["more"] == 1
    lines = Answers(data["apps"])
    assert lines == data["apps"]
    assert "sweep" in lines._repr_html_()
    assert "no app has a rho yet" in Answers()._repr_html_()


def test_without_a_browser_ipython_shows_the_same_as_text() -> None:
    answer = Answer(apps=[{"app": "sweep", "owner": "ann", "rho": 1.5}])
    first, rule, row = terminal_text(answer).split("\n")
    assert first.split() == ["app", "owner", "held", "wanted", "rho", "reason"]
    assert set(rule) == {"─"}
    assert row.split() == ["sweep", "ann", "-", "-", "1.5", "-"]


def test_long_tables_are_cut_and_say_so() -> None:
    sheet = Sheet("", (Table(("n",), tuple((number,) for number in range(1000))),))
    assert sheet.html().count("<tr>") == 201
    assert "and 800 more" in sheet.html()
    assert sheet.text().endswith("and 800 more")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (1.0 / 3, "0.3333"), ([1, None], "1, -"), ({"a": 2.0}, "a=2")],
)
def test_values_are_short(value: object, text: str) -> None:
    assert shown(value) == text
