"""From RNN, tensor and filter descriptors to the settings of the core's operations; what the calls check on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import DataType, Status
from graphdnn.errors import Rejection
from graphdnn.operations import Cell, RnnSpec
from graphdnn.tensors import packed_strides
from graphdnn.v6.call_graph import math_of
from graphdnn.v6.descriptor_checks import counted, entries, same_type
from graphdnn.v6.descriptor_values import RNN, Descriptor, Filter, Handle, PersistentPlan, RNNDescriptor, Tensor
from graphdnn.v6.enums import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnRNNAlgo_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
)
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.recurrent_rules import FLOATING, PACKED, PERSISTENT, PRECISION, SEQUENCE
from graphdnn.v6.rules import NULL, SAME_DIMS

D, Algo = cudnnDataType_t, cudnnRNNAlgo_t
_PRECISIONS = {
    D.CUDNN_DATA_HALF: (D.CUDNN_DATA_HALF, D.CUDNN_DATA_FLOAT),
    D.CUDNN_DATA_FLOAT: (D.CUDNN_DATA_FLOAT,),
    D.CUDNN_DATA_DOUBLE: (D.CUDNN_DATA_DOUBLE,),
}
LSTM = cudnnRNNMode_t.CUDNN_LSTM


def arithmetic_of(data_type: cudnnDataType_t) -> DataType:
    """HALF data is computed in FLOAT, also where the network was set to HALF: wider sums round once."""
    return math_of(data_type)


def check_precision(where: str, name: str, rnn: RNN, data_type: cudnnDataType_t, status: Status | None = None) -> None:
    """The network's precision goes with the data."""
    if data_type not in _PRECISIONS:
        raise CudnnError(FLOATING.reject(where, f"{name}.dataType", data_type.name))
    if rnn.data_type not in _PRECISIONS.get(data_type, ()):
        fitting = [d.name for d, maths in _PRECISIONS.items() if rnn.data_type in maths]
        refuse = PRECISION.reject(
            where, f"{name}.dataType", data_type.name, status=status, expected=" or ".join(fitting) or "no such data",
            math=rnn.data_type.name,
        )  # fmt: skip
        raise CudnnError(refuse)


def packed(where: str, name: str, value: Tensor) -> Rejection | None:
    """The rejection of a tensor with gaps."""
    expected = packed_strides(value.dims)
    wrong = any(have != want for have, want, n in zip(value.strides, expected, value.dims, strict=True) if n > 1)
    return PACKED.reject(where, f"{name}.strides", value.strides, expected=str(expected)) if wrong else None


def step(where: str, name: str, value: Tensor) -> list[Rejection]:
    """What is wrong with the descriptor of one step."""
    if len(value.dims) != 3 or value.dims[2] != 1:
        reason = "a step has sequences and values"
        return [SEQUENCE.reject(where, f"{name}.dims", value.dims, expected="[sequences, values, 1]", reason=reason)]
    found = packed(where, name, value)
    return [] if found is None else [found]


def sequence(where: str, name: str, length: int, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """The steps that an array of descriptors describes. Raises if they do not fit together."""
    entries(where, 1, seqLength=length)
    counted(where, length, **{name: range(len(given))})
    steps = given[:length]
    refuse_if(problem for t, value in enumerate(steps) for problem in step(where, f"{name}[{t}]", value))
    first = steps[0]
    same_type(where, {f"{name}[{t}]": value for t, value in enumerate(steps)})
    refuse_if(
        SEQUENCE.reject(where, f"{name}[{t}].dims", value.dims, expected=f"{first.dims[1]} values",
                        reason="every step has the same values")
        for t, value in enumerate(steps)
        if value.dims[1] != first.dims[1]
    )  # fmt: skip
    refuse_if(
        SEQUENCE.reject(where, f"{name}[{t}].dims", steps[t].dims, expected=f"at most {steps[t - 1].dims[0]} sequences",
                        reason="sequences end, and none begins later")
        for t in range(1, length)
        if steps[t].dims[0] > steps[t - 1].dims[0]
    )  # fmt: skip
    return steps


def network(
    rnn: RNN, batch_sizes: Sequence[int], input_size: int, data_type: cudnnDataType_t, dropout: float = 0.0
) -> RnnSpec:
    """The settings of the operations."""
    return RnnSpec(
        cell=Cell(int(rnn.mode)),
        input_size=input_size,
        hidden_size=rnn.hidden,
        layers=rnn.layers,
        directions=2 if rnn.direction is cudnnDirectionMode_t.CUDNN_BIDIRECTIONAL else 1,
        skip_input=rnn.input_mode is cudnnRNNInputMode_t.CUDNN_SKIP_INPUT,
        dropout=dropout if rnn.layers > 1 else 0.0,
        batch_sizes=tuple(batch_sizes),
        arithmetic=arithmetic_of(data_type),
    )


def network_of(where: str, rnn: RNN, length: int, name: str, given: Sequence[Tensor], dropout: float = 0.0) -> RnnSpec:
    """The network for inputs that an array of descriptors describes."""
    steps = sequence(where, name, length, given)
    data_type = steps[0].data_type
    check_precision(where, name, rnn, data_type)
    return network(rnn, [s.dims[0] for s in steps], steps[0].dims[1], data_type, dropout)


class Described(NamedTuple):
    """What the descriptors of a computing call say, as a key: equal descriptors are looked at once."""

    where: str
    rnn: RNN  # without its dropout descriptor
    dropout: float
    device: str
    is_old: bool  # no persistent algorithm runs there
    plan: PersistentPlan | None
    length: int
    steps: tuple[tuple[str, tuple[Tensor, ...]], ...]  # by parameter, those of the network's input first
    states: tuple[tuple[str, Tensor | None], ...]
    weights: tuple[str, Filter]


def agreed(
    where: str, handle: Handle, desc: Descriptor, length: int, steps: Mapping[str, Sequence[Descriptor]],
    states: Mapping[str, Descriptor | None], weights: tuple[str, Descriptor], *, trains: bool = False,
) -> tuple[RnnSpec, cudnnDataType_t]:  # fmt: skip
    """The network that all descriptors of a call agree on, and the type of its data. Raises when they do not."""
    assert isinstance(desc, RNNDescriptor)
    rnn, plan = desc.value, desc.plan
    described = Described(
        where, rnn._replace(dropout=None), rnn.dropout.value.probability if trains else 0.0, handle.device.name,
        too_old(handle.device), plan.value if plan is not None and not plan.destroyed else None, length,
        tuple((name, tuple(d.value for d in descs)) for name, descs in steps.items()),
        tuple((name, None if d is None else d.value) for name, d in states.items()),
        (weights[0], weights[1].value),
    )  # fmt: skip
    return _agreed(described)


@lru_cache(maxsize=512)
def _agreed(d: Described) -> tuple[RnnSpec, cudnnDataType_t]:
    (name, inputs), *others = d.steps
    rnn = network_of(d.where, d.rnn, d.length, name, inputs, d.dropout)
    data_type = inputs[0].data_type
    for name, given in others:
        _check_outputs(d, rnn, name, given, data_type)
    for name, state in d.states:
        _check_state(d.where, rnn, name, state, data_type)
    _check_weights(d.where, rnn, *d.weights, data_type)
    _check_algorithm(d, rnn, data_type)
    return rnn, data_type


def _check_outputs(d: Described, rnn: RnnSpec, name: str, given: Sequence[Tensor], data_type: cudnnDataType_t) -> None:
    """Steps of outputs and their gradients."""
    steps = sequence(d.where, name, d.length, given)
    wanted = [(batch, rnn.width, 1) for batch in rnn.batch_sizes]
    refuse_if(
        SAME_DIMS.reject(d.where, f"{name}[{t}].dims", s.dims, expected=str(w), reason="the network fixes it")
        for t, (s, w) in enumerate(zip(steps, wanted, strict=True))
        if s.dims != w
    )
    _check_type(d.where, name, steps[0].data_type, data_type)


def _check_state(where: str, rnn: RnnSpec, name: str, value: Tensor | None, data_type: cudnnDataType_t) -> None:
    """States; those of cells only matter to LSTM, which needs them."""
    if name.removeprefix("d").startswith("c") and rnn.cell is not Cell.LSTM:
        return
    if value is None:
        raise CudnnError(NULL.reject(where, name, None, expected="a cudnnTensorDescriptor_t"))
    if value.dims != rnn.states:
        reason = "states are [layers * directions, sequences, hidden size]"
        rejection = SAME_DIMS.reject(where, f"{name}.dims", value.dims, expected=str(rnn.states), reason=reason)
        raise CudnnError(rejection)
    refuse_if([packed(where, name, value)])
    _check_type(where, name, value.data_type, data_type)


def _check_weights(where: str, rnn: RnnSpec, name: str, value: Filter, data_type: cudnnDataType_t) -> None:
    """The filter descriptor of all weights has as many elements as the network."""
    if prod(value.dims) != rnn.weight_count:
        reason = "this is the number of all matrices and biases"
        expected = f"{rnn.weight_count} elements"
        raise CudnnError(SAME_DIMS.reject(where, f"{name}.dims", value.dims, expected=expected, reason=reason))
    _check_type(where, name, value.data_type, data_type)


def _check_type(where: str, name: str, given: cudnnDataType_t, wanted: cudnnDataType_t) -> None:
    same_type(where, {"": Tensor(wanted, (), ()), name: Tensor(given, (), ())})


def too_old(device: DeviceSpec) -> bool:
    """A GPU that no persistent algorithm ran on."""
    return device.kind == "cuda" and device.compute_capability < (6, 0)


def _check_algorithm(d: Described, rnn: RnnSpec, data_type: cudnnDataType_t) -> None:
    """What the persistent algorithms could not do. They compute the same here as the standard one."""
    if d.rnn.algo is Algo.CUDNN_RNN_ALGO_STANDARD:
        return
    static = d.rnn.algo is Algo.CUDNN_RNN_ALGO_PERSIST_STATIC
    batches = rnn.batch_sizes
    found: list[tuple[str, object, str, str]] = []
    if batches[-1] != batches[0]:
        found.append(("xDesc", batches, f"{batches[0]} sequences in every step", "its kernel keeps one batch size"))
    if d.is_old:
        reason = "older devices cannot wait for all of their blocks"
        found.append(("handle", d.device, "compute capability 6.0 or later", reason))
    if static and data_type is D.CUDNN_DATA_DOUBLE:
        found.append(("xDesc.dataType", data_type.name, "FLOAT or HALF", "its kernels have no double precision"))
    if not static and d.plan != (batches[0], data_type):
        expected = f"a plan for {batches[0]} sequences of {data_type.name}, set with cudnnSetPersistentRNNPlan"
        found.append(("plan", d.plan, expected, "its kernel is made for one batch size"))
    refuse_if(
        PERSISTENT.reject(d.where, name, value, expected=expected, reason=reason)
        for name, value, expected, reason in found
    )
