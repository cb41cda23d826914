"""Engine ``numpy_blocked``'s convolutions against PyTorch's CPU operators, on the layers of ResNet-50.

    python benchmarks/host_convolution.py [--threads 2] [--rounds 6] [--json FILE]

Both run in this process, in alternating rounds of a few calls each, and a layer's time is the median
over all rounds. PyTorch is given both memory formats and is represented by the faster one;
the ratios are ours to that. Both allocate their results, from memory that the C library is told to keep;
fetched from the system anew, it costs more than some of the layers. The idle threads of either library spin for a
while after a call, which slows the other down, and threads that were asleep may wake up on one core:
before the timed calls of a round the same call runs untimed until both have passed.

fprop is the comparison; the two gradients are timed together, as PyTorch computes them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from math import exp, log
from pathlib import Path
from typing import Any

LAYERS = (  # N, C, H, W, K, R, S, stride, padding
    (4, 3, 224, 224, 64, 7, 7, 2, 3),
    (4, 64, 56, 56, 64, 1, 1, 1, 0),
    (4, 64, 56, 56, 64, 3, 3, 1, 1),
    (4, 64, 56, 56, 256, 1, 1, 1, 0),
    (4, 128, 56, 56, 128, 3, 3, 2, 1),
    (4, 128, 28, 28, 128, 3, 3, 1, 1),
    (4, 128, 28, 28, 512, 1, 1, 1, 0),
    (4, 256, 14, 14, 256, 3, 3, 1, 1),
    (4, 256, 14, 14, 1024, 1, 1, 1, 0),
    (4, 512, 7, 7, 512, 3, 3, 1, 1),
)
GOAL = 2.0
CALLS = 5  # timed, in each round
SETTLE = 0.08  # seconds of untimed calls before, longer than idle threads of either library spin
Calls = dict[str, Callable[[], object]]


def main() -> int:
    arguments = _arguments()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)  # read when the libraries load, so they are imported later
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed; this benchmark compares with it: pip install torch", file=sys.stderr)
        return 2
    torch.set_num_threads(arguments.threads)
    _keep_freed_memory()
    rows = []
    print(_heading())
    for layer in LAYERS:
        rows.append(_row(layer, _medians(_calls(layer, torch), arguments.rounds)))
        print(_line(rows[-1]), flush=True)
    summary = _summary(rows)
    print(_closing(summary))
    if arguments.json:
        report = {
            "versions": _versions(torch),
            "machine": _machine(arguments.threads),
            "rows": rows,
            "summary": summary,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="of either library")
    parser.add_argument("--rounds", type=int, default=6, help="per layer and operator")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    return parser.parse_args()


def _keep_freed_memory() -> None:
    """Let glibc's allocator serve large arrays from its heap and never shrink that; without glibc, nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold, largest = -1, -3, 2**31 - 1
        mallopt(trim_threshold, largest)
        mallopt(mmap_threshold, 2**30)


def _calls(layer: tuple[int, ...], torch: Any) -> Calls:
    """The operators of one layer on the same values: name to a call without arguments."""
    import numpy as np

    from graphdnn.engines.host.convolution import dgrad, fprop, scratch_bytes, wgrad
    from graphdnn.operations.conv_problem import ConvProblem, output_extent

    n, c, h, w, k, r, s, stride, padding = layer
    output = tuple(output_extent(size, f, padding, padding, stride, 1) for size, f in ((h, r), (w, s)))
    pair = (padding, padding)
    problem = ConvProblem(n, 1, c, k, (h, w), (r, s), output, pair, pair, (stride, stride), (1, 1))
    float32 = np.dtype(np.float32)
    random = np.random.default_rng(0)
    values = [random.standard_normal(e, np.float32) for e in ((n, c, h, w), (k, c, r, s), (n, k, *output))]
    scratch = {d: np.empty(scratch_bytes(problem, d, float32), np.uint8) for d in ("fprop", "dgrad", "wgrad")}

    calls: Calls = {}
    for name, layout in (("nchw", torch.contiguous_format), ("nhwc", torch.channels_last)):
        tx, tw, tdy = (torch.from_numpy(v).contiguous(memory_format=layout) for v in values)
        x, filters, dy = (
            tx.numpy()[:, None],
            tw.numpy()[None],
            tdy.numpy()[:, None],
        )  # the same memory, with a group axis

        def torch_fprop(x: Any = tx, w: Any = tw) -> object:
            return torch.nn.functional.conv2d(x, w, stride=stride, padding=padding)

        def torch_gradients(x: Any = tx, w: Any = tw, dy: Any = tdy) -> object:
            return torch.ops.aten.convolution_backward(
                dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, False]
            )

        def our_fprop(x: Any = x, w: Any = filters) -> object:
            return fprop(problem, x, w, compute=float32, scratch=scratch["fprop"])

        def our_dgrad(dy: Any = dy, w: Any = filters) -> object:
            return dgrad(problem, dy, w, compute=float32, scratch=scratch["dgrad"])

        def our_wgrad(x: Any = x, dy: Any = dy) -> object:
            return wgrad(problem, x, dy, compute=float32, scratch=scratch["wgrad"])

        calls |= {f"torch_fprop_{name}": torch_fprop, f"torch_gradients_{name}": torch_gradients}
        calls |= {f"fprop_{name}": our_fprop, f"dgrad_{name}": our_dgrad, f"wgrad_{name}": our_wgrad}
    _check(calls)
    return calls


def _check(calls: Calls) -> None:
    """What is compared computes the same."""
    import numpy as np

    expected = np.asarray(calls["torch_fprop_nchw"]())
    for name in ("nchw", "nhwc"):
        found = np.asarray(calls[f"fprop_{name}"]())[:, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


def _medians(calls: Calls, rounds: int) -> dict[str, float]:
    """Milliseconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            settled = time.perf_counter() + SETTLE
            while time.perf_counter() < settled:
                call()
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def _row(layer: tuple[int, ...], ms: dict[str, float]) -> dict[str, Any]:
    fprop = min(ms["torch_fprop_nchw"], ms["torch_fprop_nhwc"])
    gradients = min(ms["torch_gradients_nchw"], ms["torch_gradients_nhwc"])
    row: dict[str, Any] = {"layer": layer, "ms": ms, "torch_fprop": fprop, "torch_gradients": gradients}
    for name in ("nchw", "nhwc"):
        row[f"ratio_{name}"] = ms[f"fprop_{name}"] / fprop
        row[f"gradients_ratio_{name}"] = (ms[f"dgrad_{name}"] + ms[f"wgrad_{name}"]) / gradients
    return row


def _heading() -> str:
    columns = "".join(f"{c:>8}" for c in ("torch", "NCHW", "ratio", "NHWC", "ratio"))
    gradients = "".join(f"{c:>8}" for c in ("torch", "dg NCHW", "wg NCHW", "dg NHWC", "wg NHWC", "NCHW", "NHWC"))
    layer = "N, C, H, W, K, R, S, stride, padding"
    above = f"{'milliseconds':38}|{'fprop':^40}|{'dgrad and wgrad, ratios of their sum':^56}"
    return f"{above}\n{layer:38}|{columns}|{gradients}"


def _line(row: dict[str, Any]) -> str:
    ms = row["ms"]
    fprop = (row["torch_fprop"], ms["fprop_nchw"], row["ratio_nchw"], ms["fprop_nhwc"], row["ratio_nhwc"])
    gradients = (
        row["torch_gradients"],
        *(ms[f"{direction}_{layout}"] for layout in ("nchw", "nhwc") for direction in ("dgrad", "wgrad")),
        row["gradients_ratio_nchw"],
        row["gradients_ratio_nhwc"],
    )
    layer = ", ".join(map(str, row["layer"]))
    return f"{layer:38}|{''.join(f'{v:8.2f}' for v in fprop)}|{''.join(f'{v:8.2f}' for v in gradients)}"


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    torch_total = sum(row["torch_fprop"] for row in rows)
    summary: dict[str, Any] = {"goal": GOAL}
    for name in ("nchw", "nhwc"):
        ratios = [row[f"ratio_{name}"] for row in rows]
        summary[name] = {
            "geometric_mean": exp(sum(map(log, ratios)) / len(ratios)),
            "total_time": sum(row["ms"][f"fprop_{name}"] for row in rows) / torch_total,
            "largest": max(ratios),
            "rows_over_goal": sum(ratio > GOAL for ratio in ratios),
        }
    return summary


def _closing(summary: dict[str, Any]) -> str:
    lines = []
    for name in ("nchw", "nhwc"):
        s = summary[name]
        lines.append(
            f"fprop {name.upper()} to PyTorch's faster format: geometric mean {s['geometric_mean']:.2f}, total time "
            f"{s['total_time']:.2f}, largest {s['largest']:.2f}, {s['rows_over_goal']} of {len(LAYERS)} over {GOAL:g}"
        )
    return "\n".join(lines)


def _versions(torch: Any) -> dict[str, str]:
    import numpy as np

    blas: Any = np.show_config(mode="dicts")
    found = blas["Build Dependencies"]["blas"]
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{found['name']} {found['version']}",
        "torch": torch.__version__,
    }


def _machine(threads: int) -> dict[str, Any]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
