"""Made-up runs for tests of pages: one with something of everything, and one that is large."""

import random
from collections.abc import Sequence
from pathlib import Path

from themis.core.arbiter.records import AppInRound, RoundRecord
from themis.core.model import AppId, Bid, Chunk, GpuId, LeaseSource, Machine, Row, Topology
from themis.core.model.reasons import Reason
from themis.core.policies.base import Allotment, Certificate, Notes
from themis.dashboard.app_history import AppHistories
from themis.dashboard.finished_run import FinishedRun, RunApps, RunRound
from themis.dashboard.model import DataOrigin, JobRow, PhaseRow
from themis.dashboard.round_view import line_of
from themis.dashboard.timeline_columns import HeldSegment


def small_run(title: str, names: Sequence[str], shift: float = 0.0) -> FinishedRun:
    """A made-up run with everything that a page can show."""
    topology = Topology(tuple(Machine(f"m{n}", f"r{n // 2}", (2, 2)) for n in range(4)), "lab")
    apps, held, histories, index = RunApps(), [], AppHistories(), []
    for place, name in enumerate(names):
        jobs = tuple(
            JobRow(f"j{n}", "finished" if n else "stopped", (), 80.0 + n, 100.0, 0.5 / (n + 1),
                   "out of memory <b>" if n == 0 else "", {"lr": 0.1 / (n + 1), "note": name},
                   tuple((float(i), 2.0 / (i + n + 1)) for i in range(1, 30)), n == 2)
            for n in range(3)
        )  # fmt: skip
        begin = 600.0 * place
        apps.add(
            name, owner=f"owner of {name}", submitted=begin, ended=begin + 7200.0 + shift,
            outcome="finished", rho=0.9 + 0.1 * place + shift / 9000.0, weight=1.0, jobs=jobs,
            phases=(PhaseRow(3, 50, "over", begin), PhaseRow(1, 50, "over", begin + 3600.0)),
        )  # fmt: skip
    for beat in range(12):
        at = 600.0 * beat
        lines = []
        for gpu in range(topology.gpus):
            name = names[(gpu // 2 + beat) % len(names)]
            held.append(
                HeldSegment(gpu, name, at, at + 590.0, "auction" if gpu % 3 else "leftover")
            )
        for place, name in enumerate(names):
            reason = Reason.PARTLY_SERVED if place else Reason.NOT_IN_AUCTION
            rho, granted = 1.0 + 0.1 * place + 0.02 * beat, 4 if place else 0
            line = AppInRound(AppId(name), 4, 8, granted, reason, rho, place + 1, bool(place))
            lines.append(line)
        bids = (Bid(AppId(names[-1]), (Row((Chunk(1, 4), Chunk(1, 4)), 1234.0),)),)
        given = (Allotment(AppId(names[-1]), (GpuId(0), GpuId(1)), LeaseSource.AUCTION),)
        record = RoundRecord(
            beat + 1, at, at + 1.5, "beat", 16, given, (), (), tuple(lines),
            Notes(bids=bids, won={AppId(names[-1]): (GpuId(0), GpuId(1), GpuId(2))},
                  paid={AppId(names[-1]): (GpuId(2),)}, kept_fractions={AppId(names[-1]): 0.7},
                  certificate=Certificate("default", 1.25, 1.5, exact=False)),
            {AppId(names[0]): "it asks for <i>too much</i>"}, "", (GpuId(5),),
        )  # fmt: skip
        histories.note_round(record)
        index.append(RunRound(line_of(record), Path(), beat + 1, 0, record))
    origin = DataOrigin("run", title, "themis", "lab", 600.0, 1)
    return FinishedRun(origin, topology, apps, tuple(held), histories, index, {}, "made up")


def large_run(apps: int = 500, segments: int = 100_000, gpus: int = 256) -> FinishedRun:
    """A run of so many apps and segments, in some months."""
    chance = random.Random("large run")
    machines = tuple(Machine(f"m{n:03}", f"r{n // 8}", (4, 4)) for n in range(gpus // 8))
    known = RunApps()
    end = 600.0 * segments / gpus
    for number in range(apps):
        submitted = end * number / apps
        known.add(
            f"app-{number:04}",
            owner=f"team-{number % 9}",
            submitted=submitted,
            ended=min(end, submitted + end / 10),
            rho=0.8 + 0.5 * chance.random(),
        )
    held = []
    for number in range(segments):
        gpu, beat = number % gpus, number // gpus
        at = 600.0 * beat
        newest = max(1, round(apps * at / end))
        name = f"app-{chance.randrange(max(0, newest - 20), newest):04}"
        held.append(
            HeldSegment(gpu, name, at, at + chance.choice((600.0, 590.0, 300.0)), "auction")
        )
    origin = DataOrigin("run", "large", "themis", "large", 600.0, 1)
    return FinishedRun(origin, Topology(machines, "large"), known, tuple(held), AppHistories(), [])
