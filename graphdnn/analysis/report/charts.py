"""Charts: the roofline with a point for each kernel, and bars of times with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

from graphdnn.analysis.kernels import KernelView
from graphdnn.analysis.report.html import Markup, element, joined, text
from graphdnn.engines.operation_cost import tensor_core_type
from graphdnn.text_format import count, seconds

_WIDTH, _HEIGHT = 640.0, 330.0
_LONGEST_NAME = 25  # characters
_LEFT, _RIGHT, _TOP, _BOTTOM = 74.0, 24.0, 16.0, 46.0
_DIGIT, _POINT_LABEL, _ABOVE = 7.2, 70.0, 22.0  # of a character, of a point with its label, of a roof's label


Times = Mapping[int, float]  # seconds by the index of a kernel


def roofline(
    kernels: Sequence[KernelView],
    measured: Times,
    beside: Sequence[tuple[Sequence[KernelView], Times]] = (),
) -> Markup:
    """Operations a second over operations for each byte that has to move, both logarithmic.

    The roof is memory bandwidth times intensity up to the rate of the arithmetic; a kernel's point is where its
    predicted time puts it, so its distance from the roof is what it loses; a ring is where its ``measured`` time does.
    The axes hold what is ``beside`` it as well, so that charts next to each other have one scale.
    """
    shown = _drawn(kernels)
    if not shown:
        return element("p", "No kernel computes anything: there is only memory to move.", class_="note")
    device = shown[0].device
    rates = {_rate_name(kernel): _rate(kernel) for kernel in shown}
    intensities = [kernel.flops / kernel.bytes for kernel in shown]
    reached = [kernel.flops / kernel.predicted_seconds for kernel in shown]
    ends = [_ends(each, times) for each, times in ((shown, measured), *((_drawn(k), t) for k, t in beside))]
    low, high = _decades([value for across, _ in ends for value in across])
    bottom, top = _decades([value for _, down in ends for value in down])
    across, down = high - low, top - bottom

    def x(value: float) -> float:
        return _LEFT + (log10(value) - low) / across * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (top - log10(value)) / down * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_grid(x, y, range(low, high + 1), range(bottom, top + 1))]
    floor_rate = 10.0**bottom
    for name, rate in rates.items():
        ridge = rate / device.bandwidth
        start = max(10.0**low, floor_rate / device.bandwidth)
        corners = ((start, start * device.bandwidth), (ridge, rate), (10.0**high, rate))
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
        parts.append(Markup(f'<polyline class="roof" points="{points}"/>'))
        words = f"{name}, {count(rate)}op/s"
        begins = x(10.0**high) - 4 - _DIGIT * len(words)
        near = (y(r) for i, r in zip(intensities, reached, strict=True) if x(i) + _POINT_LABEL > begins)
        is_taken = any(-_ABOVE < down - y(rate) < 2 for down in near)
        parts.append(_label(x(10.0**high) - 4, y(rate) + (13 if is_taken else -5), words, "end"))
    for kernel, intensity, rate in zip(shown, intensities, reached, strict=True):
        share = kernel.roofline_share()
        title = (
            f"[{kernel.index}] {kernel.op.name}: {share:.0%} of the roof, predicted {seconds(kernel.predicted_seconds)}"
        )
        point = Markup(f'<circle class="point" cx="{x(intensity):.1f}" cy="{y(rate):.1f}" r="5"/>')
        label = _label(x(intensity) + 9, y(rate) + 4, f"[{kernel.index}] {share:.0%}")
        parts.append(element("g", element("title", title), point, label))
        if kernel.index in measured:
            time = measured[kernel.index]
            at = f'cx="{x(intensity):.1f}" cy="{y(kernel.flops / time):.1f}"'
            ring = Markup(f'<circle class="ring" {at} r="5"/>')
            words = f"[{kernel.index}] measured: {kernel.roofline_share(time):.0%} of the roof"
            parts.append(element("g", element("title", words), ring))
    parts.append(_label((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, "operations for each byte", "middle"))
    parts.append(_label(_LEFT, _TOP - 3, f"operations a second, {device.name}"))
    return _chart(parts, _HEIGHT, f"roofline of {device.name}")


def _drawn(kernels: Sequence[KernelView]) -> list[KernelView]:
    return [kernel for kernel in kernels if kernel.flops and kernel.bytes and kernel.predicted_seconds]


def _ends(kernels: Sequence[KernelView], measured: Times) -> tuple[list[float], list[float]]:
    """What the axes have to hold: intensities and ridges, rates reached and roofs."""
    across = [v for k in kernels for v in (k.flops / k.bytes, _rate(k) / k.device.bandwidth)]
    down = [v for k in kernels for v in (k.flops / k.predicted_seconds, _rate(k))]
    return across, [*down, *(k.flops / measured[k.index] for k in kernels if k.index in measured)]


def _rate_name(kernel: KernelView) -> str:
    operand = tensor_core_type(kernel.op.main)
    return (kernel.op.main.compute_type if operand is None else operand).name


def _rate(kernel: KernelView) -> float:
    operand = tensor_core_type(kernel.op.main)
    return kernel.device.rate(kernel.op.main.compute_type if operand is None else operand)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = floor(log10(min(values)) - 0.3), ceil(log10(max(values)) + 0.1)
    return low, max(high, low + 2)


def _grid(x: object, y: object, across: range, down: range) -> Markup:
    assert callable(x)
    assert callable(y)
    lines = []
    for power in across:
        at = x(10.0**power)
        lines.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        lines.append(_label(at, _HEIGHT - _BOTTOM + 15, f"{10.0**power:g}", "middle"))
    for power in down:
        at = y(10.0**power)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(_label(_LEFT - 6, at + 4, count(10.0**power), "end"))
    return Markup("".join(lines))


def _label(x: float, y: float, words: str, anchor: str = "start") -> Markup:
    return Markup(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>')


def _chart(parts: Sequence[object], height: float, title: str) -> Markup:
    whole = element(
        "svg",
        element("title", title),
        joined(parts),
        class_="chart",
        role="img",
        viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
    )
    return element("div", whole, class_="scroll")


def bars(rows: Sequence[tuple[str, float, float, float]]) -> Markup:
    """``rows``: name, low, middle and high seconds. The bar ends at the middle, a whisker goes from low to high."""
    longest = max(high for *_, high in rows)
    names, step = 190.0, 30.0
    scale = (_WIDTH - names - 110.0) / longest if longest else 0.0
    parts = []
    for i, (name, low, middle, high) in enumerate(rows):
        y = 8 + i * step
        label = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 4]} ..."
        parts.append(_label(names - 8, y + 14, label, "end"))
        parts.append(
            Markup(f'<rect class="bar" x="{names}" y="{y:.1f}" width="{middle * scale:.1f}" height="18" rx="2"/>')
        )
        if high > low:
            at = y + 9
            parts.append(Markup(
                f'<path class="whisker" d="M{names + low * scale:.1f} {at} H{names + high * scale:.1f}'
                f' M{names + low * scale:.1f} {at - 4} v8 M{names + high * scale:.1f} {at - 4} v8"/>'
            ))  # fmt: skip
        parts.append(_label(names + high * scale + 8, y + 14, seconds(middle)))
    return _chart(parts, 8 + len(rows) * step, "times")
