"""Descriptors of dropout, recurrent networks and the CTC loss in one line, and legal arguments for their functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphdnn import v6


def dropout(probability: float = 0.0, seed: int = 1, states: bool = True) -> Any:
    desc, size = v6.cudnnCreateDropoutDescriptor(), 16
    memory = np.zeros(size, np.uint8) if states else None
    v6.cudnnSetDropoutDescriptor(desc, v6.cudnnCreate(), probability, memory, size, seed)
    return desc


def rnn(
    mode: Any = v6.CUDNN_RNN_RELU, hidden: int = 1, layers: int = 1, *, probability: float = 0.0, bidirectional: bool = False,
    skip: bool = False, algo: Any = v6.CUDNN_RNN_ALGO_STANDARD, kind: Any = v6.CUDNN_DATA_FLOAT, drops: Any = None,
) -> Any:  # fmt: skip
    desc = v6.cudnnCreateRNNDescriptor()
    v6.cudnnSetRNNDescriptor_v6(
        v6.cudnnCreate(), desc, hidden, layers, drops or dropout(probability), int(skip), int(bidirectional), mode, algo,
        kind,
    )  # fmt: skip
    return desc


def steps(batch_sizes: Sequence[int], values: int, kind: Any = v6.CUDNN_DATA_FLOAT) -> list[Any]:
    """Descriptors of the steps of a sequence."""
    found = []
    for batch in batch_sizes:
        desc = v6.cudnnCreateTensorDescriptor()
        v6.cudnnSetTensorNdDescriptor(desc, kind, 3, [batch, values, 1], [values, 1, 1])
        found.append(desc)
    return found


def states(*dims: int, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensorNdDescriptor(desc, kind, 3, dims, [dims[1] * dims[2], dims[2], 1])
    return desc


def weights(count: int, kind: Any = v6.CUDNN_DATA_FLOAT) -> Any:
    desc = v6.cudnnCreateFilterDescriptor()
    v6.cudnnSetFilterNdDescriptor(desc, kind, v6.CUDNN_TENSOR_NCHW, 3, [count, 1, 1])
    return desc


def plan() -> Any:
    return v6.cudnnCreatePersistentRNNPlan(rnn(algo=v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC), 1, v6.CUDNN_DATA_FLOAT)


# Descriptors that a legal call takes, by kind.
DESCRIPTORS = {
    "DropoutDescriptor": dropout,
    "RNNDescriptor": rnn,
    "PersistentRNNPlan": plan,
}


def special_arguments(function: str) -> dict[str, Any]:
    """Where the arguments of a function differ from those of every other, by parameter."""
    if "DropoutDescriptor" in function:
        return {"states": np.zeros(16, np.uint8), "stateSizeInBytes": 16, "dropout": 0.5}
    if function.startswith("cudnnDropout"):
        return {"reserveSpace": np.full(4, 255, np.uint8), "reserveSpaceSizeInBytes": 4}
    if function == "cudnnSetPersistentRNNPlan":
        return {"rnnDesc": rnn(algo=v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC)}
    if "RNN" in function and "RNNDescriptor" not in function:
        return {
            **{name: steps([1], 1) for name in ("xDesc", "yDesc", "dxDesc", "dyDesc")},
            **{f"{name}Desc": states(1, 1, 1) for name in ("hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy")},
            **{name: weights(4) for name in ("wDesc", "dwDesc")},
            **({"xDesc": states(1, 1, 1)} if "Params" in function else {}),
            "w": np.ones(4, np.float32), "dw": np.ones(4, np.float32), "layer": 0, "linLayerID": 0,
            "workspace": np.zeros(256, np.uint8), "workSpaceSizeInBytes": 256,
            "reserveSpace": np.zeros(4, np.uint8), "reserveSpaceSizeInBytes": 4,
        }  # fmt: skip
    if function in ("cudnnCTCLoss", "cudnnGetCTCLossWorkspaceSize"):
        return {
            "probsDesc": states(2, 1, 2), "gradientsDesc": states(2, 1, 2), "labels": [1], "labelLengths": [1],
            "inputLengths": [2], "probs": np.full((2, 1, 2), 0.5, np.float32), "costs": np.ones(1, np.float32),
            "gradients": np.ones((2, 1, 2), np.float32), "workspace": np.zeros(48, np.uint8),
            "workSpaceSizeInBytes": 48,
        }  # fmt: skip
    return {}
