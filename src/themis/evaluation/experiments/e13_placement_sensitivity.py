"""E13: how much models dislike distance (figure 5 of the paper)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from themis.core.model import CLUSTER, MACHINE, RACK, SLOT
from themis.core.model.zoo import HARDWARE, ZOO, Status, ZooEntry, slowdown_of
from themis.evaluation.experiment import (
    Claim,
    Column,
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    Told,
    Verdict,
    alike,
    told,
)
from themis.evaluation.published_measurements import (
    COUNT,
    GAVEL,
    Measurement,
    read_measurements,
    same_table,
)
from themis.sim.figures.plot_style import COLOURS, MARKERS, Drawing, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = {SLOT: "one slot", MACHINE: "one machine", RACK: "one rack", CLUSTER: "across racks"}

PAPER_VGG16 = 80.4 / 103.6
"""Images per second on 4 P100 in two servers and in one; from memory, unverified."""


def throughput(model: str, level: int, hardware: str = "p100") -> float:
    """Of 4 GPUs at a level, relative to 4 side by side."""
    slowdown = slowdown_of(model, hardware)
    return slowdown.rate(level, COUNT) / slowdown.rate(SLOT, COUNT)


# Claims


def _claims(measured: Sequence[Measurement]) -> list[Claim]:
    vgg, resnet = throughput("VGG16", RACK), throughput("ResNet50", RACK)
    inception = throughput("Inceptionv3", RACK)
    claims = [
        alike(
            "VGG16 wants one machine: throughput in a rack",
            told(PAPER_VGG16, ".2f"), told(vgg, ".2f"),
            _given(abs(vgg - PAPER_VGG16) < 0.01 and throughput("VGG16", MACHINE) > 0.9),
            f"Within one machine it keeps {throughput('VGG16', MACHINE):.0%}. Our value is the "
            "paper's own table, recalled; no independent measurement was found.",
        ),
        alike(
            "ResNet50 is indifferent: throughput in a rack",
            Told("~1", 1.0), told(resnet, ".2f"),
            Verdict.HOLDS if resnet >= 0.95 else Verdict.PARTLY,
            "The paper's figure shows no loss. Our value is a median that others measured on P100, "
            "where it ranges from 0.59 to 1.07 with the batch size; on K80, the GPUs of the "
            f"paper's testbed, it is {throughput('ResNet50', RACK, 'k80'):.2f}.",
        ),
        alike(
            "VGG16 loses more than ResNet50 and Inceptionv3",
            Told("yes"), Told("yes" if vgg < min(resnet, inception) else "no"),
            Verdict.HOLDS if vgg < min(resnet, inception) else Verdict.FAILS,
            f"In a rack {vgg:.2f} against {resnet:.2f} and {inception:.2f}.",
        ),
    ]  # fmt: skip
    return claims + [_agreement(item) for item in measured if _claimed(item)]


def _given(is_so: bool) -> Verdict:
    return Verdict.GIVEN if is_so else Verdict.FAILS


def _claimed(item: Measurement) -> bool:
    """Whether the zoo says that its value is this measurement."""
    return item.source == "Gavel" and item.gpu in HARDWARE


def _agreement(item: Measurement) -> Claim:
    ours = throughput(item.model, RACK, item.gpu)
    measured = item.median
    # A prior never promises that distance makes a job faster.
    is_so = abs(ours - min(1.0, measured)) <= 0.01
    why = "Beside it the median over batch sizes of Gavel's measurements, from which it was taken."
    if measured > 1.0:
        why += f" Measured was {measured:.2f}: faster apart, which a prior does not promise."
    return alike(
        f"{item.model} on {item.gpu.upper()}, in a rack",
        Told("not said"),
        Told(f"{ours:.2f}, measured {measured:.2f}", ours),
        _given(is_so),
        why,
    )


# Tables and figures


def _table() -> NumberTable:
    rows: list[Row] = [
        (
            item.name, item.category, hardware,
            *(throughput(item.name, level, hardware) for level in LEVELS),
            _basis(item, hardware), item.source,
        )
        for hardware in HARDWARE
        for item in ZOO
    ]  # fmt: skip
    columns = (
        Column("model"), Column("category"), Column("GPU"),
        *(Column(name, ".2f") for name in LEVELS.values()), Column("in a rack"), Column("source"),
    )  # fmt: skip
    title = (
        "Throughput of 4 GPUs relative to 4 side by side; within a machine and across racks assumed"
    )
    return NumberTable("throughput", title, columns, tuple(rows))


def _basis(item: ZooEntry, hardware: str) -> str:
    if hardware == "k80" and item.name not in GAVEL:
        return "scaled from P100"
    return str(item.status).replace("_", " ")


def _measured_table(measured: Sequence[Measurement]) -> NumberTable:
    rows: list[Row] = [
        (
            item.model, item.source, item.gpu, len(item.values), min(item.values), item.median,
            max(item.values), throughput(item.model, RACK, _nearest(item.gpu)),
        )
        for item in measured
    ]  # fmt: skip
    columns = (
        Column("model"), Column("measured by"), Column("GPU"), Column("batch sizes"),
        Column("lowest", ".2f"), Column("median", ".2f"), Column("highest", ".2f"),
        Column("ours", ".2f"),
    )  # fmt: skip
    title = "Measured by others: 4 GPUs apart relative to together (ours: P100 where not K80)"
    return NumberTable("measured", title, columns, tuple(rows))


def _nearest(gpu: str) -> str:
    return gpu if gpu in HARDWARE else "p100"


def _figure(measured: Sequence[Measurement]) -> Drawing:
    drawing = Drawing()
    with panels(drawing, 8.6, 4.6, columns=2) as axes:
        for part, hardware in zip(axes, HARDWARE, strict=True):
            for row, item in enumerate(ZOO):
                low = throughput(item.name, CLUSTER, hardware)
                part.plot([low, 1.0], [row, row], color="#D0D0D0", lw=1.0, zorder=1)
            for index, (level, name) in enumerate(LEVELS.items()):
                values = [throughput(item.name, level, hardware) for item in ZOO]
                solid = [
                    level == RACK and item.status is Status.MEASURED
                    and (hardware == "p100" or item.name in GAVEL)
                    for item in ZOO
                ]  # fmt: skip
                part.scatter(
                    values, range(len(ZOO)), marker=MARKERS[index], s=34, label=name, zorder=3,
                    edgecolors=COLOURS[index],
                    facecolors=[COLOURS[index] if full else "white" for full in solid],
                )  # fmt: skip
            here = [item for item in measured if item.gpu == hardware]
            _ranges(part, here, "black", "measured: range\nand median")
            if hardware == "p100":
                others = [item for item in measured if item.source == "Pollux"]
                others = [item for item in others if item.model not in GAVEL]
                _ranges(part, others, "#8F8F8F", "measured on T4")
            part.set_yticks(range(len(ZOO)), [item.name for item in ZOO])
            part.set_ylim(len(ZOO) - 0.4, -0.6)
            part.set_xlim(0.3, 1.28 if measured else 1.05)
            part.axvline(1.0, color="#8F8F8F", lw=0.8, zorder=0)
            part.set_xlabel("throughput relative to 4 GPUs side by side")
            part.set_title(hardware.upper())
        axes[1].set_yticklabels([])
        marks, names = axes[0].get_legend_handles_labels()
        axes[1].legend(marks, names, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


def _ranges(axes: "Axes", measured: Sequence[Measurement], colour: str, label: str) -> None:
    rows = {item.name: row for row, item in enumerate(ZOO)}
    for item in measured:
        row = rows[item.model] + 0.28
        axes.plot([min(item.values), max(item.values)], [row, row], color=colour, lw=1.4)
        axes.plot([item.median], [row], color=colour, marker="|", markersize=8)
    if measured:
        axes.plot([], [], color=colour, lw=1.4, marker="|", label=label)


def study(results: Results) -> Findings:
    """Read the zoo, and beside it what others measured."""
    data = results.scope.data
    measured = [] if data is None else read_measurements(data)
    known = sum(item.status is Status.MEASURED for item in ZOO)
    notes = [
        f"{known} of {len(ZOO)} models rest on a measurement, within a rack (filled marks).",
        "Values within a machine and across racks are always assumed (hollow marks).",
    ]
    if not measured:
        notes.append("THEMIS_DATA names no folder with measurements, so none are beside.")
    same = None if data is None else same_table(data)
    if same is not None:
        notes.append(f"{same} of {len(ZOO)} models are as in themis_models.csv, their source.")
    tables = (_table(), _measured_table(measured)) if measured else (_table(),)
    caption = (
        "Throughput of 4 GPUs by where they are. Filled marks rest on a measurement, hollow ones "
        "are assumed, recalled or scaled; bars show what others measured."
    )
    return Findings(
        claims=tuple(_claims(measured)),
        tables=tables,
        figures=(Figure("throughput", caption, lambda: _figure(measured)),),
        notes=tuple(notes),
    )


EXPERIMENT = Experiment(
    "E13",
    "Throughput against placement",
    "VGG16 trains well only within one machine, ResNet50 is indifferent to where its GPUs are.",
    study,
    reads_data=True,
)
