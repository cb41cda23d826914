"""The inputs of a plan in host memory, checked: what is looked at beside an execution, and never written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphdnn.plan.binding_validation import Expected, coerce, refuse_names
from graphdnn.plan.execution_plan import ExecutionPlan


def host_inputs(plan: ExecutionPlan, bindings: Mapping[int, Any]) -> dict[int, Any]:
    """Every input, and the outputs whose old contents a beta reads; other outputs may be bound and are left out.

    Arrays in the memory of the plan's device are copied. Raises ``BadParam`` as ``execute`` does, and ``NotSupported``
    when arrays are on a device that is not here.
    """
    graph = plan.config.fused.graph
    read = {t.uid for op in graph.operations if op.reads_output for t in op.outputs().values()}
    wanted = [t for t in graph.bound if t.uid not in graph.producer or t.uid in read]
    known = {t.uid for t in graph.bound}
    if any(t.uid not in bindings for t in wanted) or not known.issuperset(bindings):
        others = {uid: bindings.get(uid) for uid in known - {t.uid for t in wanted}}
        refuse_names([Expected.of(t, is_output=False) for t in graph.bound], {**others, **bindings})
    hosts = {t.uid: bindings[t.uid] for t in wanted}
    elsewhere = {t.uid: hosts[t.uid] for t in wanted if not t.is_by_value and not isinstance(hosts[t.uid], np.ndarray)}
    if elsewhere:
        hosts |= plan.to_host(elsewhere)
    arrays = [t for t in wanted if not t.is_by_value]
    coerced = coerce([Expected.of(t, is_output=False) for t in arrays], [hosts[t.uid] for t in arrays])
    return hosts | dict(zip((t.uid for t in arrays), coerced, strict=True))
