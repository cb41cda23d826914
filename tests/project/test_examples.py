"""Every example runs as a user runs it, and prints the facts it is there for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from repository import ROOT

EXAMPLES = ROOT / "examples"

FACTS = {
    "01_conv_bias_relu.py": ["one kernel: conv_fprop + add + relu_fwd", "close: True"],
    "02_backend_descriptors.py": [
        "A uid is an int64",
        "centre values 18 and 36",
        "give equal results: True",
        "the number of spatial axes, not their extents",
        "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH [conv.rank]",
        "1 fused operation",
    ],
    "03_what_was_fused.py": [
        "5 operations in 1 fused operation",
        "writes before (uid 3), after (uid 4)",
        "fuse.after_exit: conv_fprop 'conv' -> sub 'centre'",
        "operation by operation",
    ],
    "04_why_not_supported.py": [
        "conv.y.extents",
        "(8, 128, 28, 28)",
        "convolution.dilations.minimum",
        "convolution.pre_paddings.minimum",
        "conv.operand_types",
        "binding.data_type",
        "binding.shape",
        "numpy_blocked declined",
    ],
    "10_fuse_or_not.py": [
        "conv_fprop 'conv' | add + add + relu_fwd: pays (+",
        "one kernel for each operation",
        "saves 12.2 MiB of traffic and 1 launch",
        "mul + add + relu_fwd | conv_fprop: hurts (-",
        "['mul+add+relu_fwd', 'conv_fprop']",
        "the same result: True",
    ],
    "05_integer_convolution.py": ["exact with int64: True", "right modulo 2^32: True", "saturated to -128 ... 127"],
    "06_plan_files.py": [
        "gives equal results: True",
        "for h200: engine.place",
        "for a100, ranked again: cuda_",
        "file.hash",
    ],
    "08_legacy_record.py": [
        "calls: cudnnConvolutionForward, cudnnAddTensor, cudnnActivationForward",
        "3 operations in 1 fused operation",
        "equal results: True",
        "graph.conv_fprop(x, w, padding=[1, 1]",
        "graph.relu(",
    ],
    "15_legacy_training.py": ["5x5 filters, each with its time: True", "learned: True", "v6.algorithm.filters"],
    "07_legacy_lstm.py": [
        "the forget gate's bias is (1, 16, 1)",
        "learned: True",
        "rnn_bwd_weights (LSTM, 1 layer, 1 to 16, 12 steps of 16)",
    ],
    "09_why_not_fused_and_repair.py": [
        "one kernel: relu_fwd 'act'",
        "rule fuse.prologue.virtual",
        "mark act::y (uid 4) virtual",
        "no longer stops it: fuse.prologue.virtual",
        "make dims[1] of w (uid 2) 60",
        "the graph from before: True",
    ],
    "12_inside_a_plan.py": [
        "vanished    sums (uid 3) as FLOAT",
        "writes sums (uid 3) in registers",
        "y is its positive part: True",
        "first difference from the oracle: None",
        "of the bound at most)",
        "NOT proved, they may wrap; accumulate in int64",
        "no overflow",
    ],
    "11_uids_and_groups.py": [
        "small: uids [1, 2, 3], y is (1, 6, 8, 8), its centre 36",
        "large: uids [1, 2, 3], y is (2, 8, 12, 12), its centre 16",
        "reads 4: 4 groups",
        "the same bits: True",
        "why:",
    ],
    "13_report.py": ["6 operations in 2 kernels", "the page is report.html", "why two kernels", "fuse.after_exit"],
    "14_plans_under_lock.py": [
        "line 2, conv2_2: conv x=f16[64,64,56,56]nhwc",
        "--attr-zero-points is refused",
        "moved: 0",
        "cuda_direct declines now: ",
        "fuse.after_exit in 5 operations",
        "locally minimal: True",
    ],
    "17_torch_compile.py": [
        "largest difference from PyTorch: below 1e-5: True",
        "100.0% of the operators in 1 segment",
        "conv_fprop+add+relu_fwd",
        "PyTorch executes aten.cumsum.default (1 call)",
    ]
    if find_spec("torch")
    else ["pip install torch"],
    "16_onnx_model.py": [
        "batch 8: scores (8, 4), all rows equal: True",
        "node 'norm' (BatchNormalization) is part of node 'conv' (Conv)",
        "node 'places' (NonZero): op_type = NonZero",
        "by the reference evaluator: True",
    ]
    if find_spec("onnx")
    else ["pip install 'graphdnn[onnx]'"],
    "seed000_float32.py": ["y is (1, 1, 598, 958)", "1 operation in 1 fused operation", "ranking on cpu"],
    "seed000_int8.py": [
        "by hand: 14688 int32: 14688 float32: 14688.0 int8: 127",
        "CUDNN_STATUS_NOT_SUPPORTED",
        "v6.profile.filters",
    ],
}


def test_every_example_is_checked() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(FACTS)


# What the examples print that needs compiled kernels.
COMPILED = {"12_inside_a_plan.py": FACTS["12_inside_a_plan.py"][:2]}
FOR_A_GPU = [name for name in FACTS if '"h200"' in (EXAMPLES / name).read_text(encoding="utf-8")]


def run_example(name: str, *folders: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((*folders, str(EXAMPLES.parent)))
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.mark.parametrize("name", FOR_A_GPU)
def test_examples_for_a_gpu_run_in_a_plain_install(name: str, tmp_path: Path) -> None:
    """Without cuda-bindings nothing is compiled. An example says so, and shows everything else."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cuda'] = None\n", encoding="utf-8")
    run = run_example(name, str(tmp_path))
    assert (run.returncode, run.stderr) == (0, "")
    compiled = COMPILED.get(name, [])
    assert not [fact for fact in FACTS[name] if fact not in compiled and fact not in run.stdout], run.stdout
    assert not [fact for fact in compiled if fact in run.stdout]
    assert not compiled or "pip install 'graphdnn[nvrtc]'" in run.stdout


@pytest.mark.parametrize("name", FACTS)
def test_example(name: str) -> None:
    run = run_example(name)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    missing = [fact for fact in FACTS[name] if fact not in run.stdout]
    assert not missing, f"{name} does not print {missing}:\n{run.stdout}"
    assert ": False" not in run.stdout
    assert run.stdout.isascii()


def test_the_tutorial_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    """As a reader copies it: one block after another in one interpreter."""
    page = (EXAMPLES.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 7
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    out = capsys.readouterr().out
    assert "conv_fprop | add + relu_fwd: pays" in out
    assert out.splitlines()[-1].startswith("conv.groups.divide_channels")
