"""Answers of the service: plain data that notebooks show as tables.

    client.apps()["apps"]       # a dict like any other: the same keys, the same JSON
    client.apps()               # in a notebook: a table

The keys of an answer decide which table it becomes; an answer that is not recognised, perhaps of a
newer service, becomes a table of names and values.
"""

from collections.abc import Mapping
from typing import Any

from themis.display import Displayed, Sheet, Table

_Row = Mapping[str, Any]


class Answer(Displayed, dict[str, Any]):
    """An answer, which is a dict."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        if isinstance(self.get("apps"), list):
            return _apps(self)
        if isinstance(self.get("nodes"), list):
            return _nodes(self)
        if isinstance(self.get("rounds"), list):
            return _rounds(self)
        if isinstance(self.get("jobs"), list):
            return _results(self) if "best" in self else _status(self)
        if {"reason", "what", "why", "then"} <= self.keys():
            return _explained(self)
        return _plain(self)


class Answers(Displayed, list[dict[str, Any]]):
    """A list of rows about apps, which is a list."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        title = "" if self else "no app has a rho yet"
        return Sheet(title, (_app_table(list(self)),) if self else ())


def _lines(found: Any) -> list[_Row]:
    """The items of a list that are mappings."""
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _app_table(apps: list[_Row], title: str = "") -> Table:
    columns = ("app", "owner", "held", "wanted", "rho", "reason")
    keys = ("app", "owner", "held", "demand", "rho", "reason")
    return Table(columns, tuple(tuple(item.get(key) for key in keys) for item in apps), title)


def _apps(answer: _Row) -> Sheet:
    apps, ended = _lines(answer["apps"]), _lines(answer.get("ended"))
    tables = [_app_table(apps)] if apps else []
    if ended:
        keys = ("app", "owner", "outcome", "rho")
        rows = tuple(tuple(item.get(key) for key in keys) for item in ended)
        tables.append(Table(keys, rows, "ended"))
    gpus = answer.get("gpus")
    notes = (f"GPUs: {_counted(gpus)}",) if isinstance(gpus, Mapping) else ()
    return Sheet("" if tables else "there is no app", tuple(tables), notes)


def _counted(gpus: _Row) -> str:
    return ", ".join(f"{count} {state}" for state, count in gpus.items())


def _nodes(answer: _Row) -> Sheet:
    rows = []
    for item in _lines(answer["nodes"]):
        states: dict[str, int] = {}
        for gpu in _lines(item.get("gpus")):
            state = str(gpu.get("state"))
            states[state] = states.get(state, 0) + 1
        rows.append((item.get("node"), item.get("rack"), _state(item), _counted(states)))
    table = Table(("node", "rack", "state", "GPUs"), tuple(rows))
    trouble = answer.get("trouble")
    notes = (f"engine: {trouble}",) if trouble else ()
    return Sheet("", (table,), notes) if rows else Sheet("there is no machine", (), notes)


def _state(node: _Row) -> str:
    if not node.get("present"):
        return "silent"
    return "drained" if node.get("draining") else "cordoned" if node.get("cordoned") else "used"


def _rounds(answer: _Row) -> Sheet:
    rows = _lines(answer["rounds"])
    keys = [key for key, value in (rows[0] if rows else {}).items() if _is_short(value)]
    table = Table(tuple(keys), tuple(tuple(item.get(key) for key in keys) for item in rows))
    return Sheet("", (table,)) if rows else Sheet("there was no round yet")


def _status(answer: _Row) -> Sheet:
    name = f"{answer.get('app')} of {answer.get('owner')}"
    title = f"{name}: {answer.get('outcome') or answer.get('state')}, {answer.get('reason')}"
    keys = ("job", "state", "gpus", "iterations", "target", "metric", "params")
    table = Table(
        keys, tuple(tuple(item.get(key) for key in keys) for item in _lines(answer["jobs"]))
    )
    held = f"{answer.get('held')} GPUs of {answer.get('demand')} wanted"
    rho = answer.get("rho")
    fairness = f", rho {rho:.2f}" if isinstance(rho, float) else ""
    return Sheet(title, (table,), (f"{held}{fairness}",))


def _results(answer: _Row) -> Sheet:
    metric = answer.get("metric")
    name = str(metric.get("name")) if isinstance(metric, Mapping) else "metric"
    goal = str(metric.get("goal")) if isinstance(metric, Mapping) else ""
    keys = ("job", "state", "iterations", "metric", "params")
    rows = tuple(tuple(item.get(key) for key in keys) for item in _lines(answer["jobs"]))
    columns = ("job", "state", "iterations", name, "parameters")
    best = answer["best"]
    notes = (f"best: job {best.get('job')}",) if isinstance(best, Mapping) else ()
    if isinstance(best, str):
        notes = (f"best: job {best}",)
    title = f"{answer.get('app')}: {answer.get('outcome') or 'still active'}; {goal} {name}"
    return Sheet(title, (Table(columns, rows),), notes)


def _explained(answer: _Row) -> Sheet:
    title = f"{answer['reason']}: {answer['what']}"
    return Sheet(title, (), (f"why: {answer['why']}", f"then: {answer['then']}"))


def _plain(answer: _Row) -> Sheet:
    """A table of names and values."""
    rows = tuple(
        (key, value if _is_short(value) else _counted_entries(value))
        for key, value in answer.items()
    )
    return Sheet("", (Table(("", ""), rows),))


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _counted_entries(value: object) -> str:
    count = len(value) if isinstance(value, list | Mapping) else 0
    return f"{count} entries"
