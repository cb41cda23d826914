"""Recurrent networks: sizes, inference, training, and the gradients of data and of weights.

The reserve space holds what the core's operations keep, in this order: gates, cells and outputs below the top layer;
gradients of what enters the gates; masks of dropout. The gradient of the data writes the second part alone, so it
may be asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphdnn.dtypes import COMPUTE
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.heuristics import WORKSPACE_ALIGNMENT
from graphdnn.operations import RnnBackwardData, RnnBackwardWeights, RnnForward, RnnSpec
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.calls.dropout import advance, mask_size, states_of
from graphdnn.v6.descriptor_values import Descriptor, Handle, Tensor
from graphdnn.v6.enums import cudnnDataType_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import element_of
from graphdnn.v6.plan_cache import Draw, prepared, workspace_of
from graphdnn.v6.raw_memory import at_least, memory, part
from graphdnn.v6.recurrent_descriptors import agreed, network_of
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import NULL

Descriptors = Sequence[Descriptor]
_PACK = 16  # bytes: parts of the reserve space begin at multiples


@dataclass(frozen=True, slots=True)
class Reserve:
    """Bytes of the parts of a reserve space."""

    kept: int
    gradients: int
    masks: int

    @classmethod
    def of(cls, rnn: RnnSpec) -> Reserve:
        """Room for masks is there whatever the probability, which may be set again."""
        size = COMPUTE[rnn.arithmetic].itemsize
        masks = mask_size(prod(rnn.mask_extents)) if rnn.layers > 1 else 0
        kept, gradients = rnn.kept_count * size, rnn.gradient_count * size
        return cls(-(-kept // _PACK) * _PACK, -(-gradients // _PACK) * _PACK if masks else gradients, masks)

    @property
    def size(self) -> int:
        return self.kept + self.gradients + self.masks

    def parts(self, where: str, handle: Handle, given: Any) -> tuple[Any, Any, Any]:
        found = memory(where, "reserveSpace", handle, given, self.size)
        middle, end = self.kept, self.kept + self.gradients
        return part(found, 0, middle), part(found, middle, end), part(found, end, self.size)


def _values(descs: Descriptors) -> list[Tensor]:
    return [d.value for d in descs]


@implements("cudnnGetRNNWorkspaceSize")
def workspace_size(handle: Handle, desc: Descriptor, length: int, x_descs: Descriptors) -> int:
    """Enough for each call with all of its states; a device's kernels may want more than a call insists on."""
    where, steps = "cudnnGetRNNWorkspaceSize", _values(x_descs)
    rnn = network_of(where, desc.value, length, "xDesc", steps)
    if handle.device.kind == "cpu":
        return _workspace_bytes(rnn)
    trained = rnn.model_copy(update={"dropout": desc.value.dropout.value.probability if rnn.layers > 1 else 0.0})
    data_type, cells = steps[0].data_type, rnn.cell.name == "LSTM"
    calls = (
        _forward_graph(rnn, data_type, (True, cells) * 2, trains=False),
        _forward_graph(trained, data_type, (True, cells) * 2, trains=True),
        _data_graph(trained, data_type, (True, cells) * 3),
        _weights_graph(trained, data_type, has_states=True),
    )
    return max(_workspace_bytes(rnn), *(workspace_of(where, handle, draw) for draw in calls))


@implements("cudnnGetRNNTrainingReserveSize")
def reserve_size(handle: Handle, desc: Descriptor, length: int, x_descs: Descriptors) -> int:
    return Reserve.of(network_of("cudnnGetRNNTrainingReserveSize", desc.value, length, "xDesc", _values(x_descs))).size


class _Ports:
    """Tensors of a draft for the ports of an operation: those whose argument is there."""

    def __init__(self, draft: Draft, rnn: RnnSpec, element: DataType) -> None:
        self.draft, self.rnn, self.element = draft, rnn, element
        self.found: dict[str, Any] = {}

    def plain(self, extents: Sequence[int], **given: int | None) -> None:
        """Data of the network's type: argument ``given[port]``, None for a port that is left out."""
        for port, index in given.items():
            if index is not None:
                self.found[port] = self.draft.plain(index, self.element, extents, port)

    def kept(self, **given: int | None) -> None:
        """Parts of the reserve space."""
        shapes: dict[str, tuple[DataType, tuple[int, ...]]] = {
            "kept": (self.rnn.arithmetic, (self.rnn.kept_count,)),
            "kept_gradients": (self.rnn.arithmetic, (self.rnn.gradient_count,)),
            "masks": (DataType.BOOLEAN, self.rnn.mask_extents),
        }
        for port, index in given.items():
            if index is not None and all(shapes[port][1]) and (port != "masks" or self.rnn.draws_masks):
                self.found[port] = self.draft.plain(index, *shapes[port], port)


def _workspace_bytes(rnn: RnnSpec) -> int:
    """What each call insists on: what an operation works in, or a gradient of the weights before it is added."""
    weights = rnn.weight_count * COMPUTE[rnn.arithmetic].itemsize
    return max(rnn.scratch_bytes, -(-weights // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT)


def _workspace(where: str, handle: Handle, rnn: RnnSpec, given: Any, size: int) -> Any:
    wanted = _workspace_bytes(rnn)
    at_least(where, "workSpaceSizeInBytes", size, wanted)
    if given is None:
        raise CudnnError(NULL.reject(where, "workspace", None, expected=f"{wanted} bytes"))
    return memory(where, "workspace", handle, given, size)


def _if(given: bool, index: int) -> int | None:
    return index if given else None


def _forward_graph(rnn: RnnSpec, data_type: cudnnDataType_t, given: tuple[bool, ...], *, trains: bool) -> Draw:
    """``given``: hx, cx, hy, cy."""

    def draw(draft: Draft) -> None:
        ports = _Ports(draft, rnn, element_of(data_type)[0])
        ports.plain((rnn.rows, rnn.input_size), x=0)
        ports.plain((rnn.weight_count,), w=1)
        ports.plain((rnn.rows, rnn.width), y=2)
        hx, cx, hy, cy = (_if(there, i) for i, there in enumerate(given, 3))
        ports.plain(rnn.states, hx=hx, cx=cx, hy=hy, cy=cy)
        if trains:
            ports.kept(kept=7, masks=8)
        if rnn.draws_masks:
            ports.found["seed"] = draft.plain(9, DataType.INT64, (1,), "seed")
            ports.found["offset"] = draft.plain(10, DataType.INT64, (1,), "old counter", is_copy=True)
        draft.add(RnnForward(rnn=rnn, **ports.found))
        if rnn.draws_masks:
            advance(draft, 10, ports.found["offset"], prod(rnn.mask_extents))

    return draw


def _forward(
    where: str, handle: Handle, desc: Descriptor, rnn: RnnSpec, data_type: cudnnDataType_t,
    states: tuple[Any, Any, Any, Any], rest: tuple[Any, Any, Any], workspace: Any, workspace_bytes: int, reserve: Any,
) -> None:  # fmt: skip
    """``states``: hx, cx, hy, cy; ``rest``: x, w, y; ``reserve``: None in inference."""
    hx, cx, hy, cy = (s if i % 2 == 0 or rnn.cell.name == "LSTM" else None for i, s in enumerate(states))
    parts = (None, None, None) if reserve is None else Reserve.of(rnn).parts(where, handle, reserve)
    seed, counter = states_of(where, handle, desc.value.dropout.value) if rnn.draws_masks else (None, None)
    given = tuple(s is not None for s in (hx, cx, hy, cy))
    trains = reserve is not None
    draw = _forward_graph(rnn, data_type, given, trains=trains)
    call = prepared(where, handle, (rnn, data_type, given, trains), draw)
    call((*rest, hx, cx, hy, cy, parts[0], parts[2], seed, counter), workspace, workspace_bytes)


@implements("cudnnRNNForwardInference", "rnn_fwd", "PyTorch")
def inference(
    handle: Handle, desc: Descriptor, length: int, x_descs: Descriptors, x: Any, hx_desc: Descriptor, hx: Any,
    cx_desc: Descriptor | None, cx: Any, w_desc: Descriptor, w: Any, y_descs: Descriptors, y: Any, hy_desc: Descriptor,
    hy: Any, cy_desc: Descriptor | None, cy: Any, workspace: Any, workspace_bytes: int,
) -> None:  # fmt: skip
    """y, and the last states hy and cy; without dropout."""
    where = "cudnnRNNForwardInference"
    states = {"hxDesc": hx_desc, "cxDesc": cx_desc, "hyDesc": hy_desc, "cyDesc": cy_desc}
    steps = {"xDesc": x_descs, "yDesc": y_descs}
    rnn, data_type = agreed(where, handle, desc, length, steps, states, ("wDesc", w_desc))
    room = _workspace(where, handle, rnn, workspace, workspace_bytes)
    _forward(where, handle, desc, rnn, data_type, (hx, cx, hy, cy), (x, w, y), room, workspace_bytes, None)


@implements("cudnnRNNForwardTraining", "rnn_fwd", "PyTorch")
def training(
    handle: Handle, desc: Descriptor, length: int, x_descs: Descriptors, x: Any, hx_desc: Descriptor, hx: Any,
    cx_desc: Descriptor | None, cx: Any, w_desc: Descriptor, w: Any, y_descs: Descriptors, y: Any, hy_desc: Descriptor,
    hy: Any, cy_desc: Descriptor | None, cy: Any, workspace: Any, workspace_bytes: int, reserve: Any,
    reserve_bytes: int,
) -> None:  # fmt: skip
    """As inference, with dropout between layers; what the gradients need goes to the reserve space."""
    where = "cudnnRNNForwardTraining"
    states = {"hxDesc": hx_desc, "cxDesc": cx_desc, "hyDesc": hy_desc, "cyDesc": cy_desc}
    steps = {"xDesc": x_descs, "yDesc": y_descs}
    rnn, data_type = agreed(where, handle, desc, length, steps, states, ("wDesc", w_desc), trains=True)
    room = _workspace(where, handle, rnn, workspace, workspace_bytes)
    at_least(where, "reserveSpaceSizeInBytes", reserve_bytes, Reserve.of(rnn).size)
    _forward(where, handle, desc, rnn, data_type, (hx, cx, hy, cy), (x, w, y), room, workspace_bytes, reserve)


@implements("cudnnRNNBackwardData", "rnn_bwd_data", "PyTorch")
def backward_data(
    handle: Handle, desc: Descriptor, length: int, y_descs: Descriptors, y: Any, dy_descs: Descriptors, dy: Any,
    dhy_desc: Descriptor, dhy: Any, dcy_desc: Descriptor | None, dcy: Any, w_desc: Descriptor, w: Any,
    hx_desc: Descriptor, hx: Any, cx_desc: Descriptor | None, cx: Any, dx_descs: Descriptors, dx: Any,
    dhx_desc: Descriptor, dhx: Any, dcx_desc: Descriptor | None, dcx: Any, workspace: Any, workspace_bytes: int,
    reserve: Any, reserve_bytes: int,
) -> None:  # fmt: skip
    """Gradients of x, hx and cx; after training with the same reserve space."""
    where = "cudnnRNNBackwardData"
    states = {
        "dhyDesc": dhy_desc, "dcyDesc": dcy_desc, "hxDesc": hx_desc, "cxDesc": cx_desc, "dhxDesc": dhx_desc,
        "dcxDesc": dcx_desc,
    }  # fmt: skip
    steps = {"dxDesc": dx_descs, "yDesc": y_descs, "dyDesc": dy_descs}
    rnn, data_type = agreed(where, handle, desc, length, steps, states, ("wDesc", w_desc), trains=True)
    room = _workspace(where, handle, rnn, workspace, workspace_bytes)
    at_least(where, "reserveSpaceSizeInBytes", reserve_bytes, Reserve.of(rnn).size)
    kept, gradients, masks = Reserve.of(rnn).parts(where, handle, reserve)
    if rnn.cell.name != "LSTM":
        dcy = cx = dcx = None
    given = tuple(s is not None for s in (dhy, dcy, hx, cx, dhx, dcx))
    data = (y, dy, w, dx, dhy, dcy, hx, cx, dhx, dcx, kept, gradients, masks)
    call = prepared(where, handle, (rnn, data_type, given), _data_graph(rnn, data_type, given))
    call(data, room, workspace_bytes)


def _data_graph(rnn: RnnSpec, data_type: cudnnDataType_t, given: tuple[bool, ...]) -> Draw:
    """``given``: dhy, dcy, hx, cx, dhx, dcx."""

    def draw(draft: Draft) -> None:
        ports = _Ports(draft, rnn, element_of(data_type)[0])
        ports.plain((rnn.rows, rnn.width), y=0, dy=1)
        ports.plain((rnn.weight_count,), w=2)
        ports.plain((rnn.rows, rnn.input_size), dx=3)
        dhy, dcy, hx, cx, dhx, dcx = (_if(there, i) for i, there in enumerate(given, 4))
        ports.plain(rnn.states, dhy=dhy, dcy=dcy, hx=hx, cx=cx, dhx=dhx, dcx=dcx)
        ports.kept(kept=10, kept_gradients=11, masks=12)
        draft.add(RnnBackwardData(rnn=rnn, **ports.found))

    return draw


@implements("cudnnRNNBackwardWeights", "rnn_bwd_weights, pointwise add", "PyTorch")
def backward_weights(
    handle: Handle, desc: Descriptor, length: int, x_descs: Descriptors, x: Any, hx_desc: Descriptor, hx: Any,
    y_descs: Descriptors, y: Any, workspace: Any, workspace_bytes: int, dw_desc: Descriptor, dw: Any, reserve: Any,
    reserve_bytes: int,
) -> None:  # fmt: skip
    """Adds the gradient of the weights to dw; after the gradient of the data with the same reserve space."""
    where = "cudnnRNNBackwardWeights"
    steps, states = {"xDesc": x_descs, "yDesc": y_descs}, {"hxDesc": hx_desc}
    rnn, data_type = agreed(where, handle, desc, length, steps, states, ("dwDesc", dw_desc), trains=True)
    room = _workspace(where, handle, rnn, workspace, workspace_bytes)
    at_least(where, "reserveSpaceSizeInBytes", reserve_bytes, Reserve.of(rnn).size)
    kept, gradients, masks = Reserve.of(rnn).parts(where, handle, reserve)

    data = (x, y, hx, dw, kept, gradients, masks)
    has_states = hx is not None
    draw = _weights_graph(rnn, data_type, has_states=has_states)
    prepared(where, handle, (rnn, data_type, has_states), draw)(data, room, workspace_bytes)


def _weights_graph(rnn: RnnSpec, data_type: cudnnDataType_t, *, has_states: bool) -> Draw:
    def draw(draft: Draft) -> None:
        element, count = element_of(data_type)[0], (rnn.weight_count,)
        ports = _Ports(draft, rnn, element)
        ports.plain((rnn.rows, rnn.input_size), x=0)
        ports.plain((rnn.rows, rnn.width), y=1)
        ports.plain(rnn.states, hx=_if(has_states, 2))
        ports.kept(kept=4, kept_gradients=5, masks=6)
        fresh = draft.virtual(count, rnn.arithmetic)
        draft.add(RnnBackwardWeights(rnn=rnn, dw=fresh, **ports.found))
        old, out = draft.plain(3, element, count, "old dw", is_copy=True), draft.plain(3, element, count, "dw")
        draft.pointwise(PointwiseMode.ADD, rnn.arithmetic, fresh, old, out=out)

    return draw
