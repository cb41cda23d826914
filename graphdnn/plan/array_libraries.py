"""ARRAY_LIBRARIES: the libraries whose arrays ``Graph.run`` returns if an input is one of them.

NumPy and CuPy have no row: a plan makes their arrays itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from graphdnn.engines.host.memory import binding_layout
from graphdnn.host_allocation import out_of_memory
from graphdnn.plan.binding_validation import WHERE
from graphdnn.plan.execution_plan import ExecutionPlan
from graphdnn.plan.torch_tensors import torch_type
from graphdnn.tensors import TensorSpec


class ArrayLibrary(NamedTuple):
    """How a library's arrays are made for the outputs of a plan."""

    name: str  # of the module
    array_class: Callable[[Any], Any]  # of the module
    new: Callable[[ExecutionPlan, TensorSpec], Any]  # an array that the plan can write
    finished: Callable[[Any, TensorSpec], Any]  # the array that the caller gets, after the plan has written it

    def has(self, array: Any) -> bool:
        """Whether an array is one of this library. A library that nobody has imported has made none."""
        module = sys.modules.get(self.name)
        return module is not None and isinstance(array, self.array_class(module))


def _tensor(plan: ExecutionPlan, spec: TensorSpec) -> Any:
    """An uninitialized PyTorch tensor from PyTorch's own allocator."""
    import torch

    dtype, shape, strides = binding_layout(spec)
    device = "cpu" if plan.config.device.kind == "cpu" else f"cuda:{plan.ordinal}"
    extra = spec.byte_alignment if spec.byte_alignment > _TORCH_ALIGNMENT else 0
    try:
        memory = torch.empty(spec.bytes + extra, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        raise _without_memory(spec, device, error) from error
    start = -memory.data_ptr() % extra if extra else 0
    typed = memory[start : start + spec.bytes].view(torch_type(dtype))
    return typed.as_strided(shape, [step // dtype.itemsize for step in strides])


_TORCH_ALIGNMENT = 64  # bytes; of PyTorch's allocator on the host, whose alignment is the smallest


def _without_memory(spec: TensorSpec, device: str, error: RuntimeError) -> MemoryError:
    if device == "cpu":
        return out_of_memory(WHERE, spec.label(), f"{spec.bytes} bytes", error)
    from graphdnn.cuda.errors import OutOfMemory

    return OutOfMemory.of_pool(spec.bytes, str(error).partition("\n")[0], "PyTorch")


def _jax_array(array: Any, spec: TensorSpec) -> Any:
    """A JAX array of what a plan has written, without a copy where DLPack knows the element type."""
    import jax

    dtype = binding_layout(spec)[0]
    if isinstance(array, np.ndarray):
        return jax.numpy.asarray(array)
    taken = jax.dlpack.from_dlpack(array)
    return taken if taken.dtype == dtype else jax.lax.bitcast_convert_type(taken, dtype)


ARRAY_LIBRARIES = (
    ArrayLibrary("torch", lambda torch: torch.Tensor, _tensor, lambda array, spec: array),
    ArrayLibrary("jax", lambda jax: jax.Array, lambda plan, spec: plan.new_array(spec), _jax_array),
)


def library_of(arrays: Iterable[Any]) -> ArrayLibrary | None:
    """The first library of the table that has one of the arrays; None if the plan's own arrays are to be made."""
    given = tuple(arrays)
    return next((row for row in ARRAY_LIBRARIES if any(map(row.has, given))), None)
