"""Graphs as cuDNN's Python frontend writes them: one with each of its tags, and a chain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np


def entry(name: str, dim: list[int], data_type: Any = "FLOAT", **fields: Any) -> dict[str, Any]:
    stride = [int(np.prod(dim[i + 1 :])) for i in range(len(dim))]
    return {
        "name": name, "data_type": data_type, "dim": dim, "stride": stride, "is_virtual": False, "pass_by_value": None,
        "is_pass_by_value": False, "reordering_type": "NONE", "uid": 0, "uid_assigned": False, **fields,
    }  # fmt: skip


def node(tag: str, inputs: dict[str, Any], outputs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "tag": tag,
        "name": fields.pop("name", "0"),
        "compute_data_type": None,
        "inputs": inputs,
        "outputs": outputs,
        **fields,
    }


def frontend(nodes: list[dict[str, Any]], *tensors: dict[str, Any]) -> str:
    context = {
        "name": "g", "compute_data_type": "FLOAT", "intermediate_data_type": "FLOAT", "io_data_type": "FLOAT",
        "sm_count": None, "is_dynamic_shape_enabled": False, "is_override_shape_enabled": False,
    }  # fmt: skip
    return json.dumps({
        "context": context, "cudnn_backend_version": "9.21.0", "cudnn_frontend_version": 12300, "json_version": "1.0",
        "nodes": nodes, "tensors": {str(t["uid"]) if t["uid_assigned"] else t["name"]: t for t in tensors},
    })  # fmt: skip


X, C, IMAGE = "x", [1, 4, 1, 1], [2, 4, 6, 6]

CONV = {
    "pre_padding": [1, 1],
    "post_padding": [1, 1],
    "stride": [1, 1],
    "dilation": [1, 1],
    "math_mode": "CROSS_CORRELATION",
}

CHANNEL = [entry(n, C) for n in ("scale", "bias", "mean", "inv", "sum", "sq")]

SCALARS = [entry(n, [1, 1, 1, 1], is_pass_by_value=True) for n in ("epsilon", "momentum")]

IMAGES = [entry(n, IMAGE) for n in ("x", "dy", "y", "b")]

AFFINE, SAVED = {"SCALE": "scale", "BIAS": "bias"}, {"MEAN": "mean", "INV_VARIANCE": "inv"}

BACK = {"DY": "dy", "X": "x", "SCALE": "scale", **SAVED}

GRADIENTS = [entry("dx", IMAGE), entry("ds", C), entry("db", C)]

GRADS = {"DX": "dx", "DSCALE": "ds", "DBIAS": "db"}

STATS = {"Y": "y", "MEAN": "m", "INV_VARIANCE": "v"}


def _stats(dim: list[int]) -> list[dict[str, Any]]:
    return [entry("m", dim), entry("v", dim)]


NODES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "CONV_FPROP": (node("CONV_FPROP", {"X": "x", "W": "w"}, {"Y": "y"}, **CONV), [entry("w", [4, 4, 3, 3])]),
    "CONV_DGRAD": (node("CONV_DGRAD", {"DY": "dy", "W": "w"}, {"DX": "y"}, **CONV), [entry("w", [4, 4, 3, 3])]),
    "CONV_WGRAD": (node("CONV_WGRAD", {"DY": "dy", "X": "x"}, {"DW": "w"}, **CONV), [entry("w", [4, 4, 3, 3])]),
    "POINTWISE": (node("POINTWISE", {"IN_0": "x", "IN_1": "b"}, {"OUT_0": "y"}, mode="ADD", axis=None), []),
    "MATMUL": (node("MATMUL", {"A": "a", "B": "c"}, {"C": "d"}, padding_value="00000000"), [entry("a", [2, 3, 4]), entry("c", [2, 4, 5]), entry("d", [2, 3, 5])]),
    "REDUCTION": (node("REDUCTION", {"X": "x"}, {"Y": "m"}, mode="ADD", is_deterministic=False), _stats(C)),
    "GENSTATS": (node("GENSTATS", {"X": "x"}, {"SUM": "m", "SQ_SUM": "v"}), _stats(C)),
    "BATCHNORM": (
        node("BATCHNORM", {"X": "x", **AFFINE, "EPSILON": "epsilon", "PREV_RUNNING_MEAN": "mean", "PREV_RUNNING_VAR": "inv", "MOMENTUM": "momentum"}, {**STATS, "NEXT_RUNNING_MEAN": "nm", "NEXT_RUNNING_VAR": "nv"}, peer_stats=[]),
        [*_stats(C), entry("nm", C), entry("nv", C)],
    ),
    "BATCHNORM_INFERENCE": (node("BATCHNORM_INFERENCE", {"X": "x", **AFFINE, **SAVED}, {"Y": "y"}), []),
    "DBN": (node("DBN", BACK, GRADS, peer_stats=[]), GRADIENTS),
    "DBN_WEIGHT": (
        node("DBN_WEIGHT", BACK, {"DSCALE": "ds", "DBIAS": "db", "EQ_SCALE_DY": "a", "EQ_SCALE_X": "c", "EQ_BIAS": "d"}),
        [*GRADIENTS, entry("a", C), entry("c", C), entry("d", C)],
    ),
    "BN_FINALIZE": (
        node("BN_FINALIZE", {"SUM": "sum", "SQ_SUM": "sq", **AFFINE, "EPSILON": "epsilon", "ACCUM_COUNT": "count", "MOMENTUM": "momentum"}, {"EQ_SCALE": "a", "EQ_BIAS": "c", "MEAN": "m", "INV_VARIANCE": "v"}),
        [entry("count", [1, 1, 1, 1], "INT64", is_pass_by_value=True), *_stats(C), entry("a", C), entry("c", C)],
    ),
    "LAYER_NORM": (node("LAYER_NORM", {"X": "x", "SCALE": "s", "BIAS": "t", "EPSILON": "epsilon"}, STATS, forward_phase="TRAINING"), [entry("s", [1, 4, 6, 6]), entry("t", [1, 4, 6, 6]), *_stats([2, 1, 1, 1])]),
    "ADA_LAYER_NORM": (node("ADA_LAYER_NORM", {"X": "x", "SCALE": "s", "BIAS": "t", "EPSILON": "epsilon"}, STATS, forward_phase="TRAINING"), [entry("s", IMAGE), entry("t", IMAGE), *_stats([2, 4, 6, 1])]),
    "INSTANCE_NORM": (node("INSTANCE_NORM", {"X": "x", **AFFINE, "EPSILON": "epsilon"}, {"Y": "y"}, forward_phase="INFERENCE"), []),
    "RMS_NORM": (node("RMS_NORM", {"X": "x", "SCALE": "s", "EPSILON": "epsilon"}, {"Y": "y", "INV_VARIANCE": "v"}, forward_phase="TRAINING"), [entry("s", [1, 4, 6, 6]), entry("v", [2, 1, 1, 1])]),
    "LAYER_NORM_BPROP": (
        node("LAYER_NORM_BPROP", {**BACK, "SCALE": "s", "MEAN": "m", "INV_VARIANCE": "v"}, {"DX": "dx", "DSCALE": "e", "DBIAS": "f"}),
        [entry("s", [1, 4, 6, 6]), *_stats([2, 1, 1, 1]), entry("dx", IMAGE), entry("e", [1, 4, 6, 6]), entry("f", [1, 4, 6, 6])],
    ),
    "ADA_LAYER_NORM_BPROP": (
        node("ADA_LAYER_NORM_BPROP", {**BACK, "SCALE": "s", "MEAN": "m", "INV_VARIANCE": "v"}, {"DX": "dx", "DSCALE": "e", "DBIAS": "f"}),
        [entry("s", IMAGE), *_stats([2, 4, 6, 1]), entry("dx", IMAGE), entry("e", IMAGE), entry("f", IMAGE)],
    ),
    "INSTANCE_NORM_BPROP": (node("INSTANCE_NORM_BPROP", {**BACK, "MEAN": "m", "INV_VARIANCE": "v"}, GRADS), [*_stats([2, 4, 1, 1]), *GRADIENTS]),
    "RMS_NORM_BPROP": (
        node("RMS_NORM_BPROP", {"DY": "dy", "X": "x", "SCALE": "s", "INV_VARIANCE": "v"}, {"DX": "dx", "DSCALE": "e"}, use_dbias=False),
        [entry("s", [1, 4, 6, 6]), entry("v", [2, 1, 1, 1]), entry("dx", IMAGE), entry("e", [1, 4, 6, 6])],
    ),
    "RESAMPLE": (
        node("RESAMPLE", {"X": "x"}, {"Y": "p", "Index": "i"}, resample_mode="MAXPOOL", padding_mode="NEG_INF_PAD", window=[2, 2], stride=[2, 2], pre_padding=[0, 0], post_padding=[0, 0], generate_index=True),
        [entry("p", [2, 4, 3, 3]), entry("i", [2, 4, 3, 3], "INT8")],
    ),
    "RESHAPE": (node("RESHAPE", {"X": "x"}, {"Y": "r"}, dim=[2, 144], stride=[144, 1], reshape_mode="VIEW_ONLY"), [entry("r", [], stride=[])]),
    "TRANSPOSE": (node("TRANSPOSE", {"X": "x"}, {"Y": "r"}, permutation=[0, 2, 3, 1]), [entry("r", [2, 6, 6, 4])]),
    "SLICE": (node("SLICE", {"X": "x"}, {"Y": "r"}, slices=[[0, 2], [1, 3], [0, 6], [0, 6]], slice_strides=[1]), [entry("r", [2, 2, 6, 6])]),
    "CONCATENATE": (node("CONCATENATE", {"0": "x", "1": "b"}, {"Y": "r"}, axis=1, in_place_index=None), [entry("r", [2, 8, 6, 6])]),
    "RNG": (node("RNG", {"Seed": "seed", "Offset": "offset"}, {"Y": "y"}, distribution="BERNOULLI", bernoulli_probability="3F000000", seed=None, dim=[], stride=[]), [entry("seed", [1, 1, 1, 1], "INT64", is_pass_by_value=True), entry("offset", [1, 1, 1, 1], "INT64", is_pass_by_value=True)]),
}  # fmt: skip


def used(case: str, **changes: Any) -> str:
    made, own = NODES[case]
    made = {**made, **changes}
    known = {t["name"]: t for t in (*IMAGES, *CHANNEL, *SCALARS, *own)}
    refs = [ref for ref in (*made["inputs"].values(), *made["outputs"].values()) if ref in known]
    return frontend([made], *(known[ref] for ref in dict.fromkeys(refs)))


def chain(**last: Any) -> str:
    virtual = {"is_virtual": True, "stride": []}
    nodes = [
        node("POINTWISE", {"IN_0": "1::OUT_0"}, {"OUT_0": 17}, mode="RELU_FWD", name="2", **last),
        node("POINTWISE", {"IN_0": "0::Y", "IN_1": "bias"}, {"OUT_0": "1::OUT_0"}, mode="ADD", name="1"),
        node("CONV_FPROP", {"X": "x", "W": "w"}, {"Y": "0::Y"}, **CONV),
    ]
    return frontend(
        nodes, entry("x", IMAGE, "HALF"), entry("w", [4, 4, 3, 3], "HALF"), CHANNEL[1], entry("0::Y", [], None, **virtual),
        entry("1::OUT_0", [], None, **virtual), entry("y", [], "HALF", stride=[], uid=17, uid_assigned=True),
    )  # fmt: skip
