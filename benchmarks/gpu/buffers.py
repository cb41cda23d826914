"""Buffers: one piece of memory for each tensor of a problem, seen by PyTorch and by graphdnn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu.device import Device
from gpu.problem import Problem
from graphdnn import DataType, TensorSpec

TORCH_TYPES = {
    DataType.DOUBLE: "float64",
    DataType.FLOAT: "float32",
    DataType.HALF: "float16",
    DataType.BFLOAT16: "bfloat16",
    DataType.INT8: "int8",
    DataType.INT16: "int16",
    DataType.INT32: "int32",
    DataType.INT64: "int64",
}
NAN_BYTE, INTEGER_BYTE = 0xFF, 0x7F  # NaN in every floating type; a large number in every integer type


@dataclass(frozen=True, slots=True)
class Buffer:
    spec: TensorSpec
    raw: Any  # bytes, PyTorch
    tensor: Any  # the same, PyTorch, with extents and strides
    array: Any  # the same, as graphdnn takes it

    def poison(self) -> None:
        """Fill with what no right result holds."""
        self.raw.fill_(NAN_BYTE if self.tensor.is_floating_point() else INTEGER_BYTE)


@dataclass(frozen=True, slots=True)
class BufferSet:
    """Memory for every bound tensor of a problem, by name."""

    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]

    @property
    def bindings(self) -> dict[int, Any]:
        return {b.spec.uid: b.array for b in (*self.inputs.values(), *self.outputs.values())}

    @property
    def tensors(self) -> dict[str, Any]:
        return {name: buffer.tensor for name, buffer in self.inputs.items()}

    def poison(self) -> None:
        for buffer in self.outputs.values():
            buffer.poison()

    def copy_inputs(self, other: BufferSet) -> None:
        for name, buffer in self.inputs.items():
            buffer.raw.copy_(other.inputs[name].raw)


def allocate(problem: Problem, device: Device) -> BufferSet:
    inputs, outputs = (
        {name: _buffer(spec, device) for name, spec in specs.items()} for specs in (problem.inputs, problem.outputs)
    )
    return BufferSet(inputs, outputs)


def fill(problem: Problem, buffers: BufferSet, device: Device, seed: int) -> None:
    """Random inputs; the same for the same seed."""
    generator = device.torch.Generator(device=device.name).manual_seed(seed)
    for name, buffer in buffers.inputs.items():
        buffer.raw.zero_()  # gaps between elements
        buffer.tensor.copy_(problem.fills[name].draw(device.torch, buffer.tensor, generator))


def _buffer(spec: TensorSpec, device: Device) -> Buffer:
    torch = device.torch
    raw = torch.empty(spec.bytes, dtype=torch.uint8, device=device.name)
    flat = raw.view(getattr(torch, TORCH_TYPES[spec.data_type]))
    return Buffer(spec, raw, torch.as_strided(flat, spec.dims, spec.strides), device.array(raw, spec))
