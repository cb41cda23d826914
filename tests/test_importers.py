"""Problems in the words of benchdnn, MIOpenDriver and cuDNN's frontend: every line becomes one, or says why it is none."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import assert_checked, damaged

import graphdnn
from graphdnn import fuse
from graphdnn.cli import main
from graphdnn.cli.outcome import Exit
from graphdnn.errors import BadParam, MalformedFile
from graphdnn.graph import OperationGraph
from graphdnn.importers import FORMATS, Imported, read
from graphdnn.importers.frontend_rows import TAGS
from graphdnn.oracle import reference
from graphdnn.problem import parse

BENCHDNN = {
    'mb64ic64oc64ih56oh56kh3ph1n"c2"': ["conv x=f32[64,64,56,56] w=f32[64,64,3,3] pad=1 + bias"],
    "ic8ih8oc16kh3": ["conv x=f32[2,8,8,8] w=f32[16,8,3,3] + bias"],
    "ic8ih8oc16oh8kh3": ["conv x=f32[2,8,8,8] w=f32[16,8,3,3] pad=1 + bias"],
    "ic16ih14oc16oh7kh3sh2": ["conv x=f32[2,16,14,14] w=f32[16,16,3,3] post=1 stride=2 + bias"],
    "ic8ih9iw5oc8kh3kw1ph1pw0dh1": ["conv x=f32[2,8,9,5] w=f32[8,8,3,1] pad=1,0 dil=2,1 + bias"],
    "mb1_ic4_iw7_oc4_kw3_pw1": ["conv x=f32[1,4,7] w=f32[4,4,3] pad=1 + bias"],
    "mb4ic8id8oc8od8kd3pd1": ["conv x=f32[4,8,8,8,8] w=f32[8,8,3,3,3] pad=1 + bias"],
    "g32mb1ic32ih12oc64kh3ph1": ["conv x=f32[1,32,12,12] w=f32[64,1,3,3] pad=1 + bias"],
    "--dir=BWD_D --dt=bf16 ic3ih227oc96oh55kh11sh4ph0": [
        "dgrad dy=bf16[2,96,55,55] w=bf16[96,3,11,11] dx=[2,3,227,227] stride=4"
    ],
    "--dir=BWD_WB --mb=8 --dt=f16 mb2ic4ih6oc4kh1": [
        "wgrad x=f16[8,4,6,6] dy=f16[8,4,6,6] dw=[4,4,1,1]",
        "reduce add x=f16[8,4,6,6] y=[1,4,1,1]",
    ],
    "--dir=FWD_I,BWD_D ic4ih6oc4kh1": [
        "conv x=f32[2,4,6,6] w=f32[4,4,1,1]",
        "dgrad dy=f32[2,4,6,6] w=f32[4,4,1,1] dx=[2,4,6,6]",
    ],
    "--dir=FWD_D --dt=u8:s8:s32,f8_e4m3 ic4ih6oc4kh1": [
        "conv x=u8[2,4,6,6] w=i8[4,4,1,1]",
        "conv x=e4m3[2,4,6,6] w=e4m3[4,4,1,1]",
    ],
    "--dir=FWD_D --cfg=u8s8f32 ic4ih6oc4kh1": ["conv x=u8[2,4,6,6] w=i8[4,4,1,1] out=f32"],
    "--dir=FWD_D --cfg=bf16bf16f32 ic4ih6oc4kh1": ["conv x=bf16[2,4,6,6] w=bf16[4,4,1,1] out=f32"],
    "--dt=f16 --stag=nhwc --wtag=ohwi --dtag=axb ic4ih6oc4kh1": ["conv x=f16[2,4,6,6]nhwc w=f16[4,4,1,1]nhwc + bias"],
    "--attr-post-ops=sum+relu ic4ih6oc4kh1": ["conv x=f32[2,4,6,6] w=f32[4,4,1,1] + bias + residual + relu"],
    "--attr-post-ops='relu:0.1;clip:0:6;gelu_erf' ic4ih6oc4kh1": [
        "conv x=f32[2,4,6,6] w=f32[4,4,1,1] + bias + leaky_relu(0.1) + clip(0,6) + gelu"
    ],
    "./build/tests/benchdnn/benchdnn --conv --mode=P -v5 --engine=gpu --alg=wino --match=.* ic4ih6oc4kh1": [
        "conv x=f32[2,4,6,6] w=f32[4,4,1,1] + bias"
    ],
}
REFUSED_BENCHDNN = {
    "ic8ih8oc8kh1xx": "import.unknown", "ic8ih8oc8kh1pw1": "import.missing", "ih8oc8kh1": "import.missing",
    "ic8oc8": "import.missing", "ic8ih8oc8": "import.missing", "ic8id8ih8oc8kd1kh1": "import.missing",
    "g3ic8ih8oc8kh1": "import.value", "ic8ih2oc8kh3": "conv.filter.fits", "ic8ih8oc8oh99kh3ph1sh0": "import.value",
    "--dir=FWD ic8ih8oc8kh1": "import.unknown", "--dt=f8 ic8ih8oc8kh1": "import.unknown", "--dt=f32:f32 ic8ih8oc8kh1": "import.value",
    "--cfg=q8 ic8ih8oc8kh1": "import.unknown", "--stag=nChw16c ic8ih8oc8kh1": "import.unknown",
    "--dtag=nhwc --stag=nchw ic8ih8oc8kh1": "import.unlike", "--attr-post-ops=prelu:per_oc ic8ih8oc8kh1": "import.unknown",
    "--attr-post-ops=sum:0.5 ic8ih8oc8kh1": "import.unknown", "--attr-scales=wei:common:0.5 ic8ih8oc8kh1": "import.unknown",
    "--attr-fpmath=tf32 ic8ih8oc8kh1": "import.unknown", "--dir=BWD_D --attr-post-ops=relu ic8ih8oc8kh1": "import.unknown",
    "--batch=shapes_resnet": "import.unknown", "--matmul 3x4:4x5": "import.unknown", "--mb=x ic8ih8oc8kh1": "import.value",
    'ic8ih8oc8kh1n"open': "import.value",
}  # fmt: skip
MIOPEN = {
    "convfp16 -n 64 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1 --in_layout NHWC --fil_layout NHWC --out_layout NHWC": ["conv x=f16[64,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1"],
    "conv -F 1": ["conv x=f32[100,3,32,32] w=f32[32,3,3,3]"],
    "conv -n 2 -c 32 -H 14 -W 12 -k 64 -y 3 -x 1 -p 1 -u 2 -v 2 -g 2 -l 2 -t 1 -b 1": [
        "conv x=f32[2,32,14,12] w=f32[64,16,3,1] pad=1,0 stride=2 dil=2,1 + bias",
        "dgrad dy=f32[2,64,6,6] w=f32[64,16,3,1] dx=[2,32,14,12] pad=1,0 stride=2 dil=2,1",
        "wgrad x=f32[2,32,14,12] dy=f32[2,64,6,6] dw=[64,16,3,1] pad=1,0 stride=2 dil=2,1",
        "reduce add x=f32[2,64,6,6] y=[1,64,1,1]",
    ],
    "convbfp16 --spatial_dim 3 -n 2 -c 4 --in_d 8 -H 8 -W 8 -k 4 --fil_d 3 -F 4": ["wgrad x=bf16[2,4,8,8,8] dy=bf16[2,4,6,6,6] dw=[4,4,3,3,3]"],
    "convint8 -n 2 -c 8 -H 7 -W 7 -k 4 -F 1 -z same": ["conv x=i8[2,8,7,7] w=i8[4,8,3,3] pad=1"],
    "conv -n 2 -c 8 -H 7 -W 7 -k 4 -F 1 -p 3 -q 3 -z valid": ["conv x=f32[2,8,7,7] w=f32[4,8,3,3]"],
    "conv -m trans -n 2 -c 8 -H 7 -W 7 -k 4 -u 2 -v 2 -p 1 -q 1 -Y 1 -X 1 -b 1": [
        "dgrad dy=f32[2,8,7,7] w=f32[8,4,3,3] dx=[2,4,14,14] pad=1 stride=2 + bias",
        "conv x=f32[2,4,14,14] w=f32[8,4,3,3] pad=1 stride=2",
        "wgrad x=f32[2,4,14,14] dy=f32[2,8,7,7] dw=[8,4,3,3] pad=1 stride=2",
        "reduce add x=f32[2,4,14,14] y=[1,4,1,1]",
    ],
}  # fmt: skip
REFUSED_MIOPEN = {
    "bnorm -n 2": "import.unknown", "convfp8 -n 2": "import.unknown", "conv -n": "import.value", "conv --nothing 2": "import.unknown",
    "conv -n two": "import.value", "conv -n 0": "import.value", "conv -r 1": "import.value", "conv -L 4": "import.value",
    "conv -U fp8": "import.value", "conv -F 8": "import.value", "conv -m other": "import.value", "conv --spatial_dim 1": "import.value",
    "conv -I NCHW16c": "import.value", "conv -I NDHWC": "import.value", "conv -Y 1": "import.value", "conv -z best": "import.value",
    "conv -g 5": "import.value", "conv -H 1 -W 1 -F 1": "conv.filter.fits", "conv -F 1 --out_layout NHWC": "import.unlike",
    "conv -m trans -H 1 -W 1 -p 2 -q 2": "import.value", "conv -u 0": "import.value",
}  # fmt: skip


def texts(imported: Imported) -> list[str]:
    assert not imported.refused, "\n".join(map(str, imported.refused))
    for problem in imported.problems:
        assert parse(problem.text).build_operation_graph().key == problem.graph.key
    return [problem.text for problem in imported.problems]


def refused(imported: Imported, rule: str) -> None:
    """Nothing but rejections, complete, each with its line."""
    assert not imported.problems
    assert rule in [r.rule for r in imported.refused]
    for r in imported.refused:
        assert r.where.startswith("line 1")
        assert r.reason
        assert r.fix
        assert r.expected
        assert "{" not in r.reason + r.fix


@pytest.mark.parametrize("line", BENCHDNN)
def test_benchdnn(line: str) -> None:
    assert texts(read(line, "benchdnn")) == BENCHDNN[line]


@pytest.mark.parametrize("line", REFUSED_BENCHDNN)
def test_benchdnn_refuses(line: str) -> None:
    refused(read(line, "benchdnn"), REFUSED_BENCHDNN[line])


@pytest.mark.parametrize("line", MIOPEN)
def test_miopen(line: str) -> None:
    assert texts(read(f"HIP_VISIBLE_DEVICES=1 ./bin/MIOpenDriver {line}")) == MIOPEN[line]


@pytest.mark.parametrize("line", REFUSED_MIOPEN)
def test_miopen_refuses(line: str) -> None:
    refused(read(f"MIOpenDriver {line}"), REFUSED_MIOPEN[line])


def test_what_is_in_front_of_the_driver() -> None:
    refused(read("time MIOpenDriver conv -F 1"), "import.unknown")
    refused(read('MIOpenDriver conv -F "1'), "import.value")


def test_logs_and_scripts_of_miopen() -> None:
    text = """#!/bin/bash
MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 2 -c 4 -H 8 -W 8 -k 4 -F 1 -t 1
echo done
A=1 B=2 \\
    MIOpenDriver conv -n 2 -c 4 -H 8 -W 8 -k 4 --forw=1 > failure.log 2>&1
# MIOpenDriver conv -n 2
MIOpenDriver conv -F 1 | tee log
./MIOpenDriver conv -F 1 ${LAYOUT}
"""
    found = read(text)
    assert [problem.line for problem in found.problems] == [2, 4, 7]
    assert [r.where for r in found.refused] == ["line 8"]
    assert found.notes == ("lines that do not name MIOpenDriver: 1",)


def test_options_stay_until_reset_and_lines_are_counted() -> None:
    text = "# layers\n--dt=f16 --dir=FWD_D\nic4ih6oc4kh1\n\nic4ih6oc4kh1\n--reset\nic4ih6oc4kh1 ic8ih6oc4kh1\nic4ih6oc4kh1q ic4ih6oc5kh1"
    found = read(text)
    assert found.format == "benchdnn"
    assert [(p.line, p.text.split()[1][:5]) for p in found.problems] == [
        (3, "x=f16"),
        (5, "x=f16"),
        (7, "x=f32"),
        (7, "x=f32"),
        (8, "x=f32"),
    ]
    assert [r.where for r in found.refused] == ["line 8"]


def test_layout_where_the_source_leaves_it_open() -> None:
    assert "nhwc" in read("ic4ih6oc4kh1", "benchdnn", channels_last=True).problems[0].text
    assert "nhwc" not in read("--stag=nchw --wtag=oihw ic4ih6oc4kh1", "benchdnn", channels_last=True).problems[0].text


def test_padding_behind_gives_the_values_of_the_asked_output() -> None:
    """oh=7 of ih=14, kh=3, sh=2: benchdnn pads 0 in front and 1 behind."""
    graph = read("mb1ic1ih14oc1oh7kh3sh2n", "benchdnn").problems[0].graph
    x, w, b = graph.inputs
    image, taps = (
        np.random.default_rng(0).standard_normal((2, 1, 1, 14, 14)).astype(np.float32)[0],
        np.ones((1, 1, 3, 3), np.float32),
    )
    (y,) = reference(
        graph, {x.uid: image, w.uid: taps, b.uid: np.zeros(b.dims, np.float32), graph.outputs[0].uid: None}
    ).values()
    padded = np.pad(image[0, 0], ((0, 1), (0, 1))).astype(np.float64)
    wanted = [[padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3].sum() for j in range(7)] for i in range(7)]
    np.testing.assert_allclose(y[0, 0], wanted)


@pytest.mark.torch
def test_transposed_convolutions_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    line = "MIOpenDriver conv -m trans -n 2 -c 8 -H 5 -W 4 -k 6 -g 2 -u 2 -v 2 -p 1 -q 1 -Y 1 -X 1 -F 1"
    graph = read(line).problems[0].graph
    rng = np.random.default_rng(0)
    values = {t.uid: rng.standard_normal(t.dims).astype(np.float32) for t in graph.tensors.values()}
    (y,) = reference(graph, values).values()
    x, w = (torch.from_numpy(values[t.uid]).double() for t in (graph.operations[0].dy, graph.operations[0].w))  # type: ignore[attr-defined]
    wanted = torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2)
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-9, atol=1e-9)


# cuDNN's frontend.


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


def graph_of(text: str) -> OperationGraph:
    found = read(text)
    assert found.format == "cudnn-frontend"
    assert not found.refused, "\n".join(map(str, found.refused))
    return found.problems[0].graph


def used(case: str, **changes: Any) -> str:
    made, own = NODES[case]
    made = {**made, **changes}
    known = {t["name"]: t for t in (*IMAGES, *CHANNEL, *SCALARS, *own)}
    refs = [ref for ref in (*made["inputs"].values(), *made["outputs"].values()) if ref in known]
    return frontend([made], *(known[ref] for ref in dict.fromkeys(refs)))


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_of_the_frontend(tag: str) -> None:
    graph = graph_of(used(tag))
    assert {t.name for t in graph.outputs} == set(NODES[tag][0]["outputs"].values())
    assert fuse(graph)


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


def test_a_chain_in_any_order_with_open_types_and_an_assigned_uid() -> None:
    graph = graph_of(chain(relu_lower_clip="3F000000"))
    assert [op.label() for op in graph.operations] == ["conv_fprop '0'", "add '1'", "relu_fwd '2'"]
    assert len(fuse(graph)) == 1
    assert graph.outputs[0].uid == 17
    assert [t.data_type.name for t in graph.tensors.values() if t.is_virtual] == ["FLOAT", "FLOAT"]
    assert graph.operations[2].spec.relu_lower_clip == 0.5  # type: ignore[attr-defined]


def test_gradients_and_constants() -> None:
    back = node("POINTWISE", {"IN_0": "dy", "IN_1": "x"}, {"OUT_0": "y"}, mode="RELU_BWD")
    op = graph_of(frontend([back], *IMAGES[:3])).operations[0]
    assert {port: t.name for port, t in op.inputs().items()} == {"x": "x", "dy": "dy"}
    two = entry("two", [1], is_pass_by_value=True, pass_by_value={"index": 3, "value": "40000000"})
    graph = graph_of(
        frontend(
            [node("POINTWISE", {"IN_0": "x", "IN_1": "two"}, {"OUT_0": "y"}, mode="MUL")], *IMAGES[:1], IMAGES[2], two
        )
    )
    assert [t.constant_value for t in graph.tensors.values() if t.is_constant] == [2.0]


REFUSED_FRONTEND: dict[str, tuple[str, str]] = {
    "unknown tag": (used("POINTWISE", tag="SDPA"), "import.unknown"),
    "unknown port": (used("REDUCTION", inputs={"X": "x", "Z": "x"}), "import.unknown"),
    "unknown attribute": (used("REDUCTION", seed=3), "import.unknown"),
    "unwritten port": (used("INSTANCE_NORM", outputs={"Y": "y", "MEAN": "mean"}), "import.unknown"),
    "no such tensor": (used("REDUCTION", inputs={"X": "nothing"}), "import.missing"),
    "no operand": (used("MATMUL", inputs={"A": "a"}), "import.missing"),
    "no mode": (used("POINTWISE", mode=None), "import.missing"),
    "no axis": (used("CONCATENATE", axis=None), "import.missing"),
    "no seed": (used("RNG", inputs={"Offset": "offset"}), "import.missing"),
    "no input": (used("SLICE", inputs={}), "import.missing"),
    "mode": (used("POINTWISE", mode="SQUARE"), "import.value"),
    "list": (used("TRANSPOSE", permutation="0123"), "import.value"),
    "slices": (used("SLICE", slices=[1, 2, 3, 4]), "import.value"),
    "peers": (used("DBN", peer_stats=["x"]), "import.unknown"),
    "deterministic": (used("REDUCTION", is_deterministic=True), "import.unknown"),
    "padding": (used("MATMUL", padding_value="3F800000"), "builder.value"),
    "shapes": (used("CONV_FPROP", stride=[2, 2]), "conv.y.extents"),
    "in place": (used("CONCATENATE", in_place_index=0), "import.unknown"),
    "loop": (frontend([node("POINTWISE", {"IN_0": "y"}, {"OUT_0": "y"}, mode="ABS")], IMAGES[2]), "import.value"),
    "no nodes": ('{"nodes": 3, "tensors": {}}', "import.value"),
    "no tensors": ('{"nodes": [], "tensors": 1}', "import.value"),
    "dynamic": (
        chain().replace('"is_dynamic_shape_enabled": false', '"is_dynamic_shape_enabled": true'),
        "import.unknown",
    ),
    "hex": (chain(relu_lower_clip="3F00000Z"), "import.value"),
    "type": (chain().replace("HALF", "FP4_E2M1"), "tensor.data_type.storage"),
    "empty": ('{"nodes": [], "tensors": {}}', "graph.empty"),
}


@pytest.mark.parametrize("case", REFUSED_FRONTEND)
def test_the_frontend_reader_refuses(case: str) -> None:
    text, rule = REFUSED_FRONTEND[case]
    found = read(text, "cudnn-frontend")
    assert not found.problems
    if rule == "builder.value":
        assert found.refused[0].attribute == "padding"
    else:
        assert rule in [r.rule for r in found.refused], found.refused


# The command, and strangers.


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, output = tmp_path / "layers.txt", tmp_path / "problems.txt"
    source.write_text('--dt=f16 --dir=FWD_D\nmb1ic4ih6oc4kh1n"first"\nmb1ic4ih6oc4\n', encoding="utf-8")
    assert main(["import", str(source)]) == Exit.CHECK_FAILED
    out, err = capsys.readouterr()
    assert out == "conv x=f16[1,4,6,6] w=f16[4,4,1,1]  # line 2, first\n"
    assert "error: line 3: kh = nothing" in err
    assert main(["import", 'mb1ic4ih6oc4kh1n"first"', "-o", str(output)]) == Exit.OK
    assert main(["lock", "--from", str(output), "--device", "h200", "-o", str(tmp_path / "a.lock")]) == Exit.OK
    capsys.readouterr()
    assert main(["import", chain(), "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["source"], len(found["problems"])) == ("graphdnn.import", "cudnn-frontend", 1)
    assert main(["import", chain()]) == Exit.OK
    (tmp_path / "g.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["explain", str(tmp_path / "g.json")]) == Exit.OK
    assert main(["import", "hello"]) == Exit.USAGE
    assert "import.format" in capsys.readouterr().err
    assert main(["import", "{" * 50 + '"nodes""tensors"']) == Exit.USAGE
    assert "file.too_deep" in capsys.readouterr().err
    assert main(["import", str(source), "--json", "-o", str(output)]) == Exit.CHECK_FAILED
    assert "error: line 3: kh = nothing" in capsys.readouterr().err, "a file is not what one looks at"
    source.write_text("# no problem at all\n", encoding="utf-8")
    assert main(["import", str(source), "--format", "miopen"]) == Exit.OK
    assert "note: no line of miopen was found" in capsys.readouterr().err


def test_frontend_files_from_strangers() -> None:
    values, broken = assert_checked(
        lambda text: read(text.decode("utf-8", "replace"), "cudnn-frontend"), damaged(chain(), 500)
    )
    print(f"{values} were read, {broken} were no JSON")


@pytest.mark.parametrize("format", ["benchdnn", "miopen"])
def test_lines_from_strangers(format: str) -> None:
    """Whatever the bytes, each line is a problem or a rejection."""
    rng = random.Random(7)
    good = list(BENCHDNN) if format == "benchdnn" else [f"MIOpenDriver {line}" for line in MIOPEN]
    pieces = [
        "0",
        "9" * 20,
        "-",
        "--",
        "=",
        ":",
        ",",
        '"',
        "'",
        "\\",
        "ic",
        "n",
        "\x00",
        "é",
        " ",
        "-F",
        "--dt=f16",
        "f8",
        "#",
        "kh3",
    ]
    made = refusals = 0
    for _ in range(300):
        line = list(rng.choice(good))
        for _ in range(rng.choice((1, 2, 6))):
            at = rng.randrange(len(line) + 1)
            line[at : at + rng.choice((0, 1, 4))] = rng.choice(pieces)
        try:
            found = FORMATS[format].read("".join(line), False)
        except MalformedFile as error:
            assert error.rejections[0].rule == "import.format"
            continue
        made, refusals = made + len(found.problems), refusals + len(found.refused)
    print(f"{made} problems, {refusals} rejections")
    assert made > 3
    assert refusals > 50


def test_every_format_has_an_example_that_looks_like_it() -> None:
    assert FORMATS["miopen"].looks_like(FORMATS["miopen"].example)
    assert FORMATS["benchdnn"].looks_like(FORMATS["benchdnn"].example)
    assert FORMATS["cudnn-frontend"].looks_like(chain())


def _read_frontend(text: bytes) -> Imported:
    """Past the guard that makes one error of whatever a reader trips over: it has to trip over nothing."""
    return FORMATS["cudnn-frontend"].read(text.decode("utf-8", "replace"), False)


def test_the_builder_refuses_what_files_brought_up() -> None:
    """Wrong strides, steps of 0, operands of another rank: errors of the library, not of Python."""
    for tag, changes in (
        ("SLICE", {"slices": [[0, 2], [1, 3], [0, 6], [0, 6]], "slice_strides": [0]}),
        ("RESAMPLE", {"window": [2], "stride": [2], "pre_padding": [0], "post_padding": [0]}),
        ("BATCHNORM", {"inputs": {"X": "x", "SCALE": "scale", "EPSILON": "epsilon"}}),
    ):
        assert FORMATS["cudnn-frontend"].read(used(tag, **changes), False).refused
    g = graphdnn.Graph(io_data_type="f32")
    x = g.tensor([2, 3], stride=[1])
    g.add(x, g.tensor([4, 2, 3])).set_output(True)
    with pytest.raises(BadParam, match=r"tensor\.strides\.length"):
        g.build_operation_graph()
    g = graphdnn.Graph(io_data_type="f32")
    with pytest.raises(BadParam, match=r"builder\.slices"):
        g.slice(g.tensor([4]), [slice(0, 4, 0)])
