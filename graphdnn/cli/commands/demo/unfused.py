"""A graph that does not become one kernel, and the reasons, edge by edge.

A convolution's channels are centred (the mean over all pixels is subtracted) and a second convolution's result is
added. The mean is complete only when every pixel has been seen, so what uses it has to wait: there is no way to do
this in one pass, and the report says where the pass ends.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graphdnn.builder import Graph
from graphdnn.cli.commands.demo.photo import photograph
from graphdnn.cli.commands.demo.report import Report
from graphdnn.cli.commands.explain import fused_text
from graphdnn.dtypes import Array
from graphdnn.enums import ReductionOperator
from graphdnn.fusion import UnfusedEdge
from graphdnn.text_format import size

SIDE, CHANNELS = 128, 8


def run(report: Report) -> None:
    graph = Graph("centred", io_data_type="float32", intermediate_data_type="float32", compute_data_type="float32")
    x = graph.tensor([1, 3, SIDE, SIDE], name="photo")
    w = graph.tensor([CHANNELS, 3, 3, 3], name="w3x3")
    shortcut = graph.tensor([CHANNELS, 3, 1, 1], name="w1x1")

    features = graph.conv_fprop(x, w, padding=[1, 1], name="features")
    mean = graph.reduction(features, ReductionOperator.AVG, name="mean").set_dim([1, CHANNELS, 1, 1])
    centred = graph.sub(features, mean, name="centre")
    branch = graph.conv_fprop(x, shortcut, name="branch")
    y = graph.relu(graph.add(centred, branch, name="join"), name="relu").set_output(True)

    plan, fused = graph.build(), graph.fused
    report.say(fused_text(fused))
    report.say()
    passed_on = ", ".join(t.label() for t in fused.materialized)
    report.say(f"plan {plan.name}")
    report.say(f"{passed_on} pass from kernel to kernel through {size(plan.workspace_size)} of workspace")
    report.say()

    values = operands()
    result = graph.run(dict(zip((x, w, shortcut), values, strict=True)))[y]
    difference, bound = float(np.abs(result - expected(*values)).max()), rounding_bound(*values)
    report.check("it is more than one kernel", len(fused) > 1, f"{len(fused)}, {len(graph.ranking)} configurations")
    report.check("every unfused edge has a rule, a reason and a fix", all(map(_is_explained, fused.stopped_by)))
    report.check("the plan computes the definition", difference <= bound, f"off by {difference:.1e}, bound {bound:.1e}")


def _is_explained(stop: UnfusedEdge) -> bool:
    return all((stop.rule, stop.actual, stop.required, stop.reason, stop.fix))


def operands() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(3)
    corner = photograph()[:SIDE, :SIDE].astype(np.float32) / 255
    w, shortcut = (rng.standard_normal((CHANNELS, 3, n, n), np.float32) for n in (3, 1))
    return np.ascontiguousarray(np.moveaxis(corner, -1, 0))[None], w, shortcut


def expected(x: Array, w: Array, shortcut: Array) -> Array:
    """The definition in float64, without the library."""
    x, w, shortcut = (a.astype(np.float64) for a in (x, w, shortcut))
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    features = np.einsum("nchwrs,kcrs->nkhw", windows, w, optimize=True)
    branch = np.einsum("nchw,kc->nkhw", x, shortcut[..., 0, 0])
    centred = features - features.mean(axis=(0, 2, 3), keepdims=True)
    return np.asarray(np.maximum(centred + branch, 0))


def rounding_bound(x: Array, w: Array, shortcut: Array) -> float:
    """Float32 rounding of the longest chain: 27 products, a mean in which errors average, three more operations."""
    magnitude = np.abs(w).sum(axis=(1, 2, 3)).max() + np.abs(shortcut).sum(axis=(1, 2, 3)).max()
    return float(2 * (27 + 3 + 4) * 2.0**-24 * magnitude * np.abs(x).max())
