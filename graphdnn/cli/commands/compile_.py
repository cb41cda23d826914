"""compile: compile every kernel of the best plan, with or without the device, and show its resources"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from graphdnn.analysis.kernels import occupancy
from graphdnn.cli.common_options import add_device_and_mode
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.fusion_options import add_limits
from graphdnn.cli.graph_argument import HELP
from graphdnn.cli.kernel_listing import kernels_of
from graphdnn.cli.plan_argument import chosen, engine_help
from graphdnn.cuda.kernel_cache import Cached, KernelCache, default_cache
from graphdnn.cuda.nvrtc import Resources, arch_of, resources
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.renames import current_name
from graphdnn.heuristics import EngineConfig
from graphdnn.text_format import indented, narrowed, plural, seconds, size, table

FORMAT, VERSION = "graphdnn.compiled", 1
_HEAD: tuple[str, ...] = ("", "kernel", "registers", "shared", "spilled", "stack", "occupancy", "cubin", "time", "from")

_SPILLED = ("spill_stores", "spill_loads", "stack")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="GRAPH", help=HELP)
    add_device_and_mode(parser)
    parser.add_argument("--engine", type=current_name, metavar="NAME", help=engine_help())
    parser.add_argument("--fresh", action="store_true", help="compile kernels again that are in the kernel cache")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    add_limits(parser)


def run(arguments: argparse.Namespace) -> Exit:
    config = chosen(arguments).config
    cache = KernelCache(None) if arguments.fresh else default_cache()
    entries = list(_entries(config, cache))
    print(json.dumps(as_json(config, entries), indent=1) if arguments.json else as_text(config, entries))
    return Exit.OK


def _entries(config: EngineConfig, cache: KernelCache) -> Iterator[dict[str, Any]]:
    """One for each launch, in order; a text that is launched twice is compiled once."""
    known: dict[str, Cached] = {}
    for op, kernel in kernels_of(config):
        if not isinstance(kernel, DeviceKernel):
            yield {"operation": op.index, "kernel": f"{kernel.name} (NumPy)"}
            continue
        for step in kernel.steps:
            if isinstance(step, Launch):
                name = step.text.name
                if name not in known:
                    known[name] = cache.load(step.text, _architecture(config.device))
                yield {"operation": op.index, **_compiled(step, known[name], config.device)}
            else:
                yield {"operation": op.index, "kernel": f"{step.name} (library)"}


def _architecture(device: DeviceSpec) -> str:
    return arch_of(device.compute_capability, device.name)


def _compiled(launch: Launch, made: Cached, device: DeviceSpec) -> dict[str, Any]:
    found = resources(made.log).get(launch.entry, Resources())
    shared = found.shared + launch.shared
    fits = occupancy(device.compute_capability, launch.block, found.registers, shared)
    return {
        "kernel": launch.text.name, "entry": launch.entry, "architecture": _architecture(device),
        "registers": found.registers, "shared": shared, "spill_stores": found.spill_stores,
        "spill_loads": found.spill_loads, "stack": found.stack, "warnings": list(found.warnings),
        "occupancy": None if fits is None else fits.share, "cubin_bytes": len(made.cubin),
        "milliseconds": made.milliseconds, "from": made.origin,
    }  # fmt: skip


def as_json(config: EngineConfig, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": VERSION, "graph": config.fused.graph.name, "device": config.device.name,
        "plan": config.name, "workspace_size": config.workspace_size, "kernels": entries,
    }  # fmt: skip


def as_text(config: EngineConfig, entries: list[dict[str, Any]]) -> str:
    texts = {entry["kernel"]: entry for entry in entries if "registers" in entry}
    made = "nothing to compile"
    if texts:
        took = seconds(sum(entry["milliseconds"] for entry in texts.values()) * 1e-3)
        architecture = next(entry["architecture"] for entry in texts.values())
        made = f"{plural(len(texts), 'text')} for {architecture} in {took}"
        if not any(entry[field] for entry in texts.values() for field in _SPILLED):
            made += ", nothing spilled"
    lines = [
        f"{config.name} on {config.device.name}: {made}; workspace {size(config.workspace_size)}",
        indented(_table(entries)),
    ]
    warnings = [f"  {entry['kernel']}: {warning}" for entry in texts.values() for warning in entry["warnings"]]
    return "\n".join([*lines, *(["warnings", *warnings] if warnings else [])])


def _table(entries: list[dict[str, Any]]) -> str:
    """Without the columns of what is spilled where nothing is."""
    rows, head = [_row(entry) for entry in entries], _HEAD
    if not any("registers" in entry for entry in entries):
        return table(head[:2], [row[:2] for row in rows])
    if not any(entry.get(field) for entry in entries for field in _SPILLED):
        head, *rows = ((*row[:4], *row[6:]) for row in (head, *rows))
    return table(head, narrowed(head, rows, 1, 98), right=range(2, len(head) - 1))


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    place = f"[{entry['operation']}]"
    if "registers" not in entry:
        return (place, entry["kernel"], *[""] * 8)
    fits = entry["occupancy"]
    return (
        place, entry["kernel"], str(entry["registers"]), size(entry["shared"]),
        size(entry["spill_stores"] + entry["spill_loads"]), size(entry["stack"]),
        "-" if fits is None else f"{fits:.0%}", size(entry["cubin_bytes"]),
        seconds(entry["milliseconds"] * 1e-3), entry["from"],
    )  # fmt: skip
