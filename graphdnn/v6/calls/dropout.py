"""Dropout: random masks by the core's generator, one bit an element in the reserve space.

The states are two 64-bit integers, the seed and the counter of the generator; each forward call moves the counter
past the numbers it drew. So the masks are those of the core's ``rng`` operation with the same seed and offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from graphdnn.enums import DataType, PointwiseMode, ReshapeMode, RngDistribution, Status
from graphdnn.operations import Reshape, Rng, RngSpec
from graphdnn.tensors import TensorSpec
from graphdnn.v6.arguments import Address
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import same_strides, same_type
from graphdnn.v6.descriptor_values import Descriptor, Dropout, Handle, Tensor
from graphdnn.v6.enums import cudnnDataType_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.raw_memory import at_least, memory, part, same_memory
from graphdnn.v6.recurrent_rules import FLOATING, NO_STATES
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import RANGE, SAME_DIMS

STATES_SIZE = 16
LANES = 4  # numbers for each count of the generator
FLOATS = (cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnDataType_t.CUDNN_DATA_DOUBLE, cudnnDataType_t.CUDNN_DATA_HALF)
_WORD = 4  # the mask ends at a whole 32-bit word


def mask_size(elements: int) -> int:
    """Bytes of the mask of so many elements."""
    return -(-elements // (8 * _WORD)) * _WORD


@implements("cudnnDropoutGetStatesSize")
def states_size(handle: Handle) -> int:
    return STATES_SIZE


@implements("cudnnDropoutGetReserveSpaceSize")
def reserve_size(x_desc: Descriptor) -> int:
    return mask_size(prod(x_desc.value.dims))


def _checked(
    where: str, handle: Handle, probability: float, states: Any, size: int, status: Status | None
) -> Any:  # fmt: skip
    """The states' memory, None for none. Raises for a probability that is none, and for too little memory."""
    if not 0.0 <= probability <= 1.0:
        raise CudnnError(RANGE.reject(where, "dropout", probability, status=status, expected="0 to 1"))
    if states is None:
        return None
    at_least(where, "stateSizeInBytes", size, STATES_SIZE, Status.INVALID_VALUE)
    return memory(where, "states", handle, states, STATES_SIZE)


@implements("cudnnSetDropoutDescriptor")
def set_descriptor(desc: Descriptor, handle: Handle, probability: float, states: Any, size: int, seed: int) -> None:
    """Seeds the states, with the counter at 0. Without states only the probability is kept."""
    found = _checked("cudnnSetDropoutDescriptor", handle, probability, states, size, None)
    if found is None:
        before = desc.value
        desc.value = before._replace(probability=probability) if before else Dropout(probability, None, seed)
        return
    _seed(handle, found, seed)
    desc.value = Dropout(probability, found, seed)


@implements("cudnnRestoreDropoutDescriptor")
def restore_descriptor(desc: Descriptor, handle: Handle, probability: float, states: Any, size: int, seed: int) -> None:
    """Attaches states as they are; the seed is only kept for ``cudnnGetDropoutDescriptor``."""
    found = _checked("cudnnRestoreDropoutDescriptor", handle, probability, states, size, Status.INVALID_VALUE)
    desc.value = Dropout(probability, found, seed)


@implements("cudnnGetDropoutDescriptor")
def get_descriptor(desc: Descriptor, handle: Handle) -> tuple[float, Any, int]:
    """Probability, states (as bytes in place; on a device their address) and seed."""
    probability, states, seed = desc.value
    return probability, states.address if isinstance(states, Address) else states, seed


def _seed(handle: Handle, states: Any, seed: int) -> None:
    """Writes the seed, and the counter 0, as calls that a recording takes like all others."""
    for start, number in ((0, (seed + 2**63) % 2**64 - 2**63), (8, 0)):

        def draw(draft: Draft, number: int = number) -> None:
            out = draft.plain(0, DataType.INT64, (1,), "states")
            draft.pointwise(
                PointwiseMode.IDENTITY, DataType.INT64, draft.constant(number, out, DataType.INT64), out=out
            )

        prepared("cudnnSetDropoutDescriptor", handle, number, draw)((part(states, start, start + 8),))


def states_of(where: str, handle: Handle, dropout: Dropout) -> tuple[Any, Any]:
    """Seed and counter in place. Raises when there are no states where the handle's calls run."""
    if dropout.states is None:
        raise CudnnError(NO_STATES.reject(where, "dropoutDesc.states", None))
    found = memory(where, "dropoutDesc.states", handle, dropout.states, STATES_SIZE)
    return part(found, 0, 8), part(found, 8, STATES_SIZE)


def advance(draft: Draft, index: int, counter: TensorSpec, elements: int) -> None:
    """Moves the counter, data argument ``index``, past the numbers for so many elements."""
    steps = draft.constant(-(-elements // LANES), counter, DataType.INT64)
    draft.pointwise(
        PointwiseMode.ADD, DataType.INT64, counter, steps, out=draft.plain(index, DataType.INT64, (1,), "counter")
    )


def _check(where: str, dropout: Dropout, tensors: Mapping[str, Tensor], reserve: int, in_place: bool) -> None:
    (name_in, source), (name_out, target) = tensors.items()
    same_type(where, tensors)
    given = source.data_type
    if given not in FLOATS:
        raise CudnnError(FLOATING.reject(where, f"{name_in}.dataType", given.name))
    if prod(source.dims) != prod(target.dims):
        reason = "each element of one is an element of the other, whatever their shapes"
        expected = f"{prod(source.dims)} elements"
        raise CudnnError(SAME_DIMS.reject(where, f"{name_out}.dims", target.dims, expected=expected, reason=reason))
    if in_place:
        same_strides(where, tensors)
    at_least(where, "reserveSpaceSizeInBytes", reserve, mask_size(prod(source.dims)))
    if dropout.states is None:
        raise CudnnError(NO_STATES.reject(where, "dropoutDesc.states", None))


def _masked(draft: Draft, probability: float, source: Tensor, target: Tensor, mask: TensorSpec, names: str) -> None:
    """Where the mask is set, data argument 0 over 1 - p; else 0. Into data argument 1, element by element in order."""
    math = math_of(source.data_type)
    scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    x, y = names.split()
    given, out = draft.memory(0, source, x), draft.memory(1, target, y)
    zero = draft.constant(0.0, given, math)
    if source.dims == target.dims:
        draft.pointwise(PointwiseMode.BINARY_SELECT, math, given, zero, mask, out=out, alpha1=scale)
        return
    kept = draft.pointwise(PointwiseMode.BINARY_SELECT, math, given, zero, mask, out_type=out.data_type, alpha1=scale)
    draft.add(Reshape(x=kept, y=out, mode=ReshapeMode.LOGICAL))


@implements("cudnnDropoutForward", "rng, pointwise", "rng, loops")
def forward(handle: Handle, desc: Descriptor, x_desc: Descriptor, x: Any, y_desc: Descriptor, y: Any, reserve: Any,
            reserve_bytes: int) -> None:  # fmt: skip
    """y = x / (1 - p) with probability 1 - p, else 0; the mask goes to the reserve space."""
    where, dropout, xv, yv = "cudnnDropoutForward", desc.value, x_desc.value, y_desc.value
    _check(where, dropout, {"xdesc": xv, "ydesc": yv}, reserve_bytes, same_memory(x, y))
    seed, counter = states_of(where, handle, dropout)
    elements = prod(xv.dims)

    def draw(draft: Draft) -> None:
        key = draft.plain(3, DataType.INT64, (1,), "seed")
        start = draft.plain(4, DataType.INT64, (1,), "old counter", is_copy=True)
        mask = draft.plain(2, DataType.BOOLEAN, xv.dims, "mask")
        keep = RngSpec(distribution=RngDistribution.BERNOULLI, probability=1.0 - dropout.probability)
        draft.add(Rng(spec=keep, y=mask, seed=key, offset=start))
        _masked(draft, dropout.probability, xv, yv, mask, "x y")
        advance(draft, 4, start, elements)

    data = (x, y, memory(where, "reserveSpace", handle, reserve, mask_size(elements)), seed, counter)
    prepared(where, handle, (dropout.probability, xv, yv), draw, in_place=(0,))(data)


@implements("cudnnDropoutBackward", "pointwise", "loops")
def backward(handle: Handle, desc: Descriptor, dy_desc: Descriptor, dy: Any, dx_desc: Descriptor, dx: Any,
             reserve: Any, reserve_bytes: int) -> None:  # fmt: skip
    """dx = dy / (1 - p) where the forward call kept the element, else 0."""
    where, dropout, dyv, dxv = "cudnnDropoutBackward", desc.value, dy_desc.value, dx_desc.value
    _check(where, dropout, {"dydesc": dyv, "dxdesc": dxv}, reserve_bytes, same_memory(dy, dx))

    def draw(draft: Draft) -> None:
        mask = draft.plain(2, DataType.BOOLEAN, dyv.dims, "mask")
        _masked(draft, dropout.probability, dyv, dxv, mask, "dy dx")

    data = (dy, dx, memory(where, "reserveSpace", handle, reserve, mask_size(prod(dyv.dims))))
    prepared(where, handle, (dropout.probability, dyv, dxv), draw, in_place=(0,))(data)
