"""Sums that make errors large, and operands at the ends of their types: what every engine's stated error is held to.

A draw gives x of one image and w of one tap, so that a result is a sum over channels and nothing else. Results are
compared with sums in float64, errors with ``Engine.sum_error``; where a result is no number, with the general engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from random_problems.execution_targets import Place
from random_problems.graph_sketch import Problem
from random_problems.run_and_compare import Prepared

from graphdnn import OperationGraph, fuse
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines import Engine, Task
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.operations import ConvForward, PointwiseOperation, PointwiseSpec
from graphdnn.problem import parse

Rng = np.random.Generator
_UNIT = 2.0**-24
_WINDOW = 10, 8  # R, S


@dataclass(frozen=True, slots=True)
class Sums:
    """x[pixel, term] and w[result, term], in float64."""

    x: Array
    w: Array


def _pair(rng: Rng, kind: DataType, pixels: int, results: int, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((pixels, n)), rng.standard_normal((results, n))


def normal(rng: Rng, kind: DataType, *size: int) -> Sums:
    return Sums(*_pair(rng, kind, *size))


def positive(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Every sum grows, and what is cut off is always of one sign."""
    x, w = _pair(rng, kind, *size)
    return Sums(np.abs(x) + 0.5, np.abs(w) + 0.5)


def cancelling(rng: Rng, kind: DataType, *size: int) -> Sums:
    """The second half of a sum takes back nearly all of the first."""
    x, w = _pair(rng, kind, *size)
    half = x.shape[1] // 2
    x[:, half : 2 * half], w[:, half : 2 * half] = x[:, :half], -w[:, :half]
    w[:, half : half + 4] *= 1.125
    return Sums(x, w)


def descending(rng: Rng, kind: DataType, *size: int) -> Sums:
    """One large term, then many that are small beside it: together they are not."""
    x, w = _pair(rng, kind, *size)
    x, w = np.abs(x) + 0.5, np.abs(w) + 0.5
    x[:, 1:] *= 2.0**-6
    w[:, 1:] *= 2.0**-6
    x[:, 0], w[:, 0] = 8.0, 8.0
    return Sums(x, w)


def wide(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Terms of all magnitudes that neither overflow nor vanish."""
    x, w = _pair(rng, kind, *size)
    reach = {5: 5, 4: 3}.get(_exponent_bits(kind), 28)
    return Sums(x * 2.0 ** rng.integers(-reach, reach, x.shape), w * 2.0 ** rng.integers(-reach, reach, w.shape))


def subnormal_operands(rng: Rng, kind: DataType, *size: int) -> Sums:
    """x below the smallest normal number of its type."""
    x, w = _pair(rng, kind, *size)
    return Sums(x * _smallest(kind) / 4, w)


def subnormal_results(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Products below the smallest normal fp32, where the type has them."""
    x, w = _pair(rng, kind, *size)
    scale = 2.0**-66 if _exponent_bits(kind) == 8 else _smallest(kind)
    return Sums(x * scale, w * scale)


def huge(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Near the largest number of the type; sums come close to the largest fp32, and stay below it."""
    x, w = _pair(rng, kind, *size)
    largest = _largest(kind)
    x = np.clip(x, -1, 1) * largest * 0.99
    if _exponent_bits(kind) == 8:
        return Sums(x, np.clip(w, -1, 1) * 0.9 / w.shape[1])  # sum |x w| is 0.9 of the largest number at most
    return Sums(x, np.clip(w, -1, 1) * largest * 0.99)


WITHIN_BOUNDS: tuple[Callable[..., Sums], ...] = (
    normal, positive, cancelling, descending, wide, subnormal_operands, subnormal_results, huge,
)  # fmt: skip


def no_numbers(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Infinities and NaN: alone, times zero, and of both signs in one sum; most results meet none of them."""
    x, w = _pair(rng, kind, *size)
    end = np.inf if _has_infinity(kind) else np.nan
    n = x.shape[1]
    x[1, 3], x[2, n - 1], x[3, n // 2], x[4, 0], x[4, n - 1] = end, -end, np.nan, end, -end
    w[:, 3] = np.where(np.arange(len(w)) % 3 == 0, 0.0, w[:, 3])  # infinity times zero
    w[2:3, 5] = end  # where there are so many results
    w[3:4, n - 2] = np.nan
    x[5, 5] = 0.0
    return Sums(x, w)


def overflowing(rng: Rng, kind: DataType, *size: int) -> Sums:
    """Sums beyond the largest fp32, of terms of one sign, so that their order does not matter."""
    x, w = _pair(rng, kind, *size)
    x, w = np.abs(x) + 0.5, np.abs(w) + 0.5
    if _exponent_bits(kind) == 8:
        x[::2] *= 2.0**100
        w[::2] *= 2.0**25
        w[1::2] *= -(2.0**25)
    return Sums(x, w)


WITHOUT_NUMBERS = (no_numbers, overflowing)


def _exponent_bits(kind: DataType) -> int:
    return {DataType.HALF: 5, DataType.FP8_E5M2: 5, DataType.FP8_E4M3: 4}.get(kind, 8)


def _smallest(kind: DataType) -> float:
    return float(ml_dtypes.finfo(ELEMENTS[kind].numpy).smallest_normal)


def _largest(kind: DataType) -> float:
    return float(ml_dtypes.finfo(ELEMENTS[kind].numpy).max)


def _has_infinity(kind: DataType) -> bool:
    return kind is not DataType.FP8_E4M3


class Sum:
    """A problem of such sums: a convolution of one tap, its filter's gradient or a product of matrices.

    ``taps``: of a filter whose other taps are zeros, or of which the one in the middle is looked at. ``windows``: over
    the windows of 4 channels that a first layer has, side by side. ``spread``: an image's gradient, of that stride.
    ``groups``: of channels, which all have the same numbers. ``results``: of a pixel. ``longest``: what the engine takes.
    """

    def __init__(
        self,
        kind: str,
        n: int,
        *,
        is_matmul: bool = False,
        is_wgrad: bool = False,
        taps: int = 1,
        fast: bool = False,
        behind: bool = False,
        windows: bool = False,
        spread: int = 0,
        groups: int = 1,
        results: int = 32,
        longest: int = 0,
        layout: str = "nhwc",
    ) -> None:
        self.n, self.is_matmul, self.is_wgrad, self.taps = n, is_matmul, is_wgrad, taps
        self._is_fast, self._type, self._is_behind, self._is_windows = fast, kind, behind, windows
        self._spread, self._layout = spread, layout
        self._groups = groups
        # The filter of a gradient with strides stays in shared memory.
        most = _WINDOW[0] * _WINDOW[1] * 4 if windows else n if spread else 4608 if taps > 1 else 1 << 20
        self.longest = longest or most
        assert n <= self.longest
        self.pixels, self.results = 64, results
        if is_matmul:
            text = f"matmul a={kind}[1,{self.pixels},{n}] b={kind}[1,{n},{self.results}] compute=f32 out=f32"
        elif is_wgrad:
            size = f"{n // 8},8]nhwc"
            images = f"x={kind}[1,{groups * self.pixels},{size} dy={kind}[1,{groups * self.results},{size}"
            filter = f"{groups * self.results},{self.pixels},{taps},{taps}"
            text = f"wgrad {images} dw=[{filter}] pad={taps // 2} compute=f32 out=f32"
        elif spread:
            whole = f"[1,{self.results},{8 * spread},{8 * spread}]"
            filter = f"{n},{self.results},{taps},{taps}"
            text = f"dgrad dy={kind}[1,{n},8,8]nhwc w={kind}[{filter}]nhwc dx={whole}"
            text += f" pad={taps // 2} stride={spread} compute=f32 out=f32"
        elif windows:
            (r, s), stride = _WINDOW, ",".join(map(str, _WINDOW))
            text = f"conv x={kind}[1,4,{8 * r},{8 * s}]nhwc w={kind}[{self.results},4,{r},{s}]nhwc stride={stride} compute=f32 out=f32"
        else:
            filter = f"{self.results},{n},{taps},{taps}"
            text = (
                f"conv x={kind}[1,{groups * n},8,8]{layout} w={kind}[{filter}]nhwc pad={taps // 2} compute=f32 out=f32"
            )
        self.graph = parse(text).build_operation_graph()
        if fast:
            self.graph = _with_fast_sums(self.graph)
        if behind:
            self.graph = _behind_a_chain(self.graph)
        (self.op,) = fuse(self.graph)
        self.kind = next(iter(self.op.main.inputs().values())).data_type

    def __str__(self) -> str:
        return f"{self._type}{'-wgrad' if self.is_wgrad else ''}"

    def of(self, n: int) -> Sum:
        """As long."""
        kinds = {"is_matmul": self.is_matmul, "is_wgrad": self.is_wgrad, "fast": self._is_fast}
        kinds |= {"behind": self._is_behind, "windows": self._is_windows}
        more = {"spread": self._spread, "groups": self._groups, "results": self.results, "layout": self._layout}
        return Sum(self._type, n, taps=self.taps, longest=self.longest, **kinds, **more)  # type: ignore[arg-type]

    def draw(self, how: Callable[..., Sums]) -> Sums:
        """Rounded to the operands' type."""
        sums = how(np.random.default_rng(self.n), self.kind, self.pixels, self.results, self.n)
        with np.errstate(over="ignore", invalid="ignore"):
            return Sums(*(cast(v, self.kind).astype(np.float64) for v in (sums.x, sums.w)))

    def values(self, sums: Sums) -> dict[int, Array]:
        first, second = self.op.main.inputs().values()
        if self.op.prologue:
            first = self.op.prologue[0].inputs()["x"]
        if self.is_matmul:
            return {first.uid: sums.x[None], second.uid: sums.w.T[None]}
        if self.is_wgrad:
            x, _, dy = self.op.main.roles  # type: ignore[attr-defined]
            size = (1, -1, self.n // 8, 8)  # each group has the same
            return {
                x.uid: np.tile(sums.x.reshape(size), (1, self._groups, 1, 1)),
                dy.uid: np.tile(sums.w.reshape(size), (1, self._groups, 1, 1)),
            }
        if self._is_windows:
            r, s = _WINDOW
            x = sums.x.reshape(8, 8, 4, r, s).transpose(2, 0, 3, 1, 4).reshape(1, 4, 8 * r, 8 * s)
            return {first.uid: x, second.uid: sums.w.reshape(self.results, 4, r, s)}
        if self._spread:
            filter = np.zeros((*sums.w.T.shape, self.taps, self.taps))
            filter[:, :, self.taps // 2, self.taps // 2] = sums.w.T
            dy, w = (getattr(self.op.main, port) for port in ("dy", "w"))
            return {dy.uid: sums.x.T.reshape(dy.extents), w.uid: filter}
        filter = np.zeros((*sums.w.shape, self.taps, self.taps))
        filter[:, :, self.taps // 2, self.taps // 2] = sums.w
        x = np.tile(sums.x.T, (self._groups, 1))
        return {first.uid: x.reshape(1, len(x), 8, 8), second.uid: filter}

    def run(self, place: Place, engine: Engine, sums: Sums, knobs: Any = None) -> Array:
        """[pixel, result]."""
        task = Task(self.op, place.device)
        reasons = engine.why_not(task)
        assert not reasons, "\n".join(map(str, reasons))
        config = EngineConfig(fuse(self.graph), place.device, (Choice(task, engine, engine.settings(knobs or {})),))
        images = self._prepared(sums).images(0xFF)
        problem = place.run(place.plan(config), images, {}, 0xFF, 0)
        assert not problem, problem
        return self._placed(images[self.op.outputs[0].uid].logical())

    def by_numpy(self, sums: Sums) -> Array:
        with np.errstate(all="ignore"):
            return self._placed(self._prepared(sums).by_numpy[self.op.outputs[0].uid])

    def _prepared(self, sums: Sums) -> Prepared:
        return Prepared(Problem(self.graph.operations, self.values(sums)), self.graph)

    def _placed(self, results: Array) -> Array:
        flat = results.astype(np.float64)
        if self.is_wgrad:
            flat = flat[: self.results, :, self.taps // 2, self.taps // 2]
        if self._spread:  # what the tap in the middle reaches
            flat = flat[:, :, :: self._spread, :: self._spread]
        return flat[0] if self.is_matmul else flat.reshape(self.results, self.pixels).T


def check_bound(problem: Sum, place: Place, engine: Engine, how: Callable[..., Sums], knobs: Any = None) -> str:
    """What is wrong; empty when every result is within the engine's bound."""
    sums = problem.draw(how)
    assert engine.sum_error is not None
    if how is huge:
        sums = Sums(sums.x / engine.sum_error.headroom, sums.w)
    got = problem.run(place, engine, sums, knobs)
    exact, size = sums.x @ sums.w.T, np.abs(sums.x) @ np.abs(sums.w).T
    bound = engine.sum_error
    n = problem.n if problem.is_wgrad else problem.n * problem.taps**2
    ends = max(1.0, float(np.abs(sums.x).max()), float(np.abs(sums.w).max()))
    if bound.of_largest:
        size = np.full_like(size, n * np.abs(sums.x).max() * np.abs(sums.w).max())
    # The result itself is a float.
    allowed = (bound.units(n) + 1) * _UNIT * size + n * bound.floor * ends + 2.0**-149
    error = np.abs(got - exact)
    if np.all(error <= allowed):  # NaN is not
        return ""
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error / allowed)), error.shape)
    return f"{how.__name__}: {got[worst]!r} where {exact[worst]!r} is exact, off by {error[worst]:.3g} > {allowed[worst]:.3g}"


def check_places(problem: Sum, place: Place, engine: Engine, how: Callable[..., Sums], knobs: Any = None) -> str:
    """What is wrong; empty when results that are no numbers are those of the general engine, and no others."""
    sums = problem.draw(how)
    got, wanted = problem.run(place, engine, sums, knobs), problem.by_numpy(sums)
    with np.errstate(over="ignore"):
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    there = np.isfinite(wanted)
    if np.array_equal(np.isfinite(got), there) and np.array_equal(got[~there], wanted[~there], equal_nan=True):
        return ""
    at = tuple(np.argwhere(~((got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(got) & there)))[0])
    return f"{how.__name__}: at {at} {got[at]!r}, in NumPy {wanted[at]!r}"


def _behind_a_chain(graph: OperationGraph) -> OperationGraph:
    """The image passes through an operation that leaves it as it is."""
    (conv,) = graph.operations
    assert isinstance(conv, ConvForward)
    between = conv.x.model_copy(update={"uid": 1000, "is_virtual": True})
    settings = PointwiseSpec(mode=PointwiseMode.IDENTITY, math_type=DataType.FLOAT)
    first = PointwiseOperation(spec=settings, x=conv.x, y=between)
    return OperationGraph.of([first, conv.model_copy(update={"x": between})])


def _with_fast_sums(graph: OperationGraph) -> OperationGraph:
    (op,) = graph.operations
    name = "conv" if isinstance(op, ConvForward) else "spec"
    fast = getattr(op, name).model_copy(update={"compute_type": DataType.FAST_FLOAT_FOR_FP8})
    return OperationGraph.of([op.model_copy(update={name: fast})])
