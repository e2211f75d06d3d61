"""YAML files that people write, read with suspicion and with line numbers.

data, place = read_document(Path("lab.yaml"))
racks = place.at("racks").listed(data["racks"])     # or: lab.yaml:3: racks: got ..., allowed: ...

Only plain data passes: no tags, no aliases (a few lines of those can stand for gigabytes), no key
twice, at most a megabyte, nesting within reason.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from themis.errors import ConfigError, MissingFileError, unknown_name, written

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_DIGITS = 1000

Steps = tuple[str | int, ...]
"""The way to a value: keys of mappings and indices of lists."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Where in a file a value stands, for messages about it."""

    file: str = ""
    lines: Mapping[Steps, int | str] = field(default_factory=dict)
    """The line of each value, or the flag that gives it."""
    steps: Steps = ()
    texts: Mapping[Steps, str] = field(default_factory=dict)
    """Plain words as they stand in the file: YAML makes other numbers of 0x4, 010 and 1:30."""

    def at(self, *steps: str | int) -> "FilePosition":
        """A place below this one."""
        return replace(self, steps=(*self.steps, *steps))

    @property
    def key(self) -> str:
        """The way to the value as people write it: `racks[0].name`."""
        written = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in self.steps)
        return written.removeprefix(".") or "document"

    @property
    def where(self) -> str:
        """File and line, or a flag; a missing key is where its mapping starts."""
        steps = self.steps
        while steps and steps not in self.lines:
            steps = steps[:-1]
        line = self.lines.get(steps)
        if isinstance(line, str):
            return line
        return f"{self.file}:{line}" if line else self.file

    def overridden(self, steps: Steps, flag: str, texts: Mapping[Steps, str]) -> "FilePosition":
        """The same document, in which a flag gives the value at these steps.

        Args:
            steps: The way to the value from the top.
            flag: What errors name instead of file and line.
            texts: Plain words in the value, as the flag has them.
        """

        def others(known: Mapping[Steps, Any]) -> dict[Steps, Any]:
            return {at: item for at, item in known.items() if at[: len(steps)] != steps}

        lines = {**others(self.lines), steps: flag}
        return replace(self, lines=lines, texts={**others(self.texts), **texts})

    def error(self, given: object, allowed: str) -> ConfigError:
        """An error about the value here."""
        return ConfigError(self.key, self.written(given), allowed, self.where)

    def written(self, given: object) -> object:
        """The value as it stands in the file, as far as that is known, for messages."""
        text = self.texts.get(self.steps)
        number = isinstance(given, int) and not isinstance(given, bool)
        if number and text is not None and not re.fullmatch(r"[-+]?(0|[1-9][0-9]*)", text):
            return shown(text)
        return shown(given)

    def number_text(self, given: object) -> object:
        """A number as it stands in the file, any other value as it is."""
        if isinstance(given, int | float) and not isinstance(given, bool):
            return self.texts.get(self.steps, str(given))
        return given

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Give errors raised within this place's key and line."""
        try:
            yield
        except ConfigError as error:
            given = self.written(error.given)
            raise ConfigError(self.key, given, error.allowed, self.where) from None

    def listed(self, value: object) -> list[Any]:
        """The value if it is a list with something in it."""
        if not isinstance(value, list) or not value:
            raise self.error(value, "a list with at least one entry")
        return value

    def mapped(
        self, value: object, allowed: Collection[str], required: Collection[str] = ()
    ) -> dict[str, Any]:
        """The value if it is a mapping with these keys only."""
        if not isinstance(value, dict):
            empty = value is None and not self.steps
            given = "an empty file" if empty else value
            raise self.error(given, f"a mapping of {', '.join(sorted(allowed))}")
        for key in value:
            if key not in allowed:
                name = str(shown(key)) if isinstance(key, str) else told(key)
                raise unknown_name(f"key in {self.key}", name, allowed, self.at(name).where)
        for key in required:
            if key not in value:
                raise self.at(key).error(None, "a value: it has no default")
        return value


def shown(value: object) -> object:
    """The value, or a few words for one that is too long to print."""
    match value:
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"a mapping of {len(value)}"
        case str() if len(value) > 80:
            return value[:80] + "..."
        case int() if abs(value) > 10**18:
            return "an integer of more than 18 digits"
        case _:
            return value


def told(value: object) -> str:
    """A value of a JSON file, for messages."""
    return "null" if value is None else written(shown(value))


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a file.

    Raises:
        ConfigError: It cannot be read, is longer than `limit` bytes, or is not UTF-8.
    """
    try:
        with path.open("rb") as handle:
            # Not the size on disk: a pipe or a device has none.
            raw = handle.read(limit + 1)
    except FileNotFoundError:
        raise MissingFileError("file", str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("file", reason, "a readable file", str(path)) from None
    if len(raw) > limit:
        raise ConfigError("file", "a longer one", f"at most {limit} bytes", str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        given = f"byte {error.start} is not UTF-8"
        raise ConfigError("file", given, "UTF-8 text", str(path)) from None


def read_document(path: Path) -> tuple[Any, FilePosition]:
    """The data of a YAML file, and the place of its top.

    Raises:
        ConfigError: It cannot be read, or is more than plain data.
    """
    return parse_document(read_text(path), str(path))


def parse_document(text: str, file: str) -> tuple[Any, FilePosition]:
    """The data of a YAML text, and the place of its top.

    Raises:
        ConfigError: It is not YAML, or is more than plain data.
    """
    import yaml  # noqa: PLC0415 -- late, so that commands that read no YAML start quickly

    try:
        _refuse_bombs(yaml.parse(text, Loader=yaml.SafeLoader), file)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Steps, int] = {}
            texts: dict[Steps, str] = {}
            if node is not None:
                _note_lines(node, (), file, lines, texts)
            data = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError("file", error.problem or "bad YAML", "plain YAML", where) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: dates that do not exist.
        given = str(error).partition("\n")[0][:80]
        raise ConfigError("file", given, "plain YAML", file) from None
    return data, FilePosition(file, lines, texts=texts)


def _refuse_bombs(events: Iterator[Any], file: str) -> None:
    import yaml  # noqa: PLC0415 -- as above

    depth = 0
    for event in events:
        where = f"{file}:{event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError("file", f"the alias *{shown(event.anchor)}", "no aliases", where)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ConfigError("file", "deeper nesting", f"at most {MAX_DEPTH} levels", where)


def _note_lines(
    node: Any, steps: Steps, file: str, lines: dict[Steps, int], texts: dict[Steps, str]
) -> None:
    lines[steps] = node.start_mark.line + 1
    if node.id == "scalar":
        texts[steps] = node.value
        if node.tag.endswith(":int") and len(node.value) > MAX_DIGITS:
            # Python takes no longer ones, and says so in words of its own.
            given = f"an integer of {len(node.value)} digits"
            where = f"{file}:{lines[steps]}"
            raise ConfigError(
                FilePosition(steps=steps).key, given, f"at most {MAX_DIGITS} digits", where
            )
    if node.id == "sequence":
        for index, item in enumerate(node.value):
            _note_lines(item, (*steps, index), file, lines, texts)
    elif node.id == "mapping":
        for key, value in node.value:
            # Keys that are no scalars are for the constructor to refuse.
            if key.id == "scalar":
                below = (*steps, key.value)
                line = key.start_mark.line + 1
                if below in lines:
                    name = FilePosition(steps=below).key
                    raise ConfigError(name, "a second time", "every key once", f"{file}:{line}")
                _note_lines(value, below, file, lines, texts)
                lines[below] = line
