"""E13: how much models slow down with distance (figure 5 of the paper)."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from themis.core.model import CLUSTER, MACHINE, RACK, SLOT
from themis.core.model.zoo import HARDWARE, ZOO, Status, ZooEntry, slowdown_of
from themis.evaluation.claims import (
    Claim,
    ClaimAnswer,
    Quantity,
    Verdict,
    by_construction,
    check,
    details,
    quantity,
)
from themis.evaluation.experiment import (
    Experiment,
    Figure,
    Findings,
    NumberTable,
    Results,
    Row,
    number_table,
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

Measured = Sequence[Measurement]


def throughput(model: str, level: int, hardware: str = "p100") -> float:
    """Of 4 GPUs at a level, relative to 4 side by side."""
    slowdown = slowdown_of(model, hardware)
    return slowdown.rate(level, COUNT) / slowdown.rate(SLOT, COUNT)


# Claims


def _vgg16(_: Measured) -> ClaimAnswer:
    rack, machine = (throughput("VGG16", level) for level in (RACK, MACHINE))
    return ClaimAnswer(
        quantity(rack, ".2f"),
        by_construction(abs(rack - PAPER_VGG16) < 0.01 and machine > 0.9),
        printed=None,
        details=details(("within one machine", f"{machine:.0%}")),
    )


def _resnet50(_: Measured) -> ClaimAnswer:
    rack = throughput("ResNet50", RACK)
    return ClaimAnswer(
        quantity(rack, ".2f"),
        Verdict.HOLDS if rack >= 0.95 else Verdict.PARTLY,
        printed=None,
        details=details(("on K80", f"{throughput('ResNet50', RACK, 'k80'):.2f}")),
    )


def _order(_: Measured) -> ClaimAnswer:
    vgg, resnet, inception = (
        throughput(model, RACK) for model in ("VGG16", "ResNet50", "Inceptionv3")
    )
    is_so = vgg < min(resnet, inception)
    return ClaimAnswer(
        Quantity("yes" if is_so else "no"),
        Verdict.HOLDS if is_so else Verdict.FAILS,
        printed=None,
        details=details(("in a rack", f"{vgg:.2f} against {resnet:.2f} and {inception:.2f}")),
    )


def _agreement(_: Measured, item: Measurement) -> ClaimAnswer:
    """Our value beside the measurement that it was taken from."""
    ours = throughput(item.model, RACK, item.gpu)
    # A prior never promises that distance makes a job faster.
    is_so = abs(ours - min(1.0, item.median)) <= 0.01
    text = f"{ours:.2f}, measured {item.median:.2f}"
    return ClaimAnswer(Quantity(text, ours), by_construction(is_so), printed=None)


def claims(measured: Measured) -> list[Claim[Measured]]:
    """The paper's three, and one for each value of the zoo that Gavel measured."""
    return [
        Claim("vgg16", "VGG16 wants one machine: throughput in a rack",
              quantity(PAPER_VGG16, ".2f"), _vgg16, "VGG16"),
        Claim("resnet50", "ResNet50 is indifferent: throughput in a rack", Quantity("~1", 1.0),
              _resnet50, "ResNet50"),
        Claim("order", "VGG16 loses more than ResNet50 and Inceptionv3", Quantity("yes"), _order),
        *(
            Claim(f"{item.model}-{item.gpu}", f"{item.model} on {item.gpu.upper()}, in a rack",
                  Quantity("not said"), partial(_agreement, item=item), "Measured values")
            for item in measured
            if item.source == "Gavel" and item.gpu in HARDWARE
        ),
    ]  # fmt: skip


# Tables and figures


def _table() -> NumberTable:
    rows: list[Row] = [
        (
            item.name,
            item.category,
            hardware,
            *(throughput(item.name, level, hardware) for level in LEVELS),
            _basis(item, hardware),
            item.source,
        )
        for hardware in HARDWARE
        for item in ZOO
    ]
    columns = dict.fromkeys(("model", "category", "GPU"), "")
    columns |= dict.fromkeys(LEVELS.values(), ".2f") | {"in a rack": "", "source": ""}
    title = (
        "Throughput of 4 GPUs relative to 4 side by side; within a machine and across racks assumed"
    )
    return number_table("throughput", title, columns, rows)


def _basis(item: ZooEntry, hardware: str) -> str:
    if hardware == "k80" and item.name not in GAVEL:
        return "scaled from P100"
    return str(item.status).replace("_", " ")


def _measured_table(measured: Measured) -> NumberTable:
    rows = [
        (
            item.model,
            item.source,
            item.gpu,
            len(item.values),
            min(item.values),
            item.median,
            max(item.values),
            throughput(item.model, RACK, item.gpu if item.gpu in HARDWARE else "p100"),
        )
        for item in measured
    ]
    columns = dict.fromkeys(("model", "measured by", "GPU", "batch sizes"), "")
    columns |= dict.fromkeys(("lowest", "median", "highest", "ours"), ".2f")
    title = "Measured by others: 4 GPUs apart relative to together (ours: P100 where not K80)"
    return number_table("measured", title, columns, rows)


def _figure(measured: Measured) -> Drawing:
    drawing = Drawing()
    with panels(drawing, 8.6, 4.6, columns=2) as axes:
        for part, hardware in zip(axes, HARDWARE, strict=True):
            _models(part, hardware)
            here = [item for item in measured if item.gpu == hardware]
            _ranges(part, here, "black", "measured: range\nand median")
            if hardware == "p100":
                others = [
                    item for item in measured if item.source == "Pollux" and item.model not in GAVEL
                ]
                _ranges(part, others, "#8F8F8F", "measured on T4")
            part.set_xlim(0.3, 1.28 if measured else 1.05)
            part.set_title(hardware.upper())
        axes[1].set_yticklabels([])
        marks, names = axes[0].get_legend_handles_labels()
        axes[1].legend(marks, names, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


def _models(axes: "Axes", hardware: str) -> None:
    """A row for each model: a mark for each level, filled where it rests on a measurement."""
    for row, item in enumerate(ZOO):
        low = throughput(item.name, CLUSTER, hardware)
        axes.plot([low, 1.0], [row, row], color="#D0D0D0", lw=1.0, zorder=1)
    for index, (level, name) in enumerate(LEVELS.items()):
        filled = [
            level == RACK
            and item.status is Status.MEASURED
            and (hardware == "p100" or item.name in GAVEL)
            for item in ZOO
        ]
        axes.scatter(
            [throughput(item.name, level, hardware) for item in ZOO],
            range(len(ZOO)),
            marker=MARKERS[index],
            s=34,
            label=name,
            zorder=3,
            edgecolors=COLOURS[index],
            facecolors=[COLOURS[index] if full else "white" for full in filled],
        )
    axes.set_yticks(range(len(ZOO)), [item.name for item in ZOO])
    axes.set_ylim(len(ZOO) - 0.4, -0.6)
    axes.axvline(1.0, color="#8F8F8F", lw=0.8, zorder=0)
    axes.set_xlabel("throughput relative to 4 GPUs side by side")


def _ranges(axes: "Axes", measured: Measured, colour: str, label: str) -> None:
    rows = {item.name: row for row, item in enumerate(ZOO)}
    for item in measured:
        row = rows[item.model] + 0.28
        axes.plot([min(item.values), max(item.values)], [row, row], color=colour, lw=1.4)
        axes.plot([item.median], [row], color=colour, marker="|", markersize=8)
    if measured:
        axes.plot([], [], color=colour, lw=1.4, marker="|", label=label)


def study(results: Results) -> Findings:
    """Read the zoo, and what others measured."""
    data = results.scope.data
    measured = [] if data is None else read_measurements(data)
    known = sum(item.status is Status.MEASURED for item in ZOO)
    notes = [f"{known} of {len(ZOO)} models rest on a measurement, within a rack (filled marks)."]
    if not measured:
        notes.append("THEMIS_DATA names no folder with measurements, so none are shown.")
    same = None if data is None else same_table(data)
    if same is not None:
        notes.append(f"{same} of {len(ZOO)} models are as in themis_models.csv, their source.")
    caption = (
        "Throughput of 4 GPUs by where they are. Filled marks rest on a measurement, hollow ones "
        "are assumed, recalled or scaled; bars show what others measured."
    )
    return Findings(
        check(claims(measured), measured),
        (_table(), _measured_table(measured)) if measured else (_table(),),
        (Figure("throughput", caption, partial(_figure, measured)),),
        tuple(notes),
    )


EXPERIMENT = Experiment(
    "E13",
    "Throughput against placement",
    "VGG16 trains well only within one machine, ResNet50 is indifferent to where its GPUs are.",
    study,
    reads_data=True,
    module=__name__,
)
