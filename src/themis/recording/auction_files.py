"""One auction as a file: the problem, its origin and the solver's answer.

    auction = read_auction("auction-000017.json")
    solution = solver("highs").solve(auction.problem, auction.budget)
    Path("copy.json").write_text(auction_text(auction))     # the same bytes again

Reading trusts nothing: any file that passes can be given to a solver. The format is described in
docs/reference/auction-files.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from themis import __version__
from themis.core.arbiter import Settings
from themis.core.auction import Problem, Solution
from themis.errors import ConfigError, RefusedError
from themis.recording.auction_checks import check_numbers, check_problem
from themis.recording.codec import decode, dumps, loads
from themis.recording.yaml_documents import FilePosition, read_text

FORMAT = 1
FORMAT_KEY = "themis_auction"

MAX_BYTES = 128 * 2**20
MAX_BUDGET = 10**12

PATTERN = "auction-*.json"
"""Names of the files that a run writes into a folder."""


@dataclass(frozen=True, slots=True)
class AuctionOrigin:
    """The run and the round that an auction comes from."""

    round: int
    at: float
    policy: str
    seed: int = 0
    cluster: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    """Of the policy; the payment rule is one of them."""
    settings: Settings | None = None
    run: Mapping[str, object] = field(default_factory=dict)
    """The parameters of the simulation; empty if the auction comes from a log."""


@dataclass(frozen=True, slots=True)
class AuctionFile:
    """The content of a file. Only the problem is required."""

    problem: Problem
    not_offered: tuple[int, ...] = ()
    """Machines without an offered GPU that rows or constraints name."""
    budget: int | None = None
    """The most work that the solver might do."""
    origin: AuctionOrigin | None = None
    answer: Solution | None = None
    """The solver's answer at that time."""
    failure: str = ""
    """Why there is no answer."""
    version: str = __version__


# The problem comes last: people read the beginning of a file.
_ORDER = ("version", "origin", "budget", "answer", "failure", "not_offered", "problem")


def auction_text(auction: AuctionFile) -> str:
    """The text of a file: one line for each key, the same bytes for an equal auction."""
    parts = {FORMAT_KEY: FORMAT, **{name: getattr(auction, name) for name in _ORDER}}
    lines = (f"{dumps(key)}: {dumps(part)}" for key, part in parts.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def machines_not_offered(problem: Problem) -> tuple[int, ...]:
    """Machines that a problem names without offering any of their GPUs, in order.

    A bid is asked for before apps that starve are served from the same offer, and constraints name
    machines of the whole cluster.
    """
    named = {
        chunk.machine
        for bidder in problem.bidders
        for row in bidder.rows
        for chunk in row.chunks
        if chunk.machine is not None
    }
    for bidder in problem.bidders:
        named |= bidder.machines or frozenset()
    return tuple(sorted(named - {offered.machine for offered in problem.machines}))


# Reading


def auction_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the auctions in a folder, in order of their names.

    Raises:
        ConfigError: A folder without auctions.
    """
    if not path.is_dir():
        return (path,)
    found = tuple(sorted(path.glob(PATTERN)))
    if not found:
        raise ConfigError("file", str(path), f"a folder with auctions in it ({PATTERN})")
    return found


def read_auction(path: Path | str) -> AuctionFile:
    """The auction in a file.

    Raises:
        ConfigError: The file cannot be read, or holds something that cannot be; names the field.
        RefusedError: It is not JSON, or has another shape; names the field.
    """
    return parse_auction(read_text(Path(path), MAX_BYTES), str(path))


def parse_auction(text: str, where: str = "auction") -> AuctionFile:
    """The auction in a text; `where` goes into messages.

    Raises:
        ConfigError: It holds something that cannot be; names the field.
        RefusedError: It is not JSON, or has another shape; names the field.
    """
    place = FilePosition(where)
    try:
        data = loads(text)
        if not isinstance(data, dict):
            raise place.error(data, f"an object with the key {FORMAT_KEY}")
        number = data.pop(FORMAT_KEY, None)
        if type(number) is not int or number != FORMAT:
            raise place.at(FORMAT_KEY).error(number, f"{FORMAT}, the only format so far")
        check_numbers(data.get("problem"), place.at("problem"))
        auction = decode(AuctionFile, data)
    except RefusedError as error:
        found = error.who.removeprefix(AuctionFile.__name__).removeprefix(".")
        raise RefusedError(f"{where}: {found or 'file'}", error.reason) from None
    if auction.budget is not None and not 1 <= auction.budget <= MAX_BUDGET:
        raise place.at("budget").error(auction.budget, f"1 to {MAX_BUDGET}, or null")
    check_problem(auction.problem, auction.not_offered, place)
    return auction
