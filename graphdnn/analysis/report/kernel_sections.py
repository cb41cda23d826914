"""What a report says of each kernel: operations, work, launches and what the compiler made of them, text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphdnn.analysis.kernels import KernelView, LaunchView
from graphdnn.analysis.report.charts import roofline
from graphdnn.analysis.report.html import Markup, element, facts, folded, joined, section, table
from graphdnn.text_format import count, seconds, size

_LONGEST_SOURCE = 60_000  # characters; a page with many kernels stays small enough to be sent


def kernels_section(kernels: tuple[KernelView, ...]) -> Markup:
    if not kernels:
        return section("Kernels", element("p", "There is no plan, so there are no kernels.", class_="note"))
    texts: dict[str, int] = {}
    return section("Kernels", joined(_kernel(kernel, texts) for kernel in kernels))


def roofline_section(kernels: tuple[KernelView, ...], measured: Mapping[int, float]) -> Markup:
    if not kernels:
        return Markup("")
    about = (
        "A dot is where the predicted time puts a kernel, a ring where a measured one does. The sloped roof is memory"
        " bandwidth, the flat one the rate of the arithmetic as the definition has it; a kernel above it computes in"
        " another way: Winograd's, or wide types as planes of narrow ones on tensor cores."
    )
    return section("Roofline", element("p", about, class_="soft"), roofline(kernels, measured))


def _kernel(kernel: KernelView, texts: dict[str, int]) -> Markup:
    pairs = [
        ("engine", element("code", kernel.engine)),
        ("operations", joined(element("div", _described(kernel, i)) for i in range(len(kernel.operations)))),
        ("never in memory", ", ".join(f"{t.label()} as {t.data_type.name}" for t in kernel.op.internal)),
    ]
    if kernel.rewrite is not None:
        pairs.insert(1, ("rewrite", joined(element("div", line) for line in kernel.rewrite.lines())))
    pairs += [("work", "none: a view of the operand's memory")] if kernel.is_view else [
        ("work", f"{count(kernel.flops)}op, {size(kernel.bytes)} that have to move"),
        ("least time", f"{seconds(kernel.floor_seconds)}, bound by {kernel.bound_by}"),
        ("predicted", f"{seconds(kernel.predicted_seconds)}, {kernel.roofline_share():.0%} of the roof"),
    ]  # fmt: skip
    head = element("h3", f"[{kernel.index}] {kernel.op.name}")
    return joined((head, facts(pairs), _launches(kernel.launches), _source(kernel, texts)))


def _described(kernel: KernelView, i: int) -> str:
    op = kernel.operations[i]
    return f"[{i}] {op.line()}" + (f" ({op.origin})" if op.origin else "")


def _launches(launches: tuple[LaunchView, ...]) -> Markup:
    if not launches:
        return Markup("")
    head = ("launch", "grid", "threads", "registers", "shared", "spills", "occupancy")
    return table(head, [tuple(_row(launch)) for launch in launches], numbers=(1, 2, 3, 4, 5))


def _row(launch: LaunchView) -> Iterator[object]:
    yield element("code", launch.name) if not launch.is_library else f"{launch.name} (library)"
    if launch.is_library:
        yield from ("", "", "", "", "", "")
        return
    yield " x ".join(map(str, launch.grid))
    yield launch.block
    refused = launch.why_not_compiled()
    resources = None if refused is not None else launch.resources
    if resources is None:
        yield from ("", size(launch.dynamic_shared), "", f"not compiled: {refused.reason}" if refused else "")
        return
    spills = resources.spill_stores + resources.spill_loads
    yield resources.registers
    yield size(launch.shared)
    yield element("span", f"{spills} B", class_="bad" if spills else "good")
    yield str(launch.occupancy or "")


def _source(kernel: KernelView, texts: dict[str, int]) -> Markup:
    """Each text once; a kernel that launches the same text as an earlier one says so."""
    if kernel.is_on_host:
        return folded("the NumPy functions behind it", element("pre", kernel.source))
    parts = []
    for text in kernel.texts:
        if text.name in texts:
            parts.append(element("p", f"text {text.name}: as of kernel [{texts[text.name]}]", class_="note"))
            continue
        texts[text.name] = kernel.index
        shown = text.text[:_LONGEST_SOURCE]
        left_out = len(text.text) - len(shown)
        parts.append(
            folded(
                f"source: {text.name}, {text.text.count(chr(10)) + 1} lines",
                element("pre", shown),
                element("p", f"{left_out} characters left out", class_="note") if left_out else "",
            )
        )
    return joined(parts)
