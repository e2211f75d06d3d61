"""Bodies of requests: what each may hold, and how one is read and checked."""

from dataclasses import dataclass
from typing import Annotated, Any

from starlette.requests import ClientDisconnect, Request

from themis.apps.whatif_cases import CaseChanges
from themis.core.model.ids import LEAST_WEIGHT, MOST_WEIGHT, check_number
from themis.errors import RefusedError, written
from themis.recording.codec import loads
from themis.recording.forecast_questions import LONGEST, MOST_SEEDS, SEEDS
from themis.recording.validation import (
    FLAG,
    KNOWN_KEYS,
    SHORT_TEXT,
    Checked,
    Validator,
    count,
    number,
)
from themis.security.tokens import Role

_SEED = count(0, 2**63 - 1)
_DAYS = Checked(
    lambda value: check_number("days", value, above=True),
    {"type": "number", "exclusiveMinimum": 0},
)
_SECONDS = Checked(
    lambda value: check_number("seconds", value, above=True, high=LONGEST),
    {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
)


@dataclass(frozen=True, slots=True)
class Submission:
    """An app to submit: a file under `app`, or a spec under `spec`."""

    __pydantic_config__ = KNOWN_KEYS

    key: Annotated[str, SHORT_TEXT]
    app: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    owner: Annotated[str, SHORT_TEXT] = ""
    seed: Annotated[int, _SEED] | None = None
    dry_run: Annotated[bool, FLAG] = False


@dataclass(frozen=True, slots=True)
class QuotaBody:
    """The most GPUs that an owner may hold; null for no limit."""

    __pydantic_config__ = KNOWN_KEYS

    gpus: Annotated[int, count(0, 10**9)] | None


@dataclass(frozen=True, slots=True)
class Weight:
    """The share of an owner."""

    __pydantic_config__ = KNOWN_KEYS

    weight: Annotated[float, number(LEAST_WEIGHT, MOST_WEIGHT)]


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to create; null days for one that does not expire."""

    __pydantic_config__ = KNOWN_KEYS

    role: Role
    subject: Annotated[str, SHORT_TEXT]
    days: Annotated[float, _DAYS] | None = None
    note: Annotated[str, SHORT_TEXT] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastRequest(CaseChanges):
    """An app to forecast, and what to change about it."""

    app: dict[str, Any]
    owner: Annotated[str, SHORT_TEXT] = ""
    seed: Annotated[int, _SEED] | None = None
    seeds: Annotated[int, count(1, MOST_SEEDS)] = SEEDS
    seconds: Annotated[float, _SECONDS] = LONGEST


SUBMISSION = Validator(Submission, "body")
QUOTA = Validator(QuotaBody, "body")
WEIGHT = Validator(Weight, "body")
NEW_TOKEN = Validator(NewToken, "body")
FORECAST = Validator(ForecastRequest, "body")


async def read_body(request: Request, validator: Validator[Any] | None, most_bytes: int) -> Any:
    """The body of a request, as the dataclass of its validator; None where there is none.

    Raises:
        RefusedError: It is too long, cut off, no JSON object, or wrong; names the key.
    """
    text = b""
    try:
        async for part in request.stream():
            text += part
            if len(text) > most_bytes:
                raise RefusedError("body", f"more than {most_bytes} bytes")
    except ClientDisconnect:
        raise RefusedError("body", "the connection ended before the body did") from None
    try:
        data: Any = loads(text.decode()) if text else {}
    except UnicodeDecodeError:
        raise RefusedError("body", "it is not UTF-8") from None
    if not isinstance(data, dict):
        raise RefusedError("body", "it must be a JSON object")
    if validator is None:
        if data:
            raise RefusedError("body", "this request takes none")
        return None
    found = validator.examine(data)
    if isinstance(found, list):
        mistake = found[0]
        reason = f"got {written(mistake.given)}, allowed: {mistake.allowed}"
        raise RefusedError(mistake.key if mistake.about_key else f"body.{mistake.key}", reason)
    return found
