"""A configuration as an entry of a lock, with every other engine's prediction beside the chosen one's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from graphdnn.analysis.certificate.numeric_class import numeric_class
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import engines_of
from graphdnn.files import graph_to_dict
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import ASKED_FOR, Choice, EngineConfig
from graphdnn.locks.lock_file import Lock, LockedGraph, LockedKernel
from graphdnn.pipeline import rank

_DIGITS = 4  # of a predicted time: what another processor's last bits do not reach


def lock_of(
    graphs: Mapping[str, OperationGraph],
    device: DeviceSpec,
    problems: Mapping[str, str],
    library: str,
) -> Lock:
    """A lock of named graphs on a device.

    Args:
        graphs: The graphs by name.
        device: The profile of the device.
        problems: The lines that make the graphs, by name, as far as there are any.
        library: The version of the library.

    Returns:
        The lock.

    Raises:
        NotSupported: No engine serves one of the graphs.
    """
    entries = (entry_of(rank(graph, device).best, name, problems.get(name, "")) for name, graph in graphs.items())
    return Lock(library, {}, ()).with_graphs(entries, {device.name: device}, library)


def entry_of(config: EngineConfig, name: str, problem: str = "", *, is_planned: bool = False) -> LockedGraph:
    """The entry of a configuration.

    Args:
        config: The configuration.
        name: The name of the entry.
        problem: The line that makes the graph. Without it the entry holds the graph itself.
        is_planned: True for the configuration of a plan file. ``check`` then asks whether it can still be built, not
            whether it is still the best.

    Returns:
        The entry.
    """
    graph = config.fused.graph
    return LockedGraph(
        name=name,
        device=config.device.name,
        key=graph.key,
        problem=problem,
        graph=None if problem else graph_to_dict(graph),
        limits=config.fused.limits.to_json() if config.fused.limits else {},
        kernels=tuple(_kernel(choice) for choice in config.choices),
        stops=tuple((stop.subject, stop.rule) for stop in config.fused.stopped_by),
        numbers=tuple(map(str, numeric_class(config).operations)),
        workspace=config.workspace_size,
        is_planned=is_planned,
    )


def _kernel(choice: Choice) -> LockedKernel:
    op = choice.task.op
    return LockedKernel(
        operations=tuple(step.label() for step in op.operations),
        rule=op.rule,
        engine=choice.engine.name,
        knobs={kind.name: value for kind, value in sorted(choice.knobs.items())},
        predicted_us=_microseconds(choice.cost.seconds),
        workspace=choice.scratch,
        texts=texts_of(choice),
        ranking=_predictions(choice),
    )


def texts_of(choice: Choice) -> dict[str, str]:
    """Name of each kernel text without its own hash -> hash of the text and the options it is compiled with."""
    if choice.task.device.kind == "cpu":
        return {}
    from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch, LibraryCall

    kernel = choice.engine.compile(choice.task, choice.knobs)
    found: dict[str, str] = {}
    for step in kernel.steps if isinstance(kernel, DeviceKernel) else ():
        if isinstance(step, LibraryCall):
            found[step.name] = "library"
        elif isinstance(step, Launch):
            content = "\n".join((*step.text.options, step.text.text))
            name, _, _ = step.text.name.rpartition("__")
            name = step.text.name if not name or name in found else name
            found[name] = hashlib.sha256(content.encode()).hexdigest()[:16]
    return dict(sorted(found.items()))


def _predictions(choice: Choice) -> dict[str, float]:
    """Every engine that serves the kernel unasked, and the chosen one."""
    task = choice.task
    found = {choice.engine.name: choice.cost.seconds}
    for engine in engines_of(task.device.kind):
        if not ASKED_FOR.intersection(engine.numerical_notes) and engine.serves(task):
            found.setdefault(engine.name, engine.cost(task, engine.defaults()).seconds)
    return {name: _microseconds(seconds) for name, seconds in sorted(found.items(), key=lambda item: item[1])}


def _microseconds(seconds: float) -> float:
    return float(f"{seconds * 1e6:.{_DIGITS}g}")
