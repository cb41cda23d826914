"""A kernel as a page of text."""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.analysis.kernels.kernel_view import KernelView, LaunchView
from graphdnn.errors import GraphdnnError

Row = tuple[str, str]


def page(kernel: KernelView) -> str:
    rows = [*_about(kernel), *_work(kernel)]
    shown: set[str] = set()
    for launch in kernel.launches:
        rows += _launch(launch)
        rows += [] if launch.name in shown else _lines(kernel, launch)
        shown.add(launch.name)
    width = max(len(name) for name, _ in rows)
    return "\n".join(
        [f"[{kernel.index}] {kernel.name}", *(f"  {name.ljust(width)}  {value}".rstrip() for name, value in rows)]
    )


def _about(kernel: KernelView) -> Iterator[Row]:
    yield "engine", f"{kernel.engine} on {kernel.device.name}"
    for line in () if kernel.rewrite is None else kernel.rewrite.lines():
        head, _, rest = line.strip().partition(": ")
        yield head, rest
    for i, op in enumerate(kernel.operations):
        yield "operations" if i == 0 else "", f"[{i}] {op.line()}"
    gone = ", ".join(f"{t.label()} as {t.data_type.name}" for t in kernel.op.internal)
    yield "vanished", gone or "no tensor: all of them are in memory"


def _work(kernel: KernelView) -> Iterator[Row]:
    if kernel.is_view:
        yield "work", "none: a view of the operand's memory"
        return
    yield "work", f"{kernel.flops:.3g} operations, {kernel.bytes:,} bytes that have to move"
    yield "least time", f"{_microseconds(kernel.floor_seconds)}, bound by {kernel.bound_by}"
    share = f"{kernel.roofline_share() * 100:.3g} % of the roofline"
    yield "predicted", f"{_microseconds(kernel.predicted_seconds)}, {share}"


def _launch(launch: LaunchView) -> Iterator[Row]:
    if launch.is_library:
        yield "library", launch.name
        return
    blocks = " x ".join(map(str, launch.grid))
    yield "launch", f"{launch.name}: {blocks} blocks of {launch.block} threads"
    yield "options", " ".join(launch.options)
    try:
        resources, fits, waves = launch.resources, launch.occupancy, launch.waves
    except GraphdnnError as error:
        yield "not compiled", error.rejections[0].reason
        return
    assert resources is not None
    spills = resources.spill_stores + resources.spill_loads
    found = f"{resources.registers} registers, {launch.shared} bytes of shared memory"
    yield "resources", f"{found}, {spills} bytes spilled, {resources.stack} bytes of stack"
    for warning in resources.warnings:
        yield "warning", warning
    if fits is not None:
        yield "occupancy", f"{fits}" + ("" if waves is None else f"; {waves:.3g} waves")
    yield "cubin", f"sha256 {launch.cubin_hash}"


def _lines(kernel: KernelView, launch: LaunchView) -> Iterator[Row]:
    for i, line in enumerate(line for line in kernel.source_lines if line.kernel == launch.name):
        yield "lines" if i == 0 else "", f"{line.line}: {line}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
