"""``graphdnn run MODEL.onnx``: the model with random or given data, beside another implementation of ONNX."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from graphdnn.cli.common_options import device_of, refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.onnx_argument import feeds_of
from graphdnn.onnx.model import Model
from graphdnn.onnx.package import onnx_package
from graphdnn.text_format import plural, seconds, table

_RELATIVE = {2: 2.0**-7, 4: 1e-3, 8: 1e-6}  # of the largest value, by bytes of a float
_NEVER = "for problems, graphs and plans"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One output beside the other implementation."""

    name: str
    difference: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.difference <= self.bound

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        return f"{self.name}: {verdict}, largest difference {self.difference:.3g}, bound {self.bound:.3g}"


def run_model(arguments: argparse.Namespace) -> Exit:
    """Run a model, verify it, and print times."""
    ignored = "engine mode save_graph save_plan save tuned"
    refuse_ignored(arguments, (" ".join(o for o in ignored.split() if hasattr(arguments, o)), False, _NEVER))
    model = Model(arguments.graph, device=device_of(arguments), fallback=arguments.fallback)
    feeds = feeds_of(model, arguments, arguments.seed)
    found = model.run(feeds)
    peer, verdicts = ("", []) if arguments.no_verify else verify(model, feeds, found)
    times = []
    for _ in range(arguments.repeat):
        start = perf_counter()
        model.run(feeds)
        times.append(perf_counter() - start)
    program = model.program(feeds)
    passed = all(v.ok for v in verdicts)
    verdict = "not verified" if arguments.no_verify else "ok" if passed else "FAILED"
    if arguments.json:
        outputs = [{"name": v.name, "difference": v.difference, "bound": v.bound, "ok": v.ok} for v in verdicts]
        data = {"model": model.name, "device": model.device.name, "times_us": [t * 1e6 for t in times]}
        print(json.dumps({**data, "verified_by": peer, "outputs": outputs, "verdict": verdict}, indent=1))
    else:
        made = f"{plural(len(program.nodes), 'node')} in {plural(len(program.parts), 'part')}"
        rows = [
            ("model", f"{model.name}: {made}"),
            ("device", model.device.name),
            *(("input", f"{name}: {array.dtype} {list(array.shape)}") for name, array in feeds.items()),
            ("time", f"{seconds(median(times))}, median of {len(times)}"),
            *((f"verify by {peer}", str(v)) for v in verdicts),
            ("verdict", verdict),
        ]
        print(table(("", ""), rows))
    return Exit.OK if passed else Exit.CHECK_FAILED


def verify(model: Model, feeds: dict[str, Any], found: dict[str, Any]) -> tuple[str, list[Verdict]]:
    """(the name of the other implementation, a verdict for each output): onnxruntime if it is installed."""
    names = list(found)
    content = model.proto.SerializeToString()
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        peer, expected = "onnxruntime", session.run(names, feeds)
    except Exception:  # not installed, or it does not serve the model: its errors have many classes
        peer = "reference evaluator"
        expected = onnx_package().reference.ReferenceEvaluator(model.proto).run(names, feeds)
    return peer, [_compared(name, found[name], wanted) for name, wanted in zip(names, expected, strict=True)]


def _compared(name: str, got: Any, wanted: Any) -> Verdict:
    wanted = np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return Verdict(name, np.inf, 0.0)
    if wanted.dtype.kind in "OUS" or not wanted.size:
        return Verdict(name, float(np.any(got != wanted)), 0.0)
    a, b = (x.astype(np.float64) for x in (got, wanted))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = float(np.max(np.where(same, 0.0, np.abs(a - b))))
    is_float = wanted.dtype.kind not in "iub"
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    bound = _RELATIVE.get(wanted.dtype.itemsize, 2.0**-2) * max(scale, 1e-6) if is_float else 0.0
    return Verdict(name, np.inf if np.isnan(difference) else difference, bound)
