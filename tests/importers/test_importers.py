"""Problems in the words of benchdnn and MIOpenDriver: every line becomes one, or says why it is none. And the command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from frontend_files import chain

from graphdnn.analysis.oracle import reference
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.errors import MalformedFile
from graphdnn.importers import FORMATS, Imported, read
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
