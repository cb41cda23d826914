"""Hostile calls of the v8 face end in a result or by a rule that says what is wrong; a short drawn run, and a long one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_calls_drawn import attack
from hostile import VALUES

from graphdnn import GraphdnnError, backend
from graphdnn.attribute_names import AttributeName as A
from graphdnn.backend import descriptor
from graphdnn.enums import AttributeType as T
from graphdnn.enums import DescriptorType as D


def _run(count: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    endings, found = attack(count, seed)
    assert not found, "\n".join(f"{f.method}: {f.error}" for f in found[:20])
    assert endings["refused"] > count / 2
    assert endings["accepted"] > count / 20


def test_hostile_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(10_000, 0, tmp_path, monkeypatch)


@pytest.mark.long
def test_very_many_hostile_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(1_000_000, 1, tmp_path, monkeypatch)


def test_an_exception_of_a_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack itself: an exception inside a call is an ending by ``call.unexpected``, and is named."""
    monkeypatch.setattr(descriptor, "_index", lambda value: value.__index__())
    assert attack(3000, 0)[1]


@pytest.mark.parametrize("kind", [T.FLOAT, T.DOUBLE])
@pytest.mark.parametrize("value", [10**400, 10**5000], ids=["400 digits", "5000 digits"])
def test_numbers_beyond_every_float(kind: T, value: int) -> None:
    target = backend.cudnnBackendCreateDescriptor(D.POINTWISE)
    with pytest.raises(GraphdnnError) as caught:
        backend.cudnnBackendSetAttribute(target, A.POINTWISE_ELU_ALPHA, kind, 1, [value])
    assert [r.rule for r in caught.value.rejections] == ["attribute.value"]


@pytest.mark.parametrize("value", [np.zeros(2), [1], 5, b"cpu", *(name for name in VALUES if name != "none")])
def test_what_is_no_device(value: Any) -> None:
    given = VALUES[value]() if isinstance(value, str) else value
    with pytest.raises(GraphdnnError) as caught:
        backend.cudnnCreate(given)
    assert "call.unexpected" not in [r.rule for r in caught.value.rejections]


def test_the_text_of_an_error_is_cut_by_a_number() -> None:
    with pytest.raises(GraphdnnError):
        backend.cudnnGetLastErrorString("x")  # type: ignore[arg-type]
