"""A zero-padded copy of a tensor in the workspace, whose readers need no bounds checks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec, ordered_strides, stride_order

_THREADS = 256
_BLOCKS_PER_SM = 16


def padded_spec(
    spec: TensorSpec, before: Sequence[int], after: Sequence[int], uid: int, data_type: DataType
) -> TensorSpec:
    """``spec`` with zeros before and after each axis, packed in the same memory order."""
    dims = tuple(b + size + a for b, size, a in zip(before, spec.dims, after, strict=True))
    strides = ordered_strides(dims, stride_order(spec.dims, spec.strides))
    return spec.model_copy(
        update={
            "uid": uid,
            "data_type": data_type,
            "dims": dims,
            "strides": strides,
            "byte_alignment": 16,
            "is_virtual": False,
        }
    )


def add_padded_copy(
    steps: LaunchSequence,
    spec: TensorSpec,
    before: Sequence[int],
    after: Sequence[int],
    data_type: DataType,
    arithmetic: str,
) -> TensorSpec:
    """Add a launch that fills the copy, in a type that represents the source's numbers; returns the copy."""
    copy = padded_spec(spec, before, after, steps.new_uid(), data_type)
    steps.workspace_offsets[copy.uid] = steps.allocate(copy.bytes)
    order = stride_order(spec.dims, spec.strides)
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("source", spec)
    parameters.tensor("target", copy, is_output=True)
    parameters.integer("count", prod(copy.dims))
    for name, values in (
        ("padded_size", copy.dims),
        ("before", before),
        ("source_size", spec.dims),
        ("source_stride", spec.strides),
    ):
        parameters.integers(name, [values[axis] for axis in order])
    text = kernel_text(
        f"pad__r{spec.rank}",
        ["pad.cu"],
        parameters=parameters.text,
        functions=(),
        constants={
            "THREADS": _THREADS,
            "RANK": spec.rank,
            "Target": STORAGE[data_type],
            "Arithmetic": arithmetic,
        },
    )
    blocks = min(-(-prod(copy.dims) // _THREADS), _BLOCKS_PER_SM * steps.device.sm_count)
    steps.add(Launch(text, "pad", (blocks, 1, 1), _THREADS, parameters.pack()))
    return copy
