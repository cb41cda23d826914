"""Program: a model for given shapes, as parts that run one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import GraphdnnError, NotSupported, Rejection
from graphdnn.onnx.graph_part import GraphPart, NodeRefused
from graphdnn.onnx.merging import merge
from graphdnn.onnx.node import Node
from graphdnn.onnx.partition import needed, partition
from graphdnn.onnx.reference import ReferenceNodes
from graphdnn.onnx.specialization import Specialization
from graphdnn.text_format import plural


class Program:
    """A specialized model with plans.

    Args:
        found: The specialization.
        device: The device of the plans.
        name: The name of the model.
        fallback: ``"reference"`` runs nodes without an engine by ONNX's reference evaluator; None refuses them.
        bind: False ranks engines only, for a device that is not present.

    Raises:
        NotSupported: Nodes are not served; the error lists all of them.
    """

    def __init__(
        self, found: Specialization, device: DeviceSpec, name: str, fallback: str | None, *, bind: bool = True
    ) -> None:
        self.found, self.name = found, name
        self.merged = merge(found)
        self.nodes = needed(found.nodes, found.outputs)
        self.refused: dict[Node, list[Rejection]] = {n: r for n, r in found.refused.items() if n in set(self.nodes)}
        self._demand(fallback)
        constants = {n for n, value in found.values.items() if value.constant is not None}
        parts = None
        while parts is None:  # once more without the nodes that the builder or every engine refuses
            served = {node for node in self.nodes if node not in self.refused}
            groups = partition(self.nodes, served, constants, found.outputs)
            parts = self._parts(groups, device)
            self._demand(fallback)
        self.parts = parts
        for part in self.graphs if bind else ():
            part.bind()

    def _demand(self, fallback: str | None) -> None:
        if self.refused and fallback is None:
            raise NotSupported([r for reasons in self.refused.values() for r in reasons])

    def _parts(self, groups: Sequence[Any], device: DeviceSpec) -> list[GraphPart | ReferenceNodes] | None:
        found = self.found
        parts: list[GraphPart | ReferenceNodes] = []
        for i, group in enumerate(groups):
            if not group.is_served:
                parts.append(ReferenceNodes(group.nodes, group.inputs, group.outputs))
                continue
            try:
                name = self.name if len(groups) == 1 else f"{self.name} part {i}"
                parts.append(GraphPart(group, found.values, found.operators, device, name))
            except NodeRefused as error:
                self.refused[error.node] = list(error.rejections)
                parts = []
                break
            except GraphdnnError as error:
                self.refused |= {node: list(error.rejections) for node in group.nodes}
                parts = []
                break
        return parts if parts or not groups else None

    @property
    def graphs(self) -> list[GraphPart]:
        """The parts that are graphs."""
        return [part for part in self.parts if isinstance(part, GraphPart)]

    @property
    def plans(self) -> list[GraphPart]:
        """The parts that graphdnn runs."""
        return [part for part in self.parts if isinstance(part, GraphPart) and part.plan is not None]

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str], stream: Any = None) -> list[Any]:
        """The outputs as host arrays.

        Args:
            feeds: A host array for each input of the model.
            outputs: Names of outputs, in the order of the result.
            stream: A stream of the device.
        """
        host: dict[str, Any] = dict(feeds)
        device: dict[str, tuple[GraphPart, Any]] = {}

        def on_host(name: str) -> Any:
            if name not in host:
                constant = self.found.values[name].constant
                if constant is not None:
                    host[name] = constant.copy()  # a caller may write into what it gets
                else:
                    part, array = device[name]
                    host[name] = part.loaded(name, array)
            return host[name]

        for part in self.parts:
            if isinstance(part, ReferenceNodes):
                host.update(part.run({name: on_host(name) for name in part.inputs}))
                continue
            host.update({name: part.in_onnx(name, array) for name, array in part.known.items()})
            inputs = {n: device[n][1] if n in device else part.stored(n, on_host(n)) for n in part.inputs}
            device.update({name: (part, array) for name, array in part.run(inputs, stream).items()})
        return [on_host(name) for name in outputs]

    def explain(self) -> str:
        """The parts, what was folded and expanded, and the nodes that the reference evaluator runs."""
        found = self.found
        lines = [f"{self.name}: {plural(len(self.nodes), 'node')} in {plural(len(self.parts), 'part')}"]
        if found.folded:
            lines.append(f"  folded into constants: {plural(found.folded, 'node')}")
        lines += [f"  replaced by its body: {name}, {plural(n, 'time')}" for name, n in found.expanded.items()]
        lines += [f"  merged: {line}" for line in self.merged]
        for i, part in enumerate(self.parts):
            if isinstance(part, ReferenceNodes):
                lines.append(f"part {i}: {plural(len(part.nodes), 'node')} by ONNX's reference evaluator")
                for node in part.nodes:
                    lines.append(f"  {node.where}")
                    lines += [f"    {line}" for r in self.refused.get(node, []) for line in str(r).splitlines()]
            else:
                nodes = plural(len(part.group.nodes), "node")
                kernels = 0 if part.plan is None else len(part.plan.compiled)
                lines.append(f"part {i}: {nodes} as a graph, {plural(kernels, 'kernel')}")
                lines += [] if part.plan is None else [f"  {line}" for line in str(part.plan).splitlines()]
        return "\n".join(lines)
