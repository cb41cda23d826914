"""Files of any format: JSON, checked on the way in; one error class for anything malformed, which says the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from graphdnn.errors import GraphdnnError, MalformedFile
from graphdnn.rules import Rule

VERSION = 1  # of the formats of graphs, plans and devices
LARGEST_FILE = 16 * 2**20  # bytes
DEEPEST = 32  # levels of brackets

UNREADABLE = Rule(
    id="file.unreadable",
    expected="JSON text",
    reason="the file is cut off or is not JSON: {detail}",
    fix="write it again with what made it, or check that this is the right file; pass its text, not its path",
)
TEXT = Rule(
    id="file.text",
    expected="the text of the file",
    reason="this function takes the text of a file, not its path",
    fix="pass {how}",
)
TOO_LARGE = Rule(
    id="file.too_large",
    expected="at most {limit} bytes",
    reason="a file of a graph or a plan is smaller",
    fix="check that this is the right file",
)
TOO_DEEP = Rule(
    id="file.too_deep",
    expected="at most {limit} levels",
    reason="the format is flat",
    fix="check that this is the right file",
)
FORMAT = Rule(
    id="file.format",
    expected="{expected}",
    reason="the file says that it is something else",
    fix="pass a file of that format",
)
NEWER = Rule(
    id="file.version",
    expected="version {version}",
    reason="in another version of the format the fields have another meaning",
    fix="write the file again with this version of graphdnn",
)
ALTERED = Rule(
    id="file.hash",
    expected="content that gives the hash it carries",
    reason="the file was altered after it was written",
    fix="build the plan again from the graph and store it anew",
)
CONTENT = Rule(
    id="file.content",
    expected="{expected}",
    reason="the file does not describe what it says it does: {detail}",
    fix="correct the entry, or write the file again",
)


T = TypeVar("T")


def digest_of(content: Mapping[str, Any]) -> str:
    """The hash that a file of this content carries."""
    import hashlib

    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def malformed(rule: Rule, attribute: str, value: object, **words: Any) -> MalformedFile:
    """The error for one entry of a file."""
    return MalformedFile(rule.reject("FILE", attribute, value, **words))


def guarded(read: Callable[[], T]) -> T:
    """Run a reader of any format; whatever it trips over becomes one ``MalformedFile``."""
    try:
        return read()
    except MalformedFile:
        raise
    except GraphdnnError as error:
        refused = MalformedFile(error.rejections)
        refused.subject = error.subject
        raise refused from error
    except _TRIPPED as error:
        raise _tripped("content", error) from error


_TRIPPED = KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError


@contextmanager
def placed(place: str) -> Iterator[None]:
    """What a reader trips over inside is said with its place in the file: ``operations[2]``."""
    try:
        yield
    except MalformedFile as error:
        raise MalformedFile([replace(r, attribute=f"{place}.{r.attribute}") for r in error.rejections]) from error
    except GraphdnnError:
        raise
    except _TRIPPED as error:
        raise _tripped(place, error) from error


def _tripped(place: str, error: Exception) -> MalformedFile:
    if isinstance(error, KeyError):
        return malformed(CONTENT, place, "incomplete", expected=f"an entry {error}", detail="it is missing")
    detail = f"an entry is of another kind: {error}"
    return malformed(CONTENT, place, "malformed", expected="the documented entries", detail=detail)


def parse_json(text: str | bytes) -> Any:
    """JSON of any kind. Raises ``MalformedFile`` for what is too large, too deep, or no JSON."""
    if not isinstance(text, (str, bytes)):
        how = "its read_text()" if isinstance(text, Path) else "what the library wrote as text"
        raise malformed(TEXT, "text", type(text).__name__, how=how)
    if len(text) > LARGEST_FILE:
        raise malformed(TOO_LARGE, "size", f"{len(text)} bytes", limit=LARGEST_FILE)
    if _depth(text) > DEEPEST:
        raise malformed(TOO_DEEP, "nesting", _depth(text), limit=DEEPEST)
    try:
        # Other encodings than UTF-8 would make Python import what decodes them.
        written = text if isinstance(text, str) else text.decode("utf-8")
        data = json.loads(written, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise malformed(UNREADABLE, "text", "unreadable", detail=str(error)) from None
    return data


def parse_document(text: str | bytes, expected: str, *, sealed: bool = False) -> dict[str, Any]:
    """The entries of a file of one format. ``sealed``: it has to carry the hash of its content.

    Raises ``MalformedFile`` for what is too large, too deep, no JSON, of another format or version, or altered.
    """
    data = parse_json(text)
    if not isinstance(data, dict) or data.get("format") != expected:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise malformed(FORMAT, "format", found, expected=expected)
    if data.get("version") != VERSION:
        raise malformed(NEWER, "version", data.get("version"), version=VERSION)
    digest = data.pop("sha256", None)
    if (digest is not None or sealed) and digest != digest_of(data):
        raise malformed(ALTERED, "sha256", digest)
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _depth(text: str | bytes) -> int:
    """Deepest nesting of brackets, strings not told apart: an upper bound that needs no parser."""
    opening, closing = ("[{", "]}") if isinstance(text, str) else (b"[{", b"]}")
    depth = deepest = 0
    for char in text:
        if char in opening:
            depth += 1
            deepest = max(deepest, depth)
        elif char in closing:
            depth -= 1
    return deepest
