"""Numeric classes, and what a certificate promises beside what is observed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from graphdnn import fuse
from graphdnn.certificate import NumericClass, numeric_class
from graphdnn.device import device_spec
from graphdnn.enums import NumericalNote
from graphdnn.heuristics import Filters, Ranking
from graphdnn.problem import parse

H200 = device_spec("h200")
CONV = "conv x=f32[2,32,12,12]nhwc w=f32[32,32,3,3]nhwc pad=1 + bias + relu"


def classes(text: str, device: str = "h200") -> dict[str, NumericClass]:
    """By the name of the configuration."""
    notes = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
    fused = fuse(parse(text).build_operation_graph())
    return {config.name: numeric_class(config) for config in Ranking(fused, device_spec(device), filters=notes)}


def test_a_class_is_the_roundings_not_the_engine() -> None:
    found = classes(CONV)
    plain = found["cuda_implicit_gemm"]
    assert [e.operation for e in plain.operations] == ["conv_fprop", "add", "relu_fwd"]
    assert [e.method for e in plain.operations] == ["summed", "rounded", "rounded"]
    host = classes(CONV, "cpu")
    assert set(host.values()) == {plain}, "a plan of the host has the same errors"
    others = {name: c for name, c in found.items() if c != plain}
    assert {"cuda_winograd", "cuda_winograd_4x4", "cuda_mma_gemm_tf32"} <= set(others)
    for name, other in others.items():
        assert plain.can_replace(other), name
        assert not other.can_replace(plain), name
        assert len(plain.differences(other)) == 1
    assert "operands cut to TF32" in str(others["cuda_mma_gemm_tf32"])


def test_integers_are_exact() -> None:
    found = classes("conv x=i8[1,32,8,8]nhwc w=i8[32,32,3,3]nhwc pad=1")
    assert all(c.is_exact for c in found.values())
    assert len(set(found.values())) == 1
    assert not classes(CONV)["cuda_implicit_gemm"].is_exact


def test_types_are_part_of_it() -> None:
    half, single = (classes(f"pointwise x={kind}[4,8,2,2] + relu", "cpu")["numpy"] for kind in ("f16", "f32"))
    assert half != single
    assert not half.can_replace(single)
    assert not half.can_replace(NumericClass(half.operations * 2))


def test_classes_as_json() -> None:
    for found in classes(CONV).values():
        assert NumericClass.from_json(json.loads(json.dumps(found.to_json()))) == found
    entry = found.to_json()[0]
    wrong = [
        {}, [[]], [{**entry, "more": 1}], [{**entry, "growth": True}], [{**entry, "growth": -1.0}],
        [{**entry, "operands": "FLOAT"}], [{**entry, "method": 3}], [{**entry, "is_stable": 1}],
    ]  # fmt: skip
    for data in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            NumericClass.from_json(data)


def test_unstable_sums_are_another_class() -> None:
    stable = classes(CONV)["cuda_implicit_gemm"]
    unstable = NumericClass(tuple(replace(e, is_stable=False) for e in stable.operations))
    assert stable.can_replace(unstable)
    assert not unstable.can_replace(stable)
    assert "not the same bits" in str(unstable)
