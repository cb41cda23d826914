"""FAMILIES: every kind of problem that is drawn, one row each. ``draw`` gives the same problem for the same case."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from random_problems import (
    attention,
    convolutions,
    data_movement,
    elementwise,
    gradients,
    matmuls,
    multi_kernel_graphs,
    norms,
    reductions,
    resampling,
    shared_tensors,
)
from random_problems.graph_sketch import Problem, Sketch


@dataclass(frozen=True)
class Case:
    """What to draw; printed, and read back from the command line, as ``family:seed``."""

    family: str
    seed: int
    large: bool

    def __str__(self) -> str:
        return f"{self.family}:{self.seed}" + ("" if self.large else ":small")

    @classmethod
    def of(cls, text: str) -> Case:
        family, seed, *rest = text.split(":")
        return cls(family, int(seed), rest != ["small"])


@dataclass(frozen=True)
class Family:
    weight: int  # share of the cases
    draw: Callable[[Sketch, int], Problem]


def _one(function: Callable[[Sketch], Problem]) -> Callable[[Sketch, int], Problem]:
    return lambda sketch, seed: function(sketch)


def _turns(function: Callable[[Sketch, Any], Problem], options: Sequence[Any]) -> Callable[[Sketch, int], Problem]:
    """Seeds go through the options in turn, so that a run of enough cases has them all."""
    return lambda sketch, seed: function(sketch, options[seed % len(options)])


def _any(*functions: Callable[[Sketch], Problem]) -> Callable[[Sketch, int], Problem]:
    return lambda sketch, seed: functions[seed % len(functions)](sketch)


FAMILIES: dict[str, Family] = {
    **{f"conv_{d}": Family(7, _one(partial(convolutions.floating, direction=d))) for d in ("fprop", "dgrad", "wgrad")},
    **{f"conv_{d}_int": Family(5, _one(partial(convolutions.whole, direction=d))) for d in ("fprop", "dgrad", "wgrad")},
    "pointwise": Family(14, _turns(elementwise.single, elementwise.MODES)),
    "pointwise_graph": Family(5, _one(elementwise.graph)),
    "conversion": Family(6, _one(elementwise.conversion)),
    "mask": Family(2, _one(elementwise.compared)),
    "reduction": Family(8, _turns(reductions.reduction, reductions.OPERATORS)),
    "statistics": Family(5, _any(reductions.statistics, reductions.finalize, reductions.weights, reductions.exits)),
    "matmul": Family(6, _one(matmuls.floating)),
    "matmul_int": Family(4, _one(matmuls.whole)),
    "resample": Family(7, _any(resampling.forward, resampling.backward, resampling.across)),
    "pool_apart": Family(1, _any(resampling.apart, resampling.apart_backward)),
    "norm": Family(8, _any(norms.forward, norms.backward)),
    "softmax": Family(2, _one(norms.softmax)),
    "attention": Family(3, _one(attention.attention)),
    "gradient": Family(2, _any(gradients.softmax, gradients.response)),
    "movement": Family(6, _any(data_movement.transpose, data_movement.slice_of, data_movement.concat, data_movement.reshape)),
    "rng": Family(3, _one(data_movement.random_numbers)),
    "shared": Family(5, _any(*shared_tensors.KINDS)),
    "graph": Family(5, _any(multi_kernel_graphs.network, multi_kernel_graphs.network, multi_kernel_graphs.products)),
}  # fmt: skip


def draw(case: Case) -> Problem:
    key = [zlib.crc32(case.family.encode()), case.seed, int(case.large)]
    sketch = Sketch(np.random.default_rng(key), case.large)
    return FAMILIES[case.family].draw(sketch, case.seed)


def cases(count: int, *, large: bool, families: Sequence[str] = (), start: int = 0) -> list[Case]:
    """``count`` cases in proportion to the families' weights, at least one each."""
    chosen = families or tuple(FAMILIES)
    total = sum(FAMILIES[f].weight for f in chosen)
    return [
        Case(family, start + i, large)
        for family in chosen
        for i in range(max(1, round(count * FAMILIES[family].weight / total)))
    ]
