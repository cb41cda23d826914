"""Whole modules of PyTorch on a GPU: eager, captured, compiled by PyTorch, and compiled by graphdnn.

    python benchmarks/torch_models.py resnet50 mobilenet_v2 --batches 1 8 --peers eager,captured,inductor --json OUT

The models are those of torchvision with random weights, in half precision and channels last. Each contestant is checked
against eager, and timed in alternating series with the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import graphdnn.torch

Call = Callable[[], Any]
SERIES_US = 20_000  # of one series, about


def _model(name: str) -> torch.nn.Module:
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None)
    for module in model.modules():  # statistics as of a trained network
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


def _captured(call: Call) -> Call:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay() -> Any:
        graph.replay()
        return kept

    return replay


def _contestants(model: torch.nn.Module, x: torch.Tensor, peers: list[str], found: dict[str, Any]) -> dict[str, Call]:
    compilations: list[Any] = []
    backend = partial(graphdnn.torch.backend, listener=compilations.append)
    compiled = {
        "graphdnn": partial(torch.compile, backend=backend),
        "graphdnn frozen": partial(torch.compile, backend=partial(backend, options={"freeze": True})),
        "inductor": torch.compile,
        "max_autotune": partial(torch.compile, mode="max-autotune"),
    }
    calls: dict[str, Call] = {"eager": lambda: model(x)}
    if "captured" in peers:
        calls["eager captured"] = _captured(calls["eager"])
    for name, compile_model in compiled.items():
        if not name.startswith("graphdnn") and name not in peers:
            continue
        torch._dynamo.reset()
        start = time.perf_counter()
        try:
            module = compile_model(model)
            for _ in range(3):
                module(x)
            torch.cuda.synchronize()
        except Exception as error:
            found.setdefault("errors", {})[name] = f"{type(error).__name__}: {error}"[:500]
            continue
        found.setdefault("compile_s", {})[name] = time.perf_counter() - start
        call = partial(module, x)
        calls[name] = call
        if name != "max_autotune":  # which captures itself
            calls[f"{name} captured"] = _captured(call)
    first = compilations[: len(compilations) // 2]
    found["served"] = sum(c.served for c in first)
    found["segments"] = sum(len(c.segments) for c in first)
    found["kernels"] = sum(len(s.graph.plan.compiled) for c in first for s in c.segments)
    found["failures"] = [str(e)[:300] for c in compilations for s in c.segments for e in s.failures][:3]
    found["fallbacks"] = sorted({f.operator for c in compilations for f in c.fallbacks})
    return calls


def _times(calls: dict[str, Call], repeats: int) -> dict[str, list[float]]:
    """Microseconds of one call by the clock of the host, from an idle device to an idle device."""
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        counts[name] = max(1, int(SERIES_US / ((time.perf_counter() - start) * 1e6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - start) * 1e6 / counts[name])
    return times


def measure(name: str, batch: int, dtype: torch.dtype, size: int, peers: list[str], repeats: int) -> dict[str, Any]:
    """One network at one batch."""
    found: dict[str, Any] = {"model": name, "batch": batch, "dtype": str(dtype), "device": torch.cuda.get_device_name()}
    model = _model(name).cuda().to(dtype).to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, size, size, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted = model.float()(x.float())
        model.to(dtype)
        calls = _contestants(model, x, peers, found)
        scale = wanted.abs().max().item()
        found["error"] = {n: (call().float() - wanted).abs().max().item() / scale for n, call in calls.items()}
        times = _times(calls, repeats)
    found["us"] = {n: statistics.median(t) for n, t in times.items()}
    found["us_range"] = {n: (min(t), max(t)) for n, t in times.items()}
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--peers", default="captured,inductor")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        for batch in options.batches:
            dtype = getattr(torch, options.dtype)
            try:
                row = measure(name, batch, dtype, options.size, options.peers.split(","), options.repeats)
            except Exception as error:
                row = {"model": name, "batch": batch, "failed": f"{type(error).__name__}: {error}"[:2000]}
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
