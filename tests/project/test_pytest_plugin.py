"""The assertions for tests, in tests of their own: what was fused, and that plans are as they were locked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from graphdnn import Graph, ReductionOperator, __version__, build, device_spec, fuse, pytest_plugin, rank
from graphdnn.errors import BadParam, NotInitialized
from graphdnn.locks import lock_from_json, lock_of
from graphdnn.locks.kernel_patterns import WORDS
from graphdnn.problem import parse
from graphdnn.pytest_plugin import assert_fused, assert_plan_locked

pytest_plugins = ["pytester"]
LAYER = "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + residual + clip(0,6)"
TEST = f"""
from graphdnn import device_spec, rank
from graphdnn.problem import parse
from graphdnn import pytest_plugin
from graphdnn.pytest_plugin import assert_fused, assert_plan_locked

def config(text={LAYER!r}):
    return rank(parse(text).build_operation_graph(), "h200").best

def test_layer():
    assert_fused(config(), "conv+bias+residual+clip")
    assert_plan_locked(config())

class TestMore:
    def test_named(self):
        assert_plan_locked(config(), name="layer")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return lambda *arguments: pytester.runpytest_inprocess("-p", "pytest_graphdnn", *arguments)


# Patterns.


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (LAYER, "conv+bias+residual+clip"), (LAYER, "bias + residual"), (LAYER, "conv+add+add+relu"), (LAYER, "conv"),
        ("dgrad dy=f32[2,4,6,6] w=f32[4,4,3,3] dx=[2,4,8,8]", "dgrad"),
        ("wgrad x=f32[2,4,8,8] dy=f32[2,4,6,6] dw=[4,4,3,3]", "wgrad"),
        ("matmul a=f16[8,128,64] b=f16[8,64,256] + bias + gelu", "matmul+bias+gelu"),
        ("matmul a=f16[8,128,64] b=f16[8,64,256] + scale + swish", "gemm+scale+silu"),
        ("pool max x=f32[2,8,32,32] window=2 + mul + sigmoid -> reduce add [1,8,1,1]", "maxpool+mul+sigmoid+sum"),
        ("pool avg x=f32[2,8,32,32] window=2 + tanh", "avgpool+tanh"),
        ("norm layer x=f32[32,256] + relu", "layernorm+relu"), ("norm rms x=f32[32,256]", "rmsnorm"),
        ("pointwise x=f32[8,64] + exp + sqrt", "exp+sqrt"),
    ],
)  # fmt: skip
def test_patterns_that_hold(text: str, pattern: str) -> None:
    graph = parse(text).build_operation_graph()
    assert_fused(graph, pattern)
    assert_fused(fuse(graph), pattern)
    with pytest.raises(AssertionError, match="no kernel holds"):
        assert_fused(graph, "conv+conv")


def test_exactly_these_operations() -> None:
    graph = parse(LAYER).build_operation_graph()
    assert_fused(graph, "conv+bias+residual+relu", exact=True)
    with pytest.raises(AssertionError, match=r"no kernel is conv\+bias"):
        assert_fused(graph, "conv+bias", exact=True)


def test_a_failure_shows_what_was_fused_and_what_stopped_it() -> None:
    text = "matmul a=f16[8,128,64] b=f16[8,64,256] -> reduce add [1,1,1]"
    g = Graph(io_data_type="f32", name="two")
    x = g.tensor([2, 3, 4, 4])
    first = g.relu(g.reduction(x, ReductionOperator.ADD).set_dim([1, 3, 1, 1]))
    g.conv_fprop(first, g.tensor([5, 3, 1, 1])).set_output(True)
    with pytest.raises(AssertionError) as caught:
        assert_fused(g, "reduce+relu+conv")
    said = str(caught.value)
    assert "  [0] reduction + relu_fwd" in said
    assert "not fused:" in said
    assert "[fuse." in said
    assert "fix: " in said
    assert_fused(parse(text), "matmul+reduce")


def test_softmax_is_one_word() -> None:
    g = Graph(io_data_type="f32")
    x = g.tensor([4, 16])
    most = g.reduction(x, ReductionOperator.MAX).set_dim([4, 1])
    powers = g.exp(g.sub(x, most))
    total = g.reduction(powers, ReductionOperator.ADD).set_dim([4, 1])
    g.relu(g.div(powers, total)).set_output(True)
    assert_fused(g, "softmax+relu", exact=True)


def test_names_of_operations_are_words_and_others_are_not() -> None:
    g = Graph(io_data_type="f32")
    g.relu(g.abs(g.tensor([2, 3]), name="first")).set_output(True)
    assert_fused(g, "first+relu")
    for word in ("second", "", "conv2d"):
        with pytest.raises(BadParam, match=r"lock\.pattern\.word"):
            assert_fused(g, f"{word}+relu")
    assert all(word == word.lower() for word in WORDS)


# Locks.


def test_locks_are_written_held_and_moved(pytester: pytest.Pytester, run) -> None:  # type: ignore[no-untyped-def]
    path = pytester.makepyfile(test_of_pinned_plans=TEST)
    result = run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*test_of_pinned_plans.lock has no entry 'test_layer'; to write it: pytest --graphdnn-update-locks"]
    )
    run("--graphdnn-update-locks").assert_outcomes(passed=2)
    lock = path.with_suffix(".lock")
    assert [entry.name for entry in lock_from_json(lock.read_text("utf-8")).graphs] == ["layer", "test_layer"]
    before = lock.stat().st_mtime_ns
    run().assert_outcomes(passed=2)
    run("--graphdnn-update-locks").assert_outcomes(passed=2)
    assert lock.stat().st_mtime_ns == before
    path.write_text(path.read_text("utf-8").replace(" + residual", ""), encoding="utf-8")
    result = run("-k", "named")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the plan moved since test_of_pinned_plans.lock was written",
            "*layer: graph: graph: it computes something else",
        ]
    )
    text = lock.read_text("utf-8")
    lock.write_text(text.replace('"cuda_hopper_', '"cuda_other_'), encoding="utf-8")
    path.write_text(TEST, encoding="utf-8")
    run().stdout.fnmatch_lines(
        ["*speed: kernel 0 conv_fprop+add+add+relu_fwd: engine cuda_other_*", "*no engine has this name any more"]
    )
    assert not list(pytester.path.glob(".*writing"))


def test_what_lies_where_a_writer_leaves_its_mark_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_plugin, "_PATIENCE", 0.05)
    mark = tmp_path / ".a.lock.writing"
    mark.write_text("notes", encoding="utf-8")
    with pytest_plugin._alone(tmp_path / "a.lock"):
        pass
    assert mark.read_text(encoding="utf-8") == "notes"
    mark.write_text("", encoding="utf-8")  # as a writer that died leaves it
    with pytest_plugin._alone(tmp_path / "a.lock"):
        pass
    assert not mark.exists()


def test_classes_that_are_allowed(tmp_path: Path) -> None:
    config = rank(parse(LAYER).build_operation_graph(), "h200").best
    file = tmp_path / "a.lock"
    text = lock_of({"layer": config.fused.graph}, device_spec("h200"), {}, __version__).to_json()
    file.write_text(text, encoding="utf-8")
    assert_plan_locked(config, "layer", file=file)
    hash = next(iter(lock_from_json(text).graphs[0].kernels[0].texts.values()))
    file.write_text(text.replace(hash, "0" * 16), encoding="utf-8")
    with pytest.raises(AssertionError, match="text: kernel 0"):
        assert_plan_locked(config, "layer", file=file)
    assert_plan_locked(config, "layer", file=file, allow=["text"])


def test_every_form_of_a_plan_and_another_machine(tmp_path: Path) -> None:
    g = parse("conv x=f32[1,4,6,6] w=f32[4,4,1,1] + bias")
    graph = g.build_operation_graph()
    plan = build(graph, "cpu")
    file = tmp_path / "a.lock"
    lock = lock_of({"layer": graph}, device_spec("cpu"), {}, __version__)
    file.write_text(
        lock.to_json().replace('"bandwidth": ', '"bandwidth": 1').replace('"predicted_us": ', '"predicted_us": 1'),
        encoding="utf-8",
    )
    for subject in (plan, plan.config, g, graph):
        assert_plan_locked(subject, "layer", file=file)
        assert_fused(subject, "conv+bias")
    g.build()
    assert_plan_locked(g, "layer", file=file)


def test_outside_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pytest_graphdnn", raising=False)
    with pytest.raises(NotInitialized, match=r"pytest\.outside"):
        assert_plan_locked(parse(LAYER).build_operation_graph())


def test_the_start_of_pytest_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test(): print('seen', *sorted(sys.modules))\n", encoding="utf-8"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-s",
        "-q",
        "-p",
        "pytest_graphdnn",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    loaded = {
        name.split(".")[0] for line in done.stdout.splitlines() if line.startswith("seen") for name in line.split()
    }
    assert "pytest_graphdnn" in loaded
    assert not loaded & {"graphdnn", "numpy", "pydantic", "networkx", "cupy", "torch", "scipy"}
    entry = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'graphdnn = "pytest_graphdnn"' in entry
