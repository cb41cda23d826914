"""``explain``: where the operators of a module go, and why some stay with PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from graphdnn.plan.device_plan import ABSENT
from graphdnn.text_format import plural
from graphdnn.torch.compiler import Compilation, backend
from graphdnn.torch.dynamic_segment import DynamicSegment
from graphdnn.torch.partition import Fallback
from graphdnn.torch.rules import ONE_OPERATOR, VIEWS_ONLY
from graphdnn.torch.segment import Segment

_QUIET = (VIEWS_ONLY.id, ONE_OPERATOR.id)  # nothing is lost
_PLACES = 3  # lines of the module that are named for one reason


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a module. ``print`` shows it.

    Args:
        compilations: One for each graph that TorchDynamo captured: inference, or forward and backward.
        graph_breaks: Why TorchDynamo divided the module, if it did.
    """

    compilations: tuple[Compilation, ...]
    graph_breaks: tuple[str, ...] = ()

    @property
    def segments(self) -> list[Segment]:
        """The segments that the library executes."""
        found: list[Segment] = []
        for segment in (s for c in self.compilations for s in c.segments):
            found += segment.segments if isinstance(segment, DynamicSegment) else [segment]
        return found

    @property
    def fallbacks(self) -> list[Fallback]:
        """The operators that PyTorch executes although the library could gain something: views apart."""
        return [f for c in self.compilations for f in c.fallbacks if f.reasons[0].rule not in _QUIET]

    @property
    def coverage(self) -> float:
        """The share of operators that the library executes, views and single operators of PyTorch apart."""
        served = sum(c.served for c in self.compilations)
        return served / max(1, served + len(self.fallbacks))

    @property
    def predicted_seconds(self) -> float:
        """The predicted time of all segments."""
        return sum(choice.cost.seconds for s in self.segments for choice in s.graph.plan.config.choices)

    def __str__(self) -> str:
        lines = [
            f"{self.coverage:.1%} of the operators in {plural(len(self.segments), 'segment')}, "
            f"predicted {self.predicted_seconds * 1e6:.1f} us"
        ]
        for compilation in self.compilations:
            lines += _compilation_lines(compilation)
        lines += [f"graph break: {reason}" for reason in self.graph_breaks]
        return "\n".join(lines)


def _compilation_lines(compilation: Compilation) -> list[str]:
    lines = [f"{compilation.kind}: {plural(compilation.served, 'operator')} in "
             f"{plural(len(compilation.segments), 'segment')}"]  # fmt: skip
    for number, segment in enumerate(compilation.segments):
        plans = segment.segments if isinstance(segment, DynamicSegment) else [segment]
        for each in plans:
            lines += [f"  segment {number}: {plural(len(each.graph.plan.compiled), 'kernel')} "
                      f"on {each.graph.device.name}, {each.graph.plan.workspace_size} bytes of workspace"]  # fmt: skip
            lines += _kernel_lines(each)
        failures = [f for f in segment.failures if f.rejections[0].rule != ABSENT.id]  # a profile was asked for
        lines += [f"    PyTorch executed a call: {error}" for error in failures]
    return lines + _fallback_lines(compilation.fallbacks)


def _kernel_lines(segment: Segment) -> list[str]:
    config = segment.graph.plan.config
    total = sum(choice.cost.seconds for choice in config.choices)
    lines = []
    for choice, kernel in zip(config.choices, segment.graph.plan.compiled, strict=True):
        names = list(dict.fromkeys(op.name.partition("::")[0] or op.label() for op in choice.task.op.operations))
        seconds = choice.cost.seconds
        lines.append(f"    {seconds * 1e6:8.1f} us {seconds / total:4.0%}  {kernel.name}: {', '.join(names)}")
    return lines


def _fallback_lines(fallbacks: list[Fallback]) -> list[str]:
    """Each reason once, with its operators and the first lines of the module."""
    groups: dict[Any, list[Fallback]] = {}
    for fallback in fallbacks:
        reason = fallback.reasons[0]
        key = (fallback.operator, reason.rule, reason.attribute, reason.expected)
        if reason.rule not in _QUIET:
            groups.setdefault(key, []).append(fallback)
    lines = []
    for (operator, rule, attribute, expected), found in groups.items():
        reason = found[0].reasons[0]
        lines.append(f"  PyTorch executes {operator} ({plural(len(found), 'call')}): {attribute} = {reason.value}, "
                     f"expected {expected}   [{rule}]")  # fmt: skip
        lines += [f"    why: {reason.reason}", f"    fix: {reason.fix}"]
        places = Counter(f.source for f in found if f.source)
        lines += [f"    at {place}" for place in list(places)[:_PLACES]]
    return lines


def explain(
    module: Callable[..., Any], *inputs: Any, training: bool = False, options: Mapping[str, Any] | None = None
) -> Explanation:
    """Compile a module for its inputs and say what went where. The module is called once; nothing of it is changed but
    what a call changes.

    Args:
        module: A module or a function of tensors.
        inputs: The arguments of the call.
        training: True compiles the backward graph as well, as a call under autograd does.
        options: The options of the backend.

    Returns:
        The explanation.

    Raises:
        torch._dynamo.exc.TorchDynamoException: TorchDynamo cannot capture the module.
    """
    compilations: list[Compilation] = []
    torch._dynamo.reset()
    compiled = torch.compile(module, backend=partial(backend, options=options, listener=compilations.append))
    try:
        with torch.set_grad_enabled(training):
            result = compiled(*inputs)
        if training:
            _sum(result).backward()
        breaks = torch._dynamo.utils.counters["graph_break"]
        return Explanation(tuple(compilations), tuple(str(reason).splitlines()[0] for reason in breaks))
    finally:
        torch._dynamo.reset()


def _sum(result: Any) -> Any:
    """One number of all floating-point results, whose gradient reaches each of them."""
    tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    return sum(t.float().sum() for t in tensors if t.requires_grad)
