"""Where do thirty shifted copies of an image lie? One int16 convolution answers, exactly.

Sliding a copy t over the reference r and summing r*t is what a convolution does, but the largest sum is not at the
right place: bright areas win. The sum of squared differences over the overlap is the right score: it is 0 where a
copy lies exactly on the reference, and more than 0 everywhere else. It expands into three products,

    sum (r - t)^2 = sum r * (-2 t)  +  sum r^2 * 1  +  sum 1 * t^2

so it is one convolution with three input channels, [r, r^2, 1], and filters [-2 t, 1, t^2]. Padding makes all three
channels 0 outside the reference, which leaves exactly the overlap. Pixels are counted from the middle grey, so that
every operand fits into int16.
"""

from __future__ import annotations

import time

import numpy as np

from graphdnn.builder import Graph
from graphdnn.cli.commands.demo.photo import grey
from graphdnn.cli.commands.demo.report import Report
from graphdnn.dtypes import Array
from graphdnn.enums import DataType
from graphdnn.text_format import seconds, table

SIDE, REACH, COPIES = 100, 30, 30
TOP, LEFT = 150, 200  # of the reference in the photograph
MIDDLE_GREY = 128
NOISE = 3  # grey levels, in every second copy
SCORES = 2 * REACH + 1  # along each axis
INT32_LIMIT = 2**31


def scene() -> tuple[Array, Array, Array]:
    """The reference, its copies, and by how much each is shifted. Every second copy is noisy."""
    photo, rng = grey(), np.random.default_rng(2)
    shifts = rng.integers(-REACH, REACH, (COPIES, 2), endpoint=True)
    copies = np.stack([_crop(photo, TOP + down, LEFT + right) for down, right in shifts])
    copies[::2] += rng.integers(-NOISE, NOISE, copies[::2].shape, np.int16, endpoint=True)
    return _crop(photo, TOP, LEFT), np.clip(copies, 0, 255), shifts


def _crop(photo: Array, top: int, left: int) -> Array:
    return np.asarray(photo[top : top + SIDE, left : left + SIDE])


def as_channels(reference: Array, copies: Array) -> tuple[Array, Array]:
    """x [1, 3, H, W] and w [K, 3, H, W] whose convolution is the sum of squared differences."""
    r, t = reference - np.int16(MIDDLE_GREY), copies - np.int16(MIDDLE_GREY)
    return np.stack([r, r * r, np.ones_like(r)])[None], np.stack([-2 * t, np.ones_like(t), t * t], axis=1)


def convolve(x: Array, w: Array, accumulator: DataType) -> tuple[Array, float]:
    """y [K, shifts, shifts] and the seconds it took: one graph of one convolution, padded by the reach."""
    graph = Graph("registration", compute_data_type=accumulator)
    image, templates = graph.tensor_like(x, name="reference"), graph.tensor_like(w, name="copies")
    y = graph.conv_fprop(image, templates, padding=[REACH, REACH]).set_data_type(accumulator).set_output(True)
    graph.build()
    start = time.perf_counter()
    scores = graph.run({image: x, templates: w})[y]
    return scores[0], time.perf_counter() - start


def largest_sum(x: Array, w: Array) -> int:
    """No partial sum, in whatever order, exceeds this: per channel max|x| * sum|w|, of the worst filter."""
    most = np.abs(x.astype(np.int64)).max(axis=(0, 2, 3))
    weight = np.abs(w.astype(np.int64)).sum(axis=(2, 3))
    return int((weight @ most).max())


def accumulator_for(x: Array, w: Array) -> DataType:
    """INT32 where the ranges prove that it cannot overflow, else INT64, which is exact for every int16 operand."""
    return DataType.INT32 if largest_sum(x, w) < INT32_LIMIT else DataType.INT64


def overlap() -> Array:
    """Pixels that reference and copy have in common, for each shift."""
    along = SIDE - np.abs(np.arange(-REACH, REACH + 1))
    return np.outer(along, along)


def best_shift(scores: Array) -> Array:
    """(down, right) of each copy's lowest score."""
    place = scores.reshape(len(scores), -1).argmin(axis=1)
    return np.stack(np.unravel_index(place, scores.shape[1:]), axis=1) - REACH


def squared_differences(reference: Array, copies: Array) -> Array:
    """The definition, slice by slice, without the library: every score of every copy."""
    result = np.empty((len(copies), SCORES, SCORES), np.int64)
    wide, others = reference.astype(np.int32), copies.astype(np.int32)
    for down, right in np.ndindex(SCORES, SCORES):
        (mine, theirs), (across, their_across) = _common(down - REACH), _common(right - REACH)
        difference = wide[mine, across] - others[:, theirs, their_across]
        result[:, down, right] = np.einsum("kij,kij->k", difference, difference)
    return result


def _common(shift: int) -> tuple[slice, slice]:
    """Along one axis: the part of the reference and the part of a copy shifted by ``shift`` that overlap."""
    return slice(max(0, shift), SIDE + min(0, shift)), slice(max(0, -shift), SIDE - max(0, shift))


def run(report: Report) -> None:
    reference, copies, shifts = scene()
    x, w = as_channels(reference, copies)
    report.say(
        f"reference {SIDE} x {SIDE}, {COPIES} copies shifted by up to {REACH} pixels, {COPIES // 2} of them noisy"
    )
    report.say(f"x {list(x.shape)} {x.dtype}, padded by {REACH}; w {list(w.shape)} {w.dtype}")
    report.say()

    scores, taken = exact_scores(report, x, w)
    found = best_shift(scores / overlap())
    right = int((found == shifts).all(axis=1).sum())
    report.say(_table_of_shifts(shifts, found, scores))
    report.check(f"{right} of {COPIES} shifts found", right == COPIES)
    report.check("every score is the definition's", np.array_equal(scores, squared_differences(reference, copies)))

    floats, float_taken = convolve(x.astype(np.float32), w.astype(np.float32), DataType.FLOAT)
    off = np.abs(floats.astype(np.float64) - scores)
    report.say()
    report.say(
        f"the same in float32: {np.count_nonzero(off)} of {off.size} scores are off, by up to {off.max():.0f} "
        f"({seconds(float_taken)}; int16 {seconds(taken)})"
    )
    report.say()
    wide_pixels(report, reference, copies, shifts)


def exact_scores(report: Report, x: Array, w: Array) -> tuple[Array, float]:
    """The scores with the accumulator that the ranges allow, and the proof."""
    accumulator = accumulator_for(x, w)
    report.say(f"no sum exceeds max|x| * sum|w| = {largest_sum(x, w):,} < 2^31 = {INT32_LIMIT:,}")
    report.check(f"an {accumulator.name} accumulator is proven not to overflow", accumulator is DataType.INT32)
    return convolve(x, w, accumulator)


def _table_of_shifts(shifts: Array, found: Array, scores: Array) -> str:
    """The first copies: shift, what was found, the score there and the best one elsewhere, per pixel."""
    rows = []
    per_pixel = (scores / overlap()).reshape(len(scores), -1)
    for i in range(4):
        best, second = np.partition(per_pixel[i], 1)[:2]
        noisy = f"{'noisy' if i % 2 == 0 else 'clean'}"
        rows.append([str(i), noisy, f"({shifts[i, 0]:+d}, {shifts[i, 1]:+d})", f"({found[i, 0]:+d}, {found[i, 1]:+d})",
                     f"{best:.2f}", f"{second:.2f}"])  # fmt: skip
    return table(["copy", "", "shifted by", "found", "score per pixel", "next best"], rows, right=(2, 3, 4, 5))


def wide_pixels(report: Report, reference: Array, copies: Array, shifts: Array) -> None:
    """Plain correlation of 12-bit pixels: here INT32 is not proven, and indeed wraps; and bright areas win."""
    x, w = (reference * np.int16(16))[None, None], (copies * np.int16(16))[:, None]
    accumulator = accumulator_for(x, w)
    report.say(f"plain correlation of raw 12-bit pixels: max|x| * sum|w| = {largest_sum(x, w):,}, not below 2^31")
    report.check(f"{accumulator.name} is chosen", accumulator is DataType.INT64)
    scores, _ = convolve(x, w, accumulator)
    wrapped, _ = convolve(x, w, DataType.INT32)
    lost = int(np.count_nonzero(wrapped != scores))
    report.check(f"an INT32 accumulator would have wrapped in {lost} of {scores.size} scores", lost > 0)
    zero = tuple(int(np.sum(x.astype(np.int64)[0] * t.astype(np.int64))) for t in w)
    report.check("INT64 agrees with NumPy's int64 at shift (0, 0)", np.array_equal(scores[:, REACH, REACH], zero))
    right = int((best_shift(-scores) == shifts).all(axis=1).sum())
    report.say(f"the largest plain correlation is at the right place for {right} of {COPIES} copies: hence the squares")
