"""GROUPS: the tables of cases by name, each with what measures one of its cases."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from gpu import contest, host
from gpu.attention import ATTENTION
from gpu.convolutions import DENSE, DEPTHWISE, DGRAD, DIRECT, FP32, NCHW, RESIDUAL, WGRAD
from gpu.device import Device
from gpu.host import HOST
from gpu.integers import BYTES, INTEGERS
from gpu.memory import MEMORY
from gpu.models import MODELS
from gpu.options import Options
from gpu.problem import Case, Group
from gpu.recurrent import RECURRENT
from gpu.result import Result

Measure = Callable[[Group, Case, Device, Options], Result]

GROUPS: dict[str, tuple[Group, Measure]] = {
    MEMORY.name: (MEMORY, contest.measure),
    DEPTHWISE.name: (DEPTHWISE, contest.measure),
    DIRECT.name: (DIRECT, contest.measure),
    FP32.name: (FP32, contest.measure),
    INTEGERS.name: (INTEGERS, contest.measure),
    HOST.name: (HOST, host.measure),
    **{
        group.name: (group, contest.measure)
        for group in (DENSE, RESIDUAL, DGRAD, WGRAD, NCHW, BYTES, RECURRENT, MODELS, ATTENTION)
    },
}


# Groups by the name of a suite.
SUITES: dict[str, tuple[str, ...]] = {
    "table": ("dense", "residual", "dgrad", "wgrad", "nchw", "depthwise", "fp32", "integers", "bytes"),
    "all": tuple(GROUPS),
}


def chosen(group: Group, only: Sequence[str] = (), *, quick: bool = False) -> tuple[Case, ...]:
    """``only``: words or patterns; a case takes part when its name contains or matches one of them."""
    return tuple(
        case
        for case in group.cases
        if (case.quick or not quick) and (not only or any(_matches(case.name, word) for word in only))
    )


def _matches(name: str, word: str) -> bool:
    return fnmatch.fnmatchcase(name, word) if set(word) & set("*?[") else word in name
