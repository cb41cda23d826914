"""Convolution: one problem as other libraries' benchmarks describe it, and the problem texts that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdnn.dtypes import data_type_of
from graphdnn.importers.import_result import UNLIKE, VALUE, Problem, Refusal, checked
from graphdnn.operations.conv_problem import output_extent

FORWARD, DATA, FILTER, BIAS = "forward", "data gradient", "filter gradient", "bias gradient"
Extents = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Extents without layouts: x is [n, c, *input], w is [k, c / groups, *filter], y is [n, k, *output]."""

    n: int
    groups: int
    c: int
    k: int
    input: Extents
    filter: Extents
    output: Extents
    stride: Extents
    dilation: Extents  # 1: neighbouring taps
    pre: Extents
    post: Extents
    types: tuple[str, str, str]  # of x, w and y, as problem texts call them
    channels_last: tuple[bool, bool, bool | None]  # x, w and y; None: as it comes out
    steps: tuple[str, ...] = ()  # "bias", "relu": after what the source calls forward
    is_transposed: bool = False  # that is the data gradient then

    def __post_init__(self) -> None:
        if self.groups < 1 or self.c % self.groups or self.k % self.groups:
            raise Refusal(
                VALUE, "groups", self.groups, expected=f"a divisor of {self.c} and {self.k} channels",
                detail="channels are divided evenly among the groups", fix="correct the group count or the channels",
            )  # fmt: skip
        derived = tuple(
            output_extent(*axis)
            for axis in zip(self.input, self.filter, self.pre, self.post, self.stride, self.dilation, strict=True)
        )
        if derived != self.output:
            raise Refusal(
                VALUE, "output", list(self.output), expected=list(derived),
                detail="these are the output's extents by input, filter, padding, stride and dilation",
                fix="correct the extents or the padding",
            )  # fmt: skip

    def text(self, direction: str) -> str:
        """The problem in one direction."""
        x, w, y = self._operands()
        settings = self._settings()
        if direction == FORWARD:
            return " + ".join((f"conv x={x} w={w}{settings}", *(() if self.is_transposed else self.steps)))
        if direction == DATA:
            gradient = f"dgrad dy={y} w={w} dx={_bare(self._extents()[0])}{settings}"
            return " + ".join((gradient, *(self.steps if self.is_transposed else ())))
        if direction == FILTER:
            return f"wgrad x={x} dy={y} dw={_bare(self._extents()[1])}{settings}"
        of, channels = (x, self.c) if self.is_transposed else (y, self.k)
        return f"reduce add x={of} y={_bare((1, channels, *(1,) * len(self.input)))}"

    def _extents(self) -> tuple[Extents, Extents, Extents]:
        return (
            (self.n, self.c, *self.input),
            (self.k, self.c // self.groups, *self.filter),
            (self.n, self.k, *self.output),
        )

    def _operands(self) -> tuple[str, str, str]:
        x, w, y = (
            f"{kind}{_bare(extents)}{'nhwc' if last else ''}"
            for kind, extents, last in zip(self.types, self._extents(), self.channels_last, strict=True)
        )
        return x, w, y

    def _settings(self) -> str:
        words = [("pad", self.pre)] if self.pre == self.post else [("pre", self.pre), ("post", self.post)]
        words += [("stride", self.stride), ("dil", self.dilation)]
        usual = {"pad": 0, "pre": 0, "post": 0, "stride": 1, "dil": 1}
        return "".join(f" {name}={_shortest(values)}" for name, values in words if set(values) != {usual[name]})


def symmetric(sizes: Sequence[Extents], output: Extents | None) -> tuple[Extents, Extents, Extents]:
    """(output, pre, post) of a convolution whose output follows from equal padding, or is given beside it.

    ``sizes``: input, filter, padding, stride, dilation. Where the given output asks for other padding behind than in
    front, that is what it gets.
    """
    for name, values in zip(("stride", "dilation"), sizes[3:], strict=True):
        if min(values) < 1:
            raise Refusal(
                VALUE, name, list(values), expected="at least 1 on every axis",
                detail="the window moves, by whole elements", fix=f"correct the {name}",
            )  # fmt: skip
    given = output or (0,) * len(sizes[0])
    axes = [_axis(*axis) for axis in zip(*sizes, given, strict=True)]
    found, pre, post = zip(*axes, strict=True)
    return found, pre, post


def _axis(size: int, taps: int, pad: int, stride: int, dilation: int, output: int) -> tuple[int, int, int]:
    reach = dilation * (taps - 1) + 1
    derived = output_extent(size, taps, pad, pad, stride, dilation)
    if output in (0, derived):
        return derived, pad, pad
    behind = (output - 1) * stride + reach - size - pad
    return output, pad, max(behind, 0)


def problems(line: int, name: str, convolution: Convolution, directions: Sequence[str]) -> list[Problem]:
    """One problem for each direction. Raises ``Refusal`` or ``BadParam``."""
    found = []
    for direction in directions:
        text = convolution.text(direction)
        x, w, y = convolution.types
        wanted = {FORWARD: y, DATA: x, FILTER: w, BIAS: ""}[direction]
        called = name if direction == FORWARD or not name else f"{name} {direction}"
        problem = checked(line, called, text)
        (output,) = problem.graph.outputs
        if wanted and output.data_type is not data_type_of(wanted):
            head, plus, rest = text.partition(" + ")
            problem = checked(line, called, f"{head} out={wanted}{plus}{rest}")
        if direction == FORWARD:
            _expect_layout(problem, convolution.channels_last[2])
        found.append(problem)
    return found


def _expect_layout(problem: Problem, channels_last: bool | None) -> None:
    (output,) = problem.graph.outputs
    if channels_last is not None and output.rank > 2 and output.is_channels_last != channels_last:
        if output.is_packed and min(output.dims[1:]) == 1:
            return
        raise Refusal(
            UNLIKE, "layout of the output", "channels last" if channels_last else "channels first",
            expected="the layout of the first operand", fix="give input and output one layout",
        )  # fmt: skip


def _bare(extents: Extents) -> str:
    return f"[{','.join(map(str, extents))}]"


def _shortest(values: Extents) -> str:
    return str(values[0]) if len(set(values)) == 1 else ",".join(map(str, values))
