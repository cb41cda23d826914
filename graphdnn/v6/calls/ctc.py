"""The CTC loss. Labels and lengths are read on the host when the call is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.enums import DataType, Status
from graphdnn.operations import CtcLoss
from graphdnn.operations.ctc import scratch_bytes
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.descriptor_checks import counted, entries, rank_in, same_dims
from graphdnn.v6.descriptor_values import CTCLoss, Descriptor, Handle, Tensor
from graphdnn.v6.enums import cudnnCTCLossAlgo_t, cudnnDataType_t
from graphdnn.v6.errors import refuse_if
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.raw_memory import at_least
from graphdnn.v6.raw_memory import memory as region
from graphdnn.v6.recurrent_rules import FLOAT_ONLY, LABEL, LABEL_LENGTH, STEPS
from graphdnn.v6.registry import implements

LONGEST = 256  # classes of a label
_FLOAT = cudnnDataType_t.CUDNN_DATA_FLOAT


def _checked(
    where: str, probs: Tensor, gradients: Tensor | None, labels: Sequence[int], label_lengths: Sequence[int],
    input_lengths: Sequence[int], loss: CTCLoss,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Padded labels, their lengths, and the steps of each sequence."""
    rank_in(where, "probsDesc", len(probs.dims), 3, 3, Status.BAD_PARAM)
    if gradients is not None:
        reason = "each probability has a gradient"
        same_dims(where, reason, {"probsDesc": probs, "gradientsDesc": gradients})
    types = {"probsDesc.dataType": probs.data_type, "ctcLossDesc.compType": loss.compute_type}
    types |= {} if gradients is None else {"gradientsDesc.dataType": gradients.data_type}
    refuse_if(FLOAT_ONLY.reject(where, name, t.name) for name, t in types.items() if t is not _FLOAT)
    steps, batch, classes = probs.dims
    lengths, inputs = counted(where, batch, labelLengths=label_lengths, inputLengths=input_lengths)
    entries(where, 0, labelLengths=lengths, inputLengths=inputs)
    refuse_if(
        STEPS.reject(where, f"inputLengths[{n}]", length, steps=steps)
        for n, length in enumerate(inputs)
        if length > steps
    )
    refuse_if(
        LABEL_LENGTH.reject(where, f"labelLengths[{n}]", length, longest=LONGEST)
        for n, length in enumerate(lengths)
        if length > LONGEST
    )
    (flat,) = counted(where, sum(lengths), labels=labels)
    refuse_if(
        LABEL.reject(where, f"labels[{i}]", label, last=classes - 1)
        for i, label in enumerate(flat)
        if not 0 < label < classes
    )
    padded, place = np.zeros((batch, max(1, *lengths)), np.int32), 0
    for n, length in enumerate(lengths):
        padded[n, :length] = flat[place : place + length]
        place += length
    return padded, np.array(lengths, np.int32), np.array(inputs, np.int32)


def _size(probs: Tensor, padded: Array) -> int:
    return scratch_bytes(probs.dims[0], probs.dims[1], padded.shape[1], DataType.FLOAT)


@implements("cudnnGetCTCLossWorkspaceSize")
def workspace_size(
    handle: Handle, probs_desc: Descriptor, gradients_desc: Descriptor | None, labels: Sequence[int],
    label_lengths: Sequence[int], input_lengths: Sequence[int], algo: cudnnCTCLossAlgo_t, desc: Descriptor,
) -> int:  # fmt: skip
    gradients = None if gradients_desc is None else gradients_desc.value
    probs = probs_desc.value
    padded, _, _ = _checked(
        "cudnnGetCTCLossWorkspaceSize", probs, gradients, labels, label_lengths, input_lengths, desc.value
    )
    return _size(probs, padded)


@implements("cudnnCTCLoss", "ctc_loss", "PyTorch")
def ctc_loss(
    handle: Handle, probs_desc: Descriptor, probs: Any, labels: Sequence[int], label_lengths: Sequence[int],
    input_lengths: Sequence[int], costs: Any, gradients_desc: Descriptor | None, gradients: Any,
    algo: cudnnCTCLossAlgo_t, desc: Descriptor, workspace: Any, workspace_bytes: int,
) -> None:  # fmt: skip
    """Costs, and gradients of the activations whose softmax ``probs`` is; without gradients or their descriptor,
    costs alone. Both algorithms compute in one order. Class 0 is the blank.
    """
    where, pv = "cudnnCTCLoss", probs_desc.value
    gv = None if gradients_desc is None else gradients_desc.value
    padded, lengths, inputs = _checked(where, pv, gv, labels, label_lengths, input_lengths, desc.value)
    at_least(where, "workSpaceSizeInBytes", workspace_bytes, _size(pv, padded))
    wanted = gv if gradients is not None else None

    def draw(draft: Draft) -> None:
        _, batch, _ = pv.dims
        ports: dict[str, Any] = {
            "probs": draft.memory(0, pv, "probs"),
            "labels": draft.plain(1, DataType.INT32, padded.shape, "labels", is_host=True),
            "label_lengths": draft.plain(2, DataType.INT32, (batch,), "label lengths", is_host=True),
            "input_lengths": draft.plain(3, DataType.INT32, (batch,), "input lengths", is_host=True),
            "costs": draft.plain(4, DataType.FLOAT, (batch,), "costs"),
            **({} if wanted is None else {"gradients": draft.memory(5, wanted, "gradients")}),
        }
        draft.add(CtcLoss(**ports))

    memory = None if workspace is None else region(where, "workspace", handle, workspace, _size(pv, padded))
    data = (probs, padded, lengths, inputs, costs, gradients)
    prepared(where, handle, (pv, wanted, padded.shape), draw)(data, memory)
