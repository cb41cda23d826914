"""Standalone programs: every kernel's file compiles or is refused, says what it is, and compares all outputs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from legal_problems import operation
from random_problems.named_problems import NAMED, Named
from random_problems.run_and_compare import Prepared

from graphdnn import ExecutionPlan, Graph, NotSupported, device_spec, rank
from graphdnn.analysis.kernels import KernelView, of_plan
from graphdnn.analysis.kernels.standalone import compile_options, standalone
from graphdnn.analysis.kernels.standalone.loops import LOOPS
from graphdnn.analysis.kernels.standalone.program import NO_LAUNCH, NO_LAYOUT, NO_LOOPS, for_device
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda.nvrtc import KernelText, compile_text
from graphdnn.problem import parse

LAYER = "conv x=f16[2,64,14,14]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"
REFUSALS = {NO_LAUNCH.id, NO_LOOPS.id, NO_LAYOUT.id}
# One problem of many kinds: convolutions in three directions, products, sums, softmax, norms, copies.
SHORT = (
    (LAYER, "h200"),
    (LAYER, "a100"),
    ("dgrad dy=f16[2,16,6,6]nhwc w=f16[16,16,3,3] dx=[2,16,12,12] pad=1 stride=2", "a100"),
    ("wgrad x=f32[2,6,9,11] dy=f32[2,4,9,11] dw=[4,3,3,3] pad=1", "a100"),
    ("conv x=i8[1,16,6,6]nhwc w=i8[8,16,3,3]nhwc compute=i32 out=i32", "a100"),
    ("reduce avg x=f32[4,33] y=[1,33] + sqrt", "a100"),
    ("pointwise x=f16[4,33] + gelu + mul", "a100"),
)


def kernel_of(text: str, device: str) -> KernelView:
    return of_plan(ExecutionPlan(rank(parse(text).build_operation_graph(), device).best))[0]


def compiles(kernel: KernelView, text: str) -> None:
    own = tuple(dict.fromkeys(option for each in kernel.texts for option in each.options))
    compile_text(KernelText("standalone", text, own), kernel.architecture)


@pytest.mark.parametrize(("text", "device"), SHORT)
def test_the_device_part_compiles(text: str, device: str) -> None:
    kernel = kernel_of(text, device)
    compiles(kernel, standalone(kernel, "0"))


def _kernels(named: Named) -> Iterator[KernelView]:
    """On the first device that serves the problem."""
    for device in ("h200", "a100"):
        try:
            configs = list(named.configurations(Prepared.of(named.problem()).fused, device_spec(device)))
        except NotSupported:
            continue
        if configs:
            yield from of_plan(ExecutionPlan(configs[0]))
            return


@pytest.mark.long
@pytest.mark.parametrize("named", NAMED, ids=str)
def test_every_kernel_has_a_program_or_a_reason(named: Named) -> None:
    for kernel in _kernels(named):
        try:
            text = standalone(kernel, "0")
        except NotSupported as error:
            assert {r.rule for r in error.rejections} <= REFUSALS
            continue
        compiles(kernel, text)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(("text", "device"), SHORT)
def test_nvcc_compiles_the_whole_file(text: str, device: str, tmp_path: Path) -> None:
    kernel = kernel_of(text, device)
    file = tmp_path / "one.cu"
    file.write_text(standalone(kernel, "0"), encoding="utf-8")
    command = ["nvcc", *compile_options(kernel), str(file), "-o", str(tmp_path / "one")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def test_the_file_has_what_is_launched() -> None:
    kernel = kernel_of(LAYER, "h200")
    text = standalone(kernel, "1.2.3", LAYER)
    head = text[: text.index("#ifndef")]
    for word in (
        LAYER,
        "cuda_hopper",
        "h200",
        "sm_90a",
        "graphdnn 1.2.3",
        "nvcc -gencode arch=compute_90a,code=sm_90a",
    ):
        assert word in head
    (launch,) = kernel.launches
    assert f"dim3({', '.join(map(str, launch.grid))})" in text
    assert f"config.dynamicSmemBytes = {launch.dynamic_shared};" in text
    assert "cudaLaunchAttributeProgrammaticStreamSerialization" in text
    assert not re.search(r"^\s*#ifn?def __CUDA_ARCH__", text, re.MULTILINE), "the emulator's branches are left out"


def test_struct_words_have_the_names_of_their_fields() -> None:
    """Word for word what the launch passes; what stays zero is filled in by ``main``."""
    kernel = kernel_of(LAYER, "h200")
    launch = kernel.launches[0].launch
    assert launch is not None
    text = standalone(kernel, "0")
    body = text[text.index("params_0[") :]
    rows = re.findall(r"^    (.*?),  // (.+)$", body[: body.index("};")], re.MULTILINE)
    words = b"".join(int(w, 0).to_bytes(8, "little") for row, _ in rows for w in row.split(", "))
    assert words == launch.params.data
    assert {"im2col_map", "tiles", "t0_stride"} & {name for _, name in rows}
    assigned = set(map(int, re.findall(r"params_0\[(\d+)\]", text[text.rindex("int main()") :])))
    assert assigned == {slot.word for slot in launch.params.slots}


def test_every_output_is_compared() -> None:
    kernel = kernel_of(LAYER, "h200")
    text = standalone(kernel, "0")
    for spec in kernel.op.outputs:
        assert f"reference::compare_{spec.uid}<<<" in text
    assert len(re.findall(r"reference::operation_\d+_\w+<<<", text)) == len(kernel.operations)


@pytest.mark.parametrize(
    ("text", "device", "rule"),
    [
        (LAYER, "cpu", NO_LAUNCH.id),
        ("pool max x=f16[2,8,8,8] window=2 stride=2", "h200", NO_LOOPS.id),
        ("matmul a=f16[64,64] b=f16[64,64]", "a100", NO_LAUNCH.id),
    ],
)
def test_refusals(text: str, device: str, rule: str) -> None:
    with pytest.raises(NotSupported) as caught:
        standalone(kernel_of(text, device), "0")
    assert rule in {r.rule for r in caught.value.rejections}


def test_elements_of_less_than_a_byte_are_refused() -> None:
    graph = Graph("bits", io_data_type="boolean", device="h200")
    graph.logical_not(graph.tensor([4, 64])).set_output(True)
    plan = graph.build()
    with pytest.raises(NotSupported) as caught:
        standalone(of_plan(plan)[0], "0")
    assert NO_LAYOUT.id in {r.rule for r in caught.value.rejections}


def test_an_operation_that_blends_is_refused() -> None:
    blended = operation("conv_fprop").model_copy(update={"beta": 1.0})
    assert LOOPS[type(blended)].missing(blended)


@pytest.mark.parametrize("problem", ["one\nint two;", "ends with \\", "\u2028int three;"])
def test_a_problem_stays_in_its_comment(problem: str) -> None:
    head = standalone(kernel_of(LAYER, "h200"), "0", problem).split("#ifndef")[0]
    assert all(line.startswith("//") and not line.endswith("\\") for line in head.splitlines() if line)


def test_a_name_stays_in_its_comment_and_in_its_string() -> None:
    graph = Graph("names", io_data_type="float32", device="h200")
    x = graph.tensor([4, 64], name='x"); evil(); //\nint evil;')
    graph.relu(x).set_output(True).set_name('y\\"%s\n#error evil')
    plan = graph.build()
    text = standalone(of_plan(plan)[0], "0")
    assert not re.search(r"^\s*(int evil|#error)", text, re.MULTILINE)
    compiles(of_plan(plan)[0], text)


def test_what_the_emulator_has_is_left_out() -> None:
    text = "a\n#ifdef __CUDA_ARCH__\nb\n#if X\nc\n#else\nd\n#endif\n#else\ne\n#if Y\nf\n#endif\n#endif\ng\n#ifndef __CUDA_ARCH__\nh\n#endif"
    assert for_device(text).split("\n") == ["a", "b", "#if X", "c", "#else", "d", "#endif", "g"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.cu"
    assert main(["kernel", LAYER, "--device", "h200", "--standalone", str(file)]) == Exit.OK
    assert capsys.readouterr().out.startswith("nvcc -gencode arch=compute_90a,code=sm_90a -std=c++17 ")
    assert "int main()" in file.read_text()
    assert main(["kernel", LAYER, "--device", "cpu", "--standalone", str(file)]) != Exit.OK
    assert NO_LAUNCH.id in capsys.readouterr().err
