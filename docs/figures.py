"""The page of figures, and the README's tables: from the files that the benchmarks wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from statistics import geometric_mean
from textwrap import dedent
from typing import Any

from gpu.goals import HEADING, RESULTS, lines, read

from graphdnn.engines.renames import current_names

_OF_LAYERS = ("dense", "residual", "dgrad", "wgrad", "nchw", "bytes")  # one table in the README
ORDER = (*_OF_LAYERS, "fp32", "integers", "depthwise", "models", "attention", "memory", "rnn", "host")
_LONG = ("models",)  # cases that were not reached are counted, not listed
NONE = "No whole run of the benchmark is committed at this version."
Table = Callable[[Iterable[str], Iterable[Iterable[object]]], str]


def page(note: str, table: Table) -> str:
    parts = ["# Figures", note, _introduction()]
    found = [data for data in map(_data, ORDER) if data]
    if found:
        parts += ["## Summary", summary(table), "## Goals", _about_goals(), table(HEADING, lines(read()))]
    for data in found:
        parts += _group(data, table)
    if not found:
        parts.append(NONE)
    return "\n\n".join([*parts, *_host(table)]) + "\n"


def summary(table: Table) -> str:
    """The layers in one table, operations on N64 C128 56x56 in another."""
    groups = {name: data for name, data in ((name, _data(name)) for name in ORDER) if data}
    if not groups:
        return NONE
    parts = [_about(next(iter(groups.values())))]
    layers = {name: groups[name] for name in _OF_LAYERS if name in groups}
    if layers:
        parts += ["Dense convolutions on tensor cores, microseconds (ratio):", _by_layer(layers, table)]
    if "memory" in groups:
        parts += [f"{_title(groups['memory'])}, times of a copy (ratio):", _by_layout(groups["memory"], table)]
    return "\n\n".join(parts)


def means(table: Table) -> str:
    """The README's first screen: a line for each group that has peers."""
    found = [data for data in map(_data, ORDER) if data and data["geometric_mean_ratio"]]
    if not found:
        return NONE
    rows = []
    for data in found:
        ratios = [r["ratio"] for r in data["results"] if r["ratio"]]
        rows.append(
            [
                _title(data), len(ratios), f"{geometric_mean(ratios):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                sum(ratio < 1 for ratio in ratios),
            ]
        )  # fmt: skip
    heading = ["times as fast as the fastest peer", "cases", "mean", "least", "most", "cases below 1"]
    return f"{_about(found[0])}\n\n{table(heading, rows)}"


def _by_layout(data: dict[str, Any], table: Table) -> str:
    """Operation by type and layout: ours over the copy, and the ratio to the peer."""
    cells: dict[str, dict[str, str]] = {}
    for r in data["results"]:
        operation, kind, layout = r["case"].rsplit("_", 2)
        ratio = f" ({_number(r['ratio'], 1)})" if r["ratio"] else ""
        cells.setdefault(operation, {})[f"{kind} {layout}"] = _number(r["times_copy"], 2) + ratio
    columns = list(next(iter(cells.values())))
    rows = ([f"`{name}`", *(row.get(column, "-") for column in columns)] for name, row in cells.items())
    return table(["of the copy (ratio)", *columns], rows)


def _by_layer(groups: dict[str, dict[str, Any]], table: Table) -> str:
    """Layer by group and type: ours, and the ratio to the peer. The last row has the geometric means."""
    cells: dict[str, dict[str, str]] = {}
    ratios: dict[str, list[float]] = {}
    for name, data in groups.items():
        for r in data["results"]:
            layer, kind = r["case"].rsplit("_", 1)
            layer, column = layer.removesuffix(f"_{name}"), f"{'fprop' if name == 'dense' else name} {kind}"
            if r["ratio"]:
                ratios.setdefault(column, []).append(r["ratio"])
                text = f"{_number(r['ours']['us'], 1)} ({_number(r['ratio'], 2)})"
                cells.setdefault(layer, {})[column] = text
    columns = list(ratios)
    rows = [[f"`{layer}`", *(row.get(column, "-") for column in columns)] for layer, row in cells.items()]
    means = [f"({_number(geometric_mean(found), 2)})" for found in ratios.values()]
    return table(["layer", *columns], [*rows, ["geometric mean", *means]])


def _host(table: Table) -> list[str]:
    """Convolutions of the host's engine beside PyTorch's."""
    data = json.loads((RESULTS / "host_convolution.json").read_text(encoding="utf-8"))
    rows: list[list[str]] = []
    ratios: dict[str, list[float]] = {"nchw": [], "nhwc": []}
    for row in data["rows"]:
        cells = [",".join(map(str, row["layer"])), _number(row["torch_fprop"], 2)]
        for layout, found in ratios.items():
            found.append(row["torch_fprop"] / row["ms"][f"fprop_{layout}"])
            cells += [_number(row["ms"][f"fprop_{layout}"], 2), _number(found[-1], 2)]
        rows.append(cells)
    means = [
        "geometric mean",
        "",
        *(cell for found in ratios.values() for cell in ("", f"{geometric_mean(found):.2f}")),
    ]
    versions, machine = data["versions"], data["machine"]
    about = (
        f"{machine['cpu']}, {machine['threads']} threads; NumPy {versions['numpy']}, PyTorch {versions['torch']};"
        f" {machine['date'][:10]}. fp32, measured by `make bench` in turns in one process; PyTorch has the faster one"
        " of NCHW and channels last. Single rows vary with the load of the machine; another run is"
        " [host_convolution_quiet.json](../benchmarks/results/host_convolution_quiet.json)."
    )
    head = ["layer: N,C,H,W,K,R,S,stride,pad", "PyTorch ms", "NCHW ms", "ratio", "NHWC ms", "ratio"]
    return ["## Convolutions on the host", about, table(head, [*rows, means])]


def _introduction() -> str:
    return dedent(
        """\
        The times are microseconds, measured by `make bench-gpu`. *Ours* is the time of graphdnn. *Peer* is the time of
        the fastest peer that does the whole work. *Ratio* is the peer's time divided by ours, so it is above 1 if
        graphdnn is faster. *Of the copy* is our time divided by the time of a device copy of the bytes that have to
        move. A row without a figure states the reason. The files in [benchmarks/results](../benchmarks/results) have
        the shortest and longest times, the fused operations, every peer and the method."""
    )


def _about_goals() -> str:
    return dedent(
        """\
        These are the goals on an H200. `python benchmarks/gpu.py --goals` prints this table from the same files, and
        `benchmarks/gpu/goals.py` defines it. *The peer* is the fastest peer with any of its plans. *cuDNN's first
        choice* is the plan that its heuristics return first. *Times our fp16* is the time of the same layer in fp16
        divided by the time of this row."""
    )


def _data(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"gpu_{name}.json"
    return json.loads(current_names(path.read_text(encoding="utf-8"))) if path.exists() else None


def _about(data: dict[str, Any]) -> str:
    named = [f"{key} {data[key]}" for key in ("driver", "cuda", "cudnn", "torch", "cupy") if key in data]
    return f"{data['device']}; {', '.join(named)}; {data['date'][:10]}."


def _title(data: dict[str, Any]) -> str:
    return f"{data['title'][0].upper()}{data['title'][1:]}"


def _head(is_host: bool) -> list[str]:
    return ["case", "ours", "peer", "ratio"] if is_host else ["case", "ours", "peer", "ratio", "of the copy", "TFLOP/s"]


def _group(data: dict[str, Any], table: Table) -> list[str]:
    is_host = data["group"] == "host"
    reached = [r for r in data["results"] if not (r["status"] == "skipped" and data["group"] in _LONG)]
    rows = ([*_row(r, is_host), _note(r)] for r in reached)
    mean = data["geometric_mean_ratio"]
    parts = [f"## {_title(data)}", _about(data), table([*_head(is_host), "what ran; fastest peer"], rows)]
    said = [f"Geometric mean of the ratios: {mean:.2f}."] if mean else []
    if len(reached) < len(data["results"]):
        said.append(f"{len(data['results']) - len(reached)} more cases were not reached in the time that the run had.")
    return [*parts, " ".join([*said, *_regret(data)])] if said else parts


def _regret(data: dict[str, Any]) -> list[str]:
    """What the ranking's first choice lost, in the groups where others were tried beside it."""
    mean, rows = data.get("geometric_mean_regret"), [r for r in data["results"] if r.get("regret")]
    if not mean:
        return []
    worst = max(rows, key=lambda r: r["regret"])
    tried = sum(len(r["tried"]) for r in rows)
    found = f"{tried} others of {len(rows)} rows: {mean:.3f} in the geometric mean"
    return [f"First choice over the fastest of it and {found}, at worst {worst['regret']:.2f} (`{worst['case']}`)."]


def _row(r: dict[str, Any], is_host: bool) -> list[str]:
    times = {p["label"]: p["time"]["us"] for p in r["peers"] if p["time"]}
    cells = [f"`{r['case']}`", _number(r["ours"] and r["ours"]["us"], 1), _number(times.get(r["peer"]), 1)]
    cells.append(_number(r["ratio"], 2))
    return cells if is_host else [*cells, _number(r["times_copy"], 2), _number(r["tera_flops"], 1)]


def _note(r: dict[str, Any]) -> str:
    if r["status"] != "ok":
        return f"{r['status']}: {r['reason'] or r['right']}"
    return "; ".join(part for part in (r["tuned"] or r["plan"], r["peer"]) if part)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
