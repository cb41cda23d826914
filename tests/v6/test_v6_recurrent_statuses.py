"""Every documented condition of dropout, recurrent networks and the CTC loss, from a file: function, status, condition."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recurrent_tools import dropout, plan, rnn, states, steps, weights
from repository import DATA
from v6_tools import good_arguments, tensor

from graphdnn import device_spec, v6
from graphdnn.enums import Status
from graphdnn.errors import error_for
from graphdnn.v6.call_wrapper import as_call
from graphdnn.v6.functions import functions
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.rules import UNSET

CONDITIONS: list[tuple[str, str, str]] = [
    tuple(row) for row in json.loads((DATA / "v6_recurrent_statuses.json").read_text())
]
FLOAT, DOUBLE, HALF, INT8 = v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_HALF, v6.CUDNN_DATA_INT8
STATIC, DYNAMIC = v6.CUDNN_RNN_ALGO_PERSIST_STATIC, v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC
OLD = v6.cudnnHandle_t(replace(device_spec("a100"), compute_capability=(5, 2)))
STATES = ("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy")

Changes = list[tuple[dict[str, Any], str]]  # arguments that differ from legal ones, and the rule that they break


def parameters(name: str) -> dict[str, str]:
    return {p.name: p.kind for p in functions()[name].inputs}


def gaps(dims: tuple[int, int, int], kind: Any = FLOAT) -> Any:
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensorNdDescriptor(desc, kind, 3, dims, [9 * dims[1] * dims[2], 3 * dims[2], 2])
    return desc


def destroyed(make: Callable[[], Any]) -> Any:
    desc = make()
    desc.destroyed = True
    return desc


def everything(
    name: str, algo: Any, kind: Any = FLOAT, batches: tuple[int, ...] = (1,), mode: Any = v6.CUDNN_RNN_RELU
) -> dict[str, Any]:
    """A network of another algorithm, type or batch, and descriptors that agree with it."""
    found: dict[str, Any] = {"rnnDesc": rnn(mode, algo=algo, kind=kind), "seqLength": len(batches)}
    for p, c_type in parameters(name).items():
        if c_type == "TensorDescriptor[]":
            found[p] = steps(batches, 1, kind)
        elif c_type == "TensorDescriptor":
            found[p] = states(1, batches[0], 1, kind=kind)
        elif c_type == "FilterDescriptor":
            found[p] = weights(4 if mode is v6.CUDNN_RNN_RELU else 16, kind)
    return found


def no_network(name: str) -> Changes:
    return [
        ({"rnnDesc": None}, "v6.null"), ({"rnnDesc": destroyed(rnn)}, "v6.destroyed"),
        ({"rnnDesc": v6.cudnnCreateRNNDescriptor()}, "v6.unset"), ({"rnnDesc": tensor((1, 1, 1))}, "v6.kind"),
    ]  # fmt: skip


def wrong_descriptors(name: str) -> Changes:
    """Each descriptor of a computing call in each way that it can be wrong."""
    found: Changes = [
        ({"seqLength": 0}, "v6.extent"), ({"seqLength": 2}, "v6.count"), ({"rnnDesc": rnn(hidden=2, skip=True)}, "rnn.skip_input")
    ]  # fmt: skip
    for p, c_type in parameters(name).items():
        if c_type == "TensorDescriptor[]":
            found += [
                ({p: None}, "v6.null"), ({p: tensor((1, 1, 1))}, "v6.kind"), ({p: [None]}, "v6.null"),
                ({p: [gaps((2, 1, 1))]}, "v6.rnn.packed"), ({p: [states(1, 1, 2)]}, "v6.rnn.sequence"),
                ({p: steps([2], 1)}, "v6.dims"), ({p: steps([1], 2)}, "v6.dims"),
            ]  # fmt: skip
            if p not in ("xDesc", "dxDesc"):
                found.append(({p: steps([1], 1, HALF)}, "v6.data_type"))
        elif c_type == "TensorDescriptor":
            lstm = everything(name, v6.CUDNN_RNN_ALGO_STANDARD, mode=v6.CUDNN_LSTM)
            for wrong, rule in (
                (states(2, 1, 1), "v6.dims"), (states(1, 1, 1, kind=HALF), "v6.data_type"),
                (destroyed(lambda: states(1, 1, 1)), "v6.destroyed"), (None, "v6.null"),
            ):  # fmt: skip
                found.append((lstm | {p: wrong}, rule))
            wide = everything(name, v6.CUDNN_RNN_ALGO_STANDARD, batches=(2,), mode=v6.CUDNN_LSTM)
            found.append((wide | {p: gaps((1, 2, 1))}, "v6.rnn.packed"))
        elif c_type == "FilterDescriptor":
            found += [({p: weights(5)}, "v6.dims"), ({p: weights(4, HALF)}, "v6.data_type"), ({p: None}, "v6.null")]
    return found


def bad_sequences(name: str) -> Changes:
    return [
        ({"seqLength": 2, "xDesc": [*steps([1], 1), *steps([1], 2)]}, "v6.rnn.sequence"),
        ({"seqLength": 2, "xDesc": [*steps([1], 1), *steps([1], 1, HALF)]}, "v6.data_type"),
        ({"seqLength": 2, "xDesc": [*steps([2], 2), gaps((2, 2, 1))]}, "v6.rnn.packed"),
    ]


def enumerators(*names: str) -> Callable[[str], Changes]:
    return lambda name: [({n: 99}, "v6.enum") for n in names if n in parameters(name)]


def argument(rule: str, **changes: Any) -> Callable[[str], Changes]:
    return lambda name: [(changes, rule)]


def network_settings(name: str) -> Changes:
    rule = "v6.extent"
    return [({p: value}, rule) for p in ("hiddenSize", "numLayers") for value in (0, -1)]


def no_descriptor(name: str) -> Changes:
    first = next(p for p, kind in parameters(name).items() if kind.endswith("Descriptor"))
    return [({first: None}, "v6.null")]


def no_dropout(name: str) -> Changes:
    return [
        ({"dropoutDesc": None}, "v6.null"), ({"dropoutDesc": v6.cudnnCreateDropoutDescriptor()}, "v6.unset"),
        ({"dropoutDesc": destroyed(dropout)}, "v6.destroyed"),
    ]  # fmt: skip


def dropout_tensors(**changes: Any) -> Callable[[str], Changes]:
    """``x`` and ``y`` stand for the call's two tensors."""

    def make(name: str) -> Changes:
        x, y = ("xdesc", "ydesc") if name.endswith("Forward") else ("dydesc", "dxdesc")
        names = {"x": x, "y": y, "source": x.removesuffix("desc"), "target": y.removesuffix("desc")}
        rule = changes["rule"]
        return [({names.get(n, n): v for n, v in changes.items() if n != "rule"}, rule)]

    return make


def same_memory(name: str) -> Changes:
    one = np.ones(1, np.float32)
    wide = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptorEx(wide, 0, 1, 1, 1, 1, 9, 9, 9, 9)
    return dropout_tensors(y=wide, source=one, target=one, rule="v6.strides")(name)


def persistent(**changes: Any) -> Callable[[str], Changes]:
    return lambda name: [
        ({**everything(name, changes.get("algo", STATIC), changes.get("kind", FLOAT), changes.get("batches", (1,))),
          **({"handle": OLD} if "old" in changes else {})}, "v6.rnn.persistent")
    ]  # fmt: skip


def another_plan(name: str) -> Changes:
    found = []
    for made in (None, v6.cudnnCreatePersistentRNNPlan(rnn(algo=DYNAMIC), 7, FLOAT), destroyed(plan)):
        changes = everything(name, DYNAMIC)
        if made is not None:
            changes["rnnDesc"].plan = made
        found.append((changes, "v6.rnn.persistent"))
    return found


def linear_layers(name: str) -> Changes:
    return [
        ({p: value}, "v6.rnn.linear_layer") for p, last in (("layer", 0), ("linLayerID", 1)) for value in (-1, last + 1)
    ]


def weight_descriptors(name: str) -> Changes:
    into = next(p for p in parameters(name) if p.startswith("linLayer") and p.endswith("Desc"))
    return [
        *(({p: None}, "v6.null") for p in ("xDesc", "wDesc", into)), ({"xDesc": gaps((2, 1, 1))}, "v6.rnn.packed"),
        ({"xDesc": tensor((1, 1, 1, 1))}, "v6.rnn.sequence"), ({into: destroyed(lambda: weights(4))}, "v6.destroyed"),
    ]  # fmt: skip


def precisions(name: str) -> Changes:
    return [
        ({"rnnDesc": rnn(kind=DOUBLE)}, "v6.rnn.precision"), ({"rnnDesc": rnn(kind=HALF)}, "v6.rnn.precision"),
        ({"wDesc": weights(4, HALF)}, "v6.data_type"),
    ]  # fmt: skip


def ctc_types(name: str) -> Changes:
    double = v6.cudnnCreateCTCLossDescriptor()
    v6.cudnnSetCTCLossDescriptor(double, DOUBLE)
    half = states(2, 1, 2, kind=HALF)
    return [
        ({"probsDesc": half}, "v6.ctc.data_type"), ({"gradientsDesc": half}, "v6.ctc.data_type"),
        ({"ctcLossDesc": double}, "v6.ctc.data_type"), ({"algo": 7}, "v6.enum"),
    ]  # fmt: skip


SMALL = argument("v6.memory.small", reserveSpaceSizeInBytes=3)
NO_WORKSPACE = argument("v6.memory.small", workSpaceSizeInBytes=47)
PROVOKED: dict[tuple[str, str], Callable[[str], Changes]] = {
    ("INVALID_VALUE", "states given and stateSizeInBytes smaller than the queried size"): argument(
        "v6.memory.small", stateSizeInBytes=15
    ),
    ("INVALID_VALUE", "stateSizeInBytes smaller than the queried size"): argument("v6.memory.small", stateSizeInBytes=15),
    ("INVALID_VALUE", "the block would lie outside the buffer that wDesc describes"): lambda name: [
        ({"wDesc": weights(1 if "Matrix" in name else 3), "linLayerID": 1}, "v6.rnn.weights.outside")
    ],
    ("BAD_PARAM", "dropout outside [0,1) or [0,1] depending on release"): argument("v6.range", dropout=1.5),
    ("BAD_PARAM", "element counts of x and y differ"): dropout_tensors(y=tensor((1, 1, 1, 2)), rule="v6.dims"),
    ("BAD_PARAM", "element counts of dy and dx differ"): dropout_tensors(y=tensor((1, 1, 1, 2)), rule="v6.dims"),
    ("BAD_PARAM", "types differ"): dropout_tensors(y=tensor((1, 1, 1, 1), kind=HALF), rule="v6.data_type"),
    ("BAD_PARAM", "same pointer but strides differ"): same_memory,
    ("BAD_PARAM", "reserve space smaller than the queried size"): SMALL,
    ("BAD_PARAM", "the descriptor was never set with non-NULL states"): argument(
        "v6.dropout.states", dropoutDesc=dropout(0.5, states=False)
    ),
    ("BAD_PARAM", "rnnDesc or plan pointer invalid, minibatch <= 0"): lambda name: [
        *no_network(name), ({"minibatch": 0}, "v6.extent"),
    ],
    ("BAD_PARAM", "algo of rnnDesc is not CUDNN_RNN_ALGO_PERSIST_DYNAMIC"): argument(
        "v6.rnn.plan", rnnDesc=rnn(algo=STATIC)
    ),
    ("BAD_PARAM", "hiddenSize or numLayers <= 0"): network_settings,
    ("BAD_PARAM", "inputMode, direction, mode, algo or dataType invalid"): enumerators(
        "inputMode", "direction", "mode", "algo", "dataType"
    ),
    ("BAD_PARAM", "inputMode, direction, mode or dataType invalid"): enumerators(
        "inputMode", "direction", "mode", "dataType"
    ),
    ("BAD_PARAM", "dropoutDesc invalid"): no_dropout,
    ("BAD_PARAM", "rnnDesc not created"): lambda name: no_network(name)[:2],
    ("BAD_PARAM", "rnnDesc invalid"): no_network,
    ("BAD_PARAM", "an xDesc entry invalid or not fully packed"): lambda name: [
        ({"xDesc": [gaps((2, 1, 1))]}, "v6.rnn.packed"), ({"xDesc": [None]}, "v6.null"),
        ({"xDesc": [tensor((1, 1, 1, 1))]}, "v6.rnn.sequence"), ({"seqLength": 0}, "v6.extent"),
    ],
    ("BAD_PARAM", "second dims, strides or types of the xDesc entries differ"): bad_sequences,
    ("BAD_PARAM", "first dims increase along the sequence"): argument(
        "v6.rnn.sequence", seqLength=2, xDesc=steps([1, 2], 1)
    ),
    ("BAD_PARAM", "rnnDesc or xDesc invalid"): lambda name: [*no_network(name), ({"xDesc": None}, "v6.null")],
    ("BAD_PARAM", "xDesc not fully packed"): argument("v6.rnn.packed", xDesc=gaps((2, 1, 1))),
    ("BAD_PARAM", "dataType does not fit the tensor type"): argument("v6.data_type", dataType=HALF),
    ("BAD_PARAM", "xDesc, wDesc or the output filter descriptor invalid or NULL"): weight_descriptors,
    ("BAD_PARAM", "data type differs between rnnDesc and a descriptor"): precisions,
    ("BAD_PARAM", "w not sufficiently aligned"): argument("v6.rnn.weights.alignment", w=np.zeros(17, np.uint8)[1:]),
    ("BAD_PARAM", "layer (pseudo-layer) or linLayerID out of range"): linear_layers,
    ("BAD_PARAM", "a tensor/filter descriptor invalid, or wrong dims/strides"): wrong_descriptors,
    ("BAD_PARAM", "workspace too small"): lambda name: [
        *(NO_WORKSPACE(name)), *([({"workspace": None}, "v6.null")] if "RNN" in name else []),
    ],
    ("BAD_PARAM", "workspace or reserve space too small"): lambda name: [*NO_WORKSPACE(name), *SMALL(name)],
    ("BAD_PARAM", "any pointer NULL"): no_network,
    ("BAD_PARAM", "argument invalid"): lambda name: [({"desc": None}, "v6.null"), ({"math": 99}, "v6.enum")],
    ("BAD_PARAM", "an argument is invalid"): no_descriptor,
    ("BAD_PARAM", "probs and gradients dims differ"): argument("v6.dims", gradientsDesc=states(2, 1, 3)),
    ("BAD_PARAM", "inputLengths do not agree with the first dim of probs"): lambda name: [
        ({"inputLengths": [3]}, "v6.ctc.steps"), ({"inputLengths": []}, "v6.count"), ({"inputLengths": [-1]}, "v6.extent"),
    ],
    ("BAD_PARAM", "a label longer than 256"): lambda name: [
        ({"labels": [1] * 257, "labelLengths": [257]}, "v6.ctc.label_length"), ({"labels": [2]}, "v6.ctc.label"),
        ({"labels": [0]}, "v6.ctc.label"), ({"labels": []}, "v6.count"), ({"probsDesc": tensor((2, 1, 2, 1))}, "v6.rank"),
    ],
    ("NOT_SUPPORTED", "configuration not covered"): lambda name: (
        argument("v6.recurrent.floating", xDesc=states(1, 1, 1, kind=INT8))(name) if "RNN" in name else
        dropout_tensors(x=tensor((1, 1, 1, 1), kind=INT8), y=tensor((1, 1, 1, 1), kind=INT8),
                        rule="v6.recurrent.floating")(name)
    ),
    ("NOT_SUPPORTED", "hyper-parameters have no dynamic persistent kernel"): lambda name: [
        ({"dataType": DOUBLE}, "v6.rnn.precision"), ({"dataType": INT8}, "v6.recurrent.floating"),
    ],
    ("NOT_SUPPORTED", "persistent algo in a combination that has none"): argument(
        "v6.rnn.persistent", handle=OLD, algo=STATIC
    ),
    ("NOT_SUPPORTED", "xDesc data type unsupported"): lambda name: [
        ({"xDesc": steps([1], 1, INT8)}, "v6.recurrent.floating"), ({"xDesc": steps([1], 1, DOUBLE)}, "v6.rnn.precision"),
    ],
    ("NOT_SUPPORTED", "RNN/tensor combination unsupported"): argument(
        "v6.rnn.precision", xDesc=states(1, 1, 1, kind=DOUBLE), dataType=DOUBLE
    ),
    ("NOT_SUPPORTED", "varying batch sizes with a persistent algo"): persistent(batches=(2, 1)),
    ("NOT_SUPPORTED", "persistent algo on a device below compute capability 6.0"): persistent(old=True),
    ("NOT_SUPPORTED", "DOUBLE with PERSIST_STATIC"): persistent(kind=DOUBLE),
    ("NOT_SUPPORTED", "PERSIST_DYNAMIC without a plan"): another_plan,
    ("NOT_SUPPORTED", "compute or data type not FLOAT, or unknown algo"): ctc_types,
}  # fmt: skip

# Results are returned, so there is no pointer to be null; a query of a size has no workspace to be small.
IMPOSSIBLE = {
    **{(name, "output pointer NULL"): None for name, _, _ in CONDITIONS},
    ("cudnnGetCTCLossWorkspaceSize", "workspace too small"): "workspace",
}
FAILURES = ("ALLOC_FAILED", "EXECUTION_FAILED", "RUNTIME_PREREQUISITE_MISSING")


@pytest.mark.parametrize(("name", "status", "condition"), CONDITIONS, ids=[" ".join(c) for c in CONDITIONS])
def test_condition(name: str, status: str, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = functions()[name]
    assert status in row.statuses
    if (name, condition) in IMPOSSIBLE:
        pointer = IMPOSSIBLE[name, condition]
        assert row.results if pointer is None else pointer not in parameters(name)
        return
    if status in FAILURES:
        fails(name, status, monkeypatch)
        return
    cases = PROVOKED[status, condition](name)
    assert cases
    for changes, rule in cases:
        arguments = dict(zip([p.name for p in row.inputs], good_arguments(row), strict=True))
        assert changes.keys() <= arguments.keys()
        arguments |= changes
        written = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
        with pytest.raises(v6.CudnnError) as error:
            getattr(v6, name)(**arguments)
        found = error.value.rejections[0]
        assert (error.value.status.name, found.rule) == (f"CUDNN_STATUS_{status}", rule), changes
        assert all((found.reason, found.fix, found.expected))
        assert all(np.array_equal(arguments[n], a) for n, a in written.items()), "something was written"
        with v6.returning_status():
            result = getattr(v6, name)(**arguments)
        assert (result[0] if isinstance(result, tuple) else result) is error.value.status


def fails(name: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in the machine is a status as well. On the host only a lack of memory does, so it is played."""

    def fail(*_: Any) -> None:
        if status == "ALLOC_FAILED":
            raise MemoryError
        raise error_for([UNSET.reject("plan", "launch", None, status=Status[status])])

    call = getattr(v6, name)
    if call.__name__.endswith(("Forward", "Backward", "Inference", "Training", "Data", "Weights", "Loss")):
        monkeypatch.setattr(PreparedCall, "__call__", fail)
    else:
        call = as_call(functions()[name], fail)
    with pytest.raises(v6.CudnnError) as error:
        call(*good_arguments(functions()[name]))
    assert error.value.status is v6.cudnnStatus[f"CUDNN_STATUS_{status}"]


def test_every_condition_is_in_the_file() -> None:
    """Each status of the function table has a line, and each line a way to provoke it."""
    listed = {(name, status) for name, status, _ in CONDITIONS}
    for name, row in functions().items():
        if row.family in ("dropout", "rnn") or "CTC" in name:
            assert {(name, status) for status in row.statuses} <= listed
    used = {(status, condition) for _, status, condition in CONDITIONS}
    assert set(PROVOKED) <= used
