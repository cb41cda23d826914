"""Host time of calls, builds and reports, without any work behind them.

    python benchmarks/host_overhead.py [--json FILE]

``execute`` runs a plan over four NumPy tensors whose launch does nothing; ``build`` makes the graph and the plan of
convolution + bias + ReLU again in a warm process; ``legacy`` is a repeated cudnnConvolutionForward of which the plan
does nothing, so what the call adds to ``execute``. Then plans for a GPU that need not be here (plan_building.py), and
``explain`` of small and large graphs.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import platform
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plan_building

import graphdnn
from graphdnn import ConvolutionMode, ExecutionPlan, OperationGraph, PointwiseMode, TensorSpec, packed_strides
from graphdnn.operations import ConvForward, ConvolutionSpec, PointwiseOperation, PointwiseSpec

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from long_graphs import layers  # of the tests, which hold the same limits

X, W, Y, B = (4, 64, 28, 28), (64, 64, 3, 3), (4, 64, 28, 28), (1, 64, 1, 1)


def tensor(uid: int, dims: tuple[int, ...], *, is_virtual: bool = False) -> TensorSpec:
    return TensorSpec(uid=uid, data_type="f32", dims=dims, strides=packed_strides(dims), is_virtual=is_virtual)


def conv_bias_relu() -> OperationGraph:
    conv = ConvolutionSpec(
        compute_type="f32", mode=ConvolutionMode.CROSS_CORRELATION, spatial_dims=2, dilations=(1, 1),
        filter_strides=(1, 1), pre_paddings=(1, 1), post_paddings=(1, 1),
    )  # fmt: skip
    first, second = tensor(10, Y, is_virtual=True), tensor(11, Y, is_virtual=True)
    add, relu = (PointwiseSpec(mode=mode, math_type="f32") for mode in (PointwiseMode.ADD, PointwiseMode.RELU_FWD))
    return OperationGraph.of(
        [
            ConvForward(x=tensor(1, X), w=tensor(2, W), y=first, conv=conv),
            PointwiseOperation(spec=add, x=first, b=tensor(3, B), y=second),
            PointwiseOperation(spec=relu, x=second, y=tensor(4, Y)),
        ]
    )


def idle() -> tuple[ExecutionPlan, dict[int, Any]]:
    """A plan over four tensors whose launch does nothing."""
    plan = graphdnn.build(conv_bias_relu())
    plan._launch = lambda arrays, workspace: None
    plan.workspace_size = 0  # what a kernel would use, an idle launch does not
    return plan, {uid: np.zeros(dims, np.float32) for uid, dims in ((1, X), (2, W), (3, B), (4, Y))}


def idle_legacy_call() -> Callable[[], object]:
    """cudnnConvolutionForward with a plan that is found and not run."""
    from types import SimpleNamespace

    from graphdnn import v6
    from graphdnn.v6.thread_state import last_prepared

    def described(dims: tuple[int, ...]) -> Any:
        desc = v6.cudnnCreateTensorDescriptor()
        v6.cudnnSetTensor4dDescriptor(desc, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_DATA_FLOAT, *dims)
        return desc

    filters, conv = v6.cudnnCreateFilterDescriptor(), v6.cudnnCreateConvolutionDescriptor()
    v6.cudnnSetFilter4dDescriptor(filters, v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW, *W)
    v6.cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, v6.CUDNN_CROSS_CORRELATION, v6.CUDNN_DATA_FLOAT)
    x, w, y = (np.zeros(dims, np.float32) for dims in (X, W, Y))
    arguments = (
        v6.cudnnCreate(), 1.0, described(X), x, filters, w, conv,
        v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, None, 0, 0.0, described(Y), y,
    )  # fmt: skip
    v6.cudnnConvolutionForward(*arguments)
    prepared = last_prepared()
    assert prepared is not None
    prepared.plan = SimpleNamespace(workspace_size=0, execute=lambda *_: None)  # type: ignore[assignment]
    return lambda: v6.cudnnConvolutionForward(*arguments)


def explained(count: int) -> Callable[[], object]:
    """Fusing, ranking and the report of so many operations, of a graph that is new each time."""
    from graphdnn.cli.commands import explain

    operations, numbers = layers(count), itertools.count()
    graphdnn.prepare("h200")
    return lambda: explain.as_text(graphdnn.rank(OperationGraph.of(operations, name=str(next(numbers))), "h200"))


def best(call: Callable[[], object], number: int) -> float:
    """Seconds of one call, smallest of seven repetitions."""
    return min(timeit.repeat(call, number=number, repeat=7)) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    plan, bindings = idle()
    results: dict[str, Any] = {
        "execute_us": best(lambda: plan.execute(bindings), 50_000) * 1e6,
        "build_ms": best(lambda: graphdnn.build(conv_bias_relu()), 20) * 1e3,
        "graph_ms": best(conv_bias_relu, 20) * 1e3,
        "legacy_us": best(idle_legacy_call(), 20_000) * 1e6,
    }
    print(f"execute, four tensors, nothing launched: {results['execute_us']:.2f} us   (goal 2)")
    parts = f"{results['build_ms']:.2f} ms   (goal 3; the graph {results['graph_ms']:.2f})"
    print(f"graph and plan of conv + bias + relu:     {parts}")
    print(f"cudnnConvolutionForward, beside its plan: {results['legacy_us']:.2f} us   (goal 10)")
    results["explain_4_ms"] = best(explained(4), 3) * 1e3
    results["explain_500_s"] = min(timeit.repeat(explained(500), number=1, repeat=2))
    print(f"explain of 4 operations on h200:          {results['explain_4_ms']:.1f} ms   (goal 50)")
    print(f"explain of 500 operations:                {results['explain_500_s']:.2f} s   (goal 2)")
    results["plans"] = plans = plan_building.in_new_processes("h200")
    print("plans on h200, kernels compiled and not loaded, milliseconds:")
    print("            new kernel   on disk   other shape (least)   equal graph")
    print("goal              1500      5.00      0.50                  0.18")
    for name, found in plans.items():
        (least, other), (_, equal) = found["other shape"], found["equal graph"]
        first = f"{found['new kernel'] * 1e3:10.0f}{found['on disk'] * 1e3:10.2f}"
        print(f"{name:12s}{first}{other * 1e-3:10.2f}      ({least * 1e-3:.2f})    {equal * 1e-3:10.2f}")
    if options.json:
        about = {
            "date": datetime.date.today().isoformat(), "python": platform.python_version(),
            "numpy": np.__version__, "graphdnn": graphdnn.__version__,
            "machine": platform.processor() or platform.machine(),
        }  # fmt: skip
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about, **results}, file, indent=1)


if __name__ == "__main__":
    main()
