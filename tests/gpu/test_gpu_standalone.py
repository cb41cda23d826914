"""Standalone programs on the GPU: they are right, they say how fast, and a broken kernel fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from random_problems.named_problems import NAMED, Named
from random_problems.run_and_compare import Prepared

from graphdnn import ExecutionPlan, NotSupported, rank
from graphdnn.analysis.kernels import KernelView, of_plan
from graphdnn.analysis.kernels.standalone import compile_options, standalone
from graphdnn.device_selection import device_spec
from graphdnn.problem import parse

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")]
LAYER = "conv x=f16[2,64,14,14]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"


def program(text: str, kernel: KernelView, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile and run."""
    file = folder / f"{len(list(folder.iterdir()))}.cu"
    file.write_text(text, encoding="utf-8")
    command = ["nvcc", *compile_options(kernel), str(file), "-o", str(file.with_suffix(""))]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr[:3000]
    return subprocess.run([str(file.with_suffix(""))], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("named", NAMED, ids=str)
def test_programs_are_right(named: Named, tmp_path: Path) -> None:
    try:
        configs = list(named.configurations(Prepared.of(named.problem()).fused, device_spec("cuda")))
    except NotSupported:
        configs = []
    for config in configs:
        plan = ExecutionPlan(config)
        for kernel in of_plan(plan):
            try:
                text = standalone(kernel, "0")
            except NotSupported as error:
                assert error.rejections[0].rule.startswith("kernels.standalone.")
                continue
            done = program(text, kernel, tmp_path)
            assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["PASS"]), done.stdout + done.stderr
            assert re.search(r"^time: \d+\.\d+ us", done.stdout, re.MULTILINE)


def test_a_kernel_that_is_not_launched_fails(tmp_path: Path) -> None:
    """Its output keeps the poison; and zeros in its place are as wrong."""
    plan = ExecutionPlan(rank(parse(LAYER).build_operation_graph(), "cuda").best)
    kernel = of_plan(plan)[0]
    text = standalone(kernel, "0")
    idle = text.replace("    execute();\n    CHECK", "    CHECK", 1)
    assert idle != text
    assert program(idle, kernel, tmp_path).stdout.splitlines()[-1] == "FAIL"
    zeros = idle.replace("0x7f);", "0);")
    assert zeros != idle
    done = program(zeros, kernel, tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "FAIL")
