"""The CTC loss in logarithms: probabilities of what was read up to a step, and of what is left.

A. Graves et al., "Connectionist temporal classification", ICML 2006. Places are the classes of a label with a blank
before, between and after them; place 2i+1 is class i. All sequences go through the steps together.
"""

from __future__ import annotations

import numpy as np

from graphdnn.dtypes import Array


def places_of(labels: Array, lengths: Array, classes: int) -> tuple[Array, Array, Array]:
    """Classes by place [n, places], which places exist, and which may be reached from two places before."""
    batch, longest = labels.shape
    places = np.zeros((batch, 2 * longest + 1), np.int64)
    places[:, 1::2] = np.clip(labels, 0, classes - 1)
    exists = np.arange(2 * longest + 1) < (2 * lengths + 1)[:, None]
    skips = np.zeros_like(exists)
    skips[:, 3::2] = places[:, 3::2] != places[:, 1:-2:2]
    return places, exists, skips


def shifted(values: Array, by: int) -> Array:
    """Values of the places ``by`` before (after, for negative numbers); impossible where there are none."""
    found = np.full_like(values, -np.inf)
    if abs(by) < values.shape[1]:
        found[:, max(by, 0) : min(by, 0) or None] = values[:, max(-by, 0) : -by if by > 0 else None]
    return found


def loss(
    probs: Array, labels: Array, label_lengths: Array, input_lengths: Array, scratch: Array | None, *, gradients: bool
) -> tuple[Array, Array | None]:
    """Costs [n], and gradients [t, n, classes] of the activations behind ``probs``."""
    steps, batch, classes = probs.shape
    label_lengths = np.clip(label_lengths.astype(np.int64), 0, labels.shape[1])
    input_lengths = np.clip(input_lengths.astype(np.int64), 0, steps)
    places, exists, skips = places_of(labels, label_lengths, classes)
    shape = (2, steps, batch, places.shape[1])
    read, left = (
        np.empty(shape, probs.dtype) if scratch is None else scratch.view(probs.dtype)[: np.prod(shape)].reshape(shape)
    )
    rows = np.arange(batch)
    emitted = np.log(np.take_along_axis(probs, np.broadcast_to(places, (steps, *places.shape)), axis=2))
    emitted[:, ~exists] = -np.inf

    start = np.full(places.shape, -np.inf, probs.dtype)
    start[:, :2] = 0
    for t in range(steps):
        if t:
            before = read[t - 1]
            two = np.where(skips, shifted(before, 2), -np.inf)
            start = np.logaddexp(np.logaddexp(before, shifted(before, 1)), two)
        read[t] = start + emitted[t]

    last = np.maximum(input_lengths - 1, 0)
    ends = read[last, rows]
    final, inner = 2 * label_lengths, np.maximum(2 * label_lengths - 1, 0)
    total = np.where(label_lengths > 0, np.logaddexp(ends[rows, final], ends[rows, inner]), ends[rows, 0])
    total = np.where(input_lengths > 0, total, np.where(label_lengths > 0, -np.inf, 0.0)).astype(probs.dtype)
    costs = -total
    if not gradients:
        return costs, None

    finish = np.full(places.shape, -np.inf, probs.dtype)
    finish[rows, final] = finish[rows, inner] = 0
    onward = np.zeros_like(skips)
    onward[:, :-2] = skips[:, 2:]
    for t in reversed(range(steps)):
        ending = finish
        if t + 1 < steps:
            after = left[t + 1] + emitted[t + 1]
            two = np.where(onward, shifted(after, -2), -np.inf)
            going = np.logaddexp(np.logaddexp(after, shifted(after, -1)), two)
            ending = np.where((t == last)[:, None], finish, going)
        left[t] = ending

    possible = np.isfinite(total)
    spelled = np.exp(read + left - np.where(possible, total, 0)[:, None])
    found = np.zeros_like(probs)
    for place in range(places.shape[1]):  # one class at each place: in order, so that equal inputs give equal bits
        found[:, rows, places[:, place]] += np.where(exists[:, place], spelled[:, :, place], 0)
    inside = (np.arange(steps)[:, None] < input_lengths) & possible
    return costs, np.where(inside[:, :, None], probs - found, probs.dtype.type(0))
