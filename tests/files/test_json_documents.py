"""Files of any format: how large and how deep they may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphdnn.errors import MalformedFile
from graphdnn.files import json_documents
from graphdnn.files.json_documents import DEEPEST, parse_json

FORMS: dict[str, Callable[[str], str | bytes]] = {"text": str, "bytes": str.encode}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def nested(levels: int) -> str:
    """Lists and objects in turns."""
    text = "0"
    for level in range(levels):
        text = f'{{"a": {text}}}' if level % 2 else f"[{text}, 1]"
    return text


@forms
def test_as_deep_as_allowed(form: Callable[[str], str | bytes]) -> None:
    assert isinstance(parse_json(form(nested(DEEPEST))), dict)
    assert len(parse_json(form("[" + ", ".join(["[[]]"] * DEEPEST) + "]"))) == DEEPEST  # levels, not brackets
    with pytest.raises(MalformedFile, match=rf"nesting = {DEEPEST + 1}, expected at most {DEEPEST} levels"):
        parse_json(form(nested(DEEPEST + 1)))


@forms
def test_as_large_as_allowed(form: Callable[[str], str | bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "LARGEST_FILE", 8)
    assert parse_json(form("[1, 200]")) == [1, 200]
    with pytest.raises(MalformedFile, match="size = 9 bytes, expected at most 8 bytes"):
        parse_json(form("[1, 2000]"))
