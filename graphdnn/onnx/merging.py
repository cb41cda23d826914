"""Merging: nodes that disappear into a convolution before it is lowered.

A BatchNormalization with constant statistics becomes part of the constant weights in front of it; a Pad with zeros
becomes padding of the convolution behind it. Weights are folded in DOUBLE and rounded once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.slicing import pads_of
from graphdnn.onnx.partition import reads
from graphdnn.onnx.specialization import Specialization
from graphdnn.onnx.value import Value

_CONVOLUTIONS = ("Conv", "ConvTranspose")


def merge(found: Specialization) -> list[str]:
    """Merge nodes of a specialization in place.

    Args:
        found: The specialization.

    Returns:
        One line for each merged node.
    """
    lines: list[str] = []
    readers = Counter(name for node in found.nodes for name in reads(node))
    readers.update(found.outputs)
    producer = {name: node for node in found.nodes for name in node.outputs if name}
    for node in list(found.nodes):
        if node not in found.operators or not node.inputs:
            continue
        before = producer.get(node.inputs[0])
        if before is None or before not in found.operators or readers[node.inputs[0]] != 1:
            continue
        made = None
        if node.op_type == "BatchNormalization" and before.op_type in _CONVOLUTIONS:
            made = _with_statistics(found, before, node)
        elif node.op_type == "Conv" and before.op_type == "Pad":
            made = _with_padding(before, node)
        if made is not None:
            kept, gone = (before, node) if node.op_type == "BatchNormalization" else (node, before)
            lines.append(f"{gone.where} is part of {kept.where}")
            _replace(found, before, node, made)
            producer.update(dict.fromkeys(filter(None, made.outputs), made))
    return lines


def _replace(found: Specialization, before: Node, node: Node, made: Node) -> None:
    row = found.operators[before if before.op_type in _CONVOLUTIONS else node]
    found.nodes[found.nodes.index(node)] = made
    found.nodes.remove(before)
    del found.operators[before], found.operators[node]
    found.operators[made] = row


def _with_statistics(found: Specialization, conv: Node, norm: Node) -> Node | None:
    """The convolution with weights and bias that contain the normalization."""
    constants = [norm.constant(i) for i in range(1, 5)]
    weight, bias = conv.constant(1), conv.constant(2)
    known = weight is not None and all(c is not None for c in constants) and (bias is not None or not conv.has(2))
    plain = not norm.attribute("training_mode", 0) and not any(norm.gives(i) for i in range(1, 5))
    if not known or not plain or not conv.type(0).is_float:
        return None
    scale, shift, mean, variance = (np.asarray(c, np.float64) for c in constants)
    factor = scale / np.sqrt(variance + norm.attribute("epsilon", 1e-5))
    assert weight is not None
    old = np.zeros(len(factor)) if bias is None else np.asarray(bias, np.float64)
    label = f"{conv.name}+{norm.name}"
    names = [f"{label}/weight", f"{label}/bias"]
    arrays = (_scaled(conv, weight, factor), (old - mean) * factor + shift)
    for name, array in zip(names, arrays, strict=True):
        number = conv.value(1).number
        found.values[name] = Value(number, array.shape, array.astype(weight.dtype))
    return replace(conv, inputs=[conv.inputs[0], *names], outputs=norm.outputs[:1])


def _scaled(conv: Node, weight: Array, factor: Array) -> Array:
    """Weights times a factor for each output channel."""
    wide = np.asarray(weight, np.float64)
    if conv.op_type == "Conv":
        return wide * factor.reshape(-1, *(1,) * (wide.ndim - 1))
    groups = conv.attribute("group", 1)  # filters of a transposed convolution are [C, K of one group, ...]
    split = wide.reshape(groups, wide.shape[0] // groups, *wide.shape[1:])
    return np.asarray(split * factor.reshape(groups, 1, -1, *(1,) * (wide.ndim - 2))).reshape(wide.shape)


def _with_padding(pad: Node, conv: Node) -> Node | None:
    """The convolution with the zeros in front of it as its padding."""
    value = pad.constant(2)
    filled: Any = pad.attribute("value", 0.0) if value is None else value.reshape(-1)[0]
    before, behind = pads_of(pad)
    plain = pad.attribute("mode", "constant") == "constant" and filled == 0
    spatial = not any(before[:2]) and not any(behind[:2]) and min([*before, *behind]) >= 0
    if not plain or not spatial or conv.attribute("auto_pad", "NOTSET") not in ("NOTSET", ""):
        return None
    count = len(before) - 2
    old = conv.attribute("pads") or [0] * 2 * count
    pads = [a + b for a, b in zip(old, [*before[2:], *behind[2:]], strict=True)]
    return replace(
        conv, inputs=[pad.inputs[0], *conv.inputs[1:]], attributes={**conv.attributes, "pads": pads}
    )  # fmt: skip
