"""Creating and destroying descriptors of every kind; setting and reading descriptors that are a row of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphdnn.enums import Status
from graphdnn.v6.descriptor_checks import DIM_MAX, counted, entries, lrn_ranges, rank_in
from graphdnn.v6.descriptor_values import (
    DESCRIPTORS,
    LRN,
    Activation,
    CTCLoss,
    Descriptor,
    OpTensor,
    ReduceTensor,
    SpatialTransformer,
)
from graphdnn.v6.registry import implements


def _destroy(descriptor: Descriptor) -> None:
    descriptor.destroyed = True


for _name, _kind in DESCRIPTORS.items():
    if _name != "PersistentRNNPlan":  # made for a network, not empty
        implements(f"cudnnCreate{_name}")(_kind)
    implements(f"cudnnDestroy{_name}")(_destroy)


def _row(name: str, value: Callable[..., Any]) -> None:
    """Set and Get of a descriptor whose value has one field for each argument."""

    def write(descriptor: Descriptor, *fields: Any) -> None:
        descriptor.value = value(*fields)

    def read(descriptor: Descriptor) -> Any:
        fields = tuple(descriptor.value)
        return fields if len(fields) > 1 else fields[0]

    implements(f"cudnnSet{name}Descriptor")(write)
    implements(f"cudnnGet{name}Descriptor")(read)


def _lrn(n: int, alpha: float, beta: float, k: float) -> LRN:
    value = LRN(n, alpha, beta, k)
    lrn_ranges("cudnnSetLRNDescriptor", value)
    return value


_row("OpTensor", OpTensor)
_row("ReduceTensor", ReduceTensor)
_row("Activation", Activation)
_row("LRN", _lrn)
_row("CTCLoss", CTCLoss)


@implements("cudnnSetSpatialTransformerNdDescriptor")
def set_spatial_transformer(descriptor: Descriptor, sampler: Any, data_type: Any, rank: int, dims: Any) -> None:
    where = "cudnnSetSpatialTransformerNdDescriptor"
    rank_in(where, "nbDims", rank, 4, DIM_MAX, Status.BAD_PARAM)  # calls refuse more than 4
    (dims,) = counted(where, rank, dimA=dims)
    entries(where, 1, dimA=dims)
    descriptor.value = SpatialTransformer(sampler, data_type, dims)
