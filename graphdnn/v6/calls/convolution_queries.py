"""Questions before a convolution: which algorithm, how fast is each, and how large a workspace.

A query refuses what the call itself would refuse. On the host a workspace is a help, not a condition: a call that gets
none, or one that is too small, allocates for itself.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from graphdnn.v6.algorithms import members
from graphdnn.v6.calls.convolution_directions import (
    PASSES,
    Pass,
    Perf,
    best,
    guessed,
    samples,
    timed,
    values_of,
    workspace_of,
)
from graphdnn.v6.descriptor_checks import entries
from graphdnn.v6.descriptor_values import Descriptor, Handle
from graphdnn.v6.registry import implements


def _limit(preference: IntEnum, memory_limit: int) -> int | None:
    """Bytes of workspace that an answer may need; the limit counts for one of the three preferences."""
    if preference.name.endswith("NO_WORKSPACE"):
        return 0
    return memory_limit if preference.name.endswith("SPECIFY_WORKSPACE_LIMIT") else None


def _queries(direction: Pass) -> None:
    """The functions of one direction."""
    prefix = f"Convolution{direction.name}"

    def get(handle: Handle, a: Descriptor, b: Descriptor, conv: Descriptor, c: Descriptor, preference: IntEnum,
            memory_limit: int) -> IntEnum:  # fmt: skip
        where = f"cudnnGet{prefix}Algorithm"
        values = values_of(a, b, conv, c)
        return best(direction, where, handle, values, _limit(preference, memory_limit)).algorithm

    def guess(handle: Handle, a: Descriptor, b: Descriptor, conv: Descriptor, c: Descriptor,
              count: int) -> tuple[int, tuple[Perf, ...]]:  # fmt: skip
        return guessed(direction, f"cudnnGet{prefix}Algorithm_v7", handle, values_of(a, b, conv, c), count)

    def find(handle: Handle, a: Descriptor, b: Descriptor, conv: Descriptor, c: Descriptor,
             count: int) -> tuple[int, tuple[Perf, ...]]:  # fmt: skip
        where, values = f"cudnnFind{prefix}Algorithm", values_of(a, b, conv, c)
        entries(where, 1, requestedAlgoCount=count)
        return timed(direction, where, handle, values, count, samples(handle, values))

    def find_in(handle: Handle, a_desc: Descriptor, a: Any, b_desc: Descriptor, b: Any, conv: Descriptor,
                c_desc: Descriptor, c: Any, count: int, workspace: Any,
                workspace_bytes: int) -> tuple[int, tuple[Perf, ...]]:  # fmt: skip
        where, values = f"cudnnFind{prefix}AlgorithmEx", values_of(a_desc, b_desc, conv, c_desc)
        entries(where, 1, requestedAlgoCount=count)
        limit = 0 if workspace is None else workspace_bytes
        return timed(direction, where, handle, values, count, (a, b, c), workspace, limit)

    def workspace_size(handle: Handle, a: Descriptor, b: Descriptor, conv: Descriptor, c: Descriptor,
                       algorithm: IntEnum) -> int:  # fmt: skip
        where, values = f"cudnnGet{prefix}WorkspaceSize", values_of(a, b, conv, c)
        return workspace_of(direction.prepare(handle, *values, algorithm, 1.0, 0.0, where), algorithm)

    def most(handle: Handle) -> int:
        return len(members(direction.algorithms))

    implements(f"cudnnGet{prefix}Algorithm")(get)
    implements(f"cudnnGet{prefix}Algorithm_v7")(guess)
    implements(f"cudnnFind{prefix}Algorithm", "each algorithm's graph, run", "their calls")(find)
    implements(f"cudnnFind{prefix}AlgorithmEx", "each algorithm's graph, run", "their calls")(find_in)
    implements(f"cudnnGet{prefix}WorkspaceSize")(workspace_size)
    implements(f"cudnnGet{prefix}AlgorithmMaxCount")(most)


for _direction in PASSES:
    _queries(_direction)
