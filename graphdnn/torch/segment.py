"""Segment: a part of a module's graph as one ``Graph``, and the call that executes it on tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from graphdnn.builder import Graph
from graphdnn.builder.tensor import Tensor
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import PointwiseMode
from graphdnn.errors import BadParam, GraphdnnError, NotSupported, Rejection
from graphdnn.torch.lowering import Lowering
from graphdnn.torch.lowerings import LOWERINGS
from graphdnn.torch.lowerings.shape import VIEWS
from graphdnn.torch.rules import EMPTY, LAYOUT, OPERATOR, UNUSED_RESULT

_ALIGNMENT = 16  # bytes, as tensors of a graph promise


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a segment: an array that the plan writes, or an input, and the view of it."""

    root: int  # index among the written arrays; for an input, ``-1 - index``
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None  # size, strides and offset from the root; None for the root


@dataclass(frozen=True, slots=True)
class Described:
    """A segment as a graph.

    ``inputs``: for each tensor that the graph reads, the index of the argument and its uid.
    ``written``: the fake tensors of the arrays that the plan writes.
    """

    graph: Graph
    inputs: tuple[tuple[int, int], ...]
    written: tuple[Any, ...]
    written_uids: tuple[int, ...]
    outputs: tuple[Output | None, ...]
    is_single: bool  # the part returns one tensor, not a tuple


class Description:
    """Lowers the nodes of a segment into a graph, in order.

    Args:
        module: The segment. Its nodes have fake tensors with concrete extents in ``meta["val"]``.
        device: The device of the graph.
    """

    def __init__(self, module: GraphModule, device: DeviceSpec | str | None) -> None:
        self._module = module
        self.graph = Graph("torch", device=device)
        self._values: dict[Node, Any] = {}
        self._inputs: list[tuple[int, Tensor]] = []

    def describe(self) -> Described:
        """The graph of the segment.

        Raises:
            GraphdnnError: An operator is not served. The reasons name its node.
        """
        index = 0
        result: Node | None = None
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._input(node, index)
                index += 1
            elif node.op == "output":
                result = node
            else:
                self._values[node] = self._lowered(node)
        assert result is not None
        return self._finished(result)

    def _input(self, node: Node, index: int) -> Any:
        fake = node.meta["val"]
        if not isinstance(fake, torch.Tensor):
            return fake  # a number, which is concrete
        tensor = input_tensor(self.graph, fake, node.name)
        self._inputs.append((index, tensor))
        return tensor

    def _lowered(self, node: Node) -> Any:
        if node.target is operator.getitem:
            source, which = node.args
            found = self._values[source][which]  # type: ignore[index]
            if found is None:
                raise NotSupported(refused_result(node))
            return found
        return lower(self.graph, node, self._values)

    def _finished(self, result: Node) -> Described:
        nodes = _flat(result.args[0])
        arguments = [n for n in self._module.graph.nodes if n.op == "placeholder"]
        known = {id(tensor) for _, tensor in self._inputs}
        written: dict[Node, Tensor] = {}
        outputs: list[Output | None] = []
        for node in nodes:
            if node is None:
                outputs.append(None)
                continue
            root = view_root(node)
            view = None if root is node else _geometry(node.meta["val"], root.meta["val"])
            if root.op == "placeholder":
                outputs.append(Output(-1 - arguments.index(root), view))
                continue
            if root not in written:
                tensor = self._own(self._values[root], root, known)
                known.add(id(tensor))
                written[root] = tensor
            outputs.append(Output(list(written).index(root), view))
        self.graph.build_operation_graph()
        return Described(
            self.graph,
            tuple((i, t.get_uid()) for i, t in self._inputs if t.readers),
            tuple(root.meta["val"] for root in written),
            tuple(t.get_uid() for t in written.values()),
            tuple(outputs),
            isinstance(result.args[0], Node),
        )

    def _own(self, tensor: Tensor, node: Node, known: set[int]) -> Tensor:
        """The tensor with the layout of PyTorch's. An input, and what is an output already, is copied."""
        fake = node.meta["val"]
        shape = list(fake.shape) or [1]
        if id(tensor) in known or tensor.get_dim() != shape:
            kind = tensor.get_data_type()
            tensor = self.graph.pointwise(PointwiseMode.IDENTITY, x=tensor).set_dim(shape)
            if kind is not None:
                tensor.set_data_type(kind)
        return tensor.set_stride(strides_of(fake)).set_name(node.name).set_output(True)


def input_tensor(graph: Graph, fake: Any, name: str) -> Tensor:
    """The description of an argument.

    Raises:
        NotSupported: The tensor has no strides, no element, or a type that the library lacks.
    """
    where = f"tensor {name}"
    if fake.layout is not torch.strided or fake.is_quantized:
        raise NotSupported(LAYOUT.reject(where, "layout", str(fake.layout)))
    if fake.numel() == 0:
        raise NotSupported(EMPTY.reject(where, "shape", tuple(fake.shape)))
    kind = Lowering.type_of(fake.dtype, where)
    return graph.tensor(list(fake.shape) or [1], strides_of(fake), kind).set_name(name)


def is_dense_enough(fake: Any) -> bool:
    """Whether each element has an address of its own. An expanded tensor is copied before a call."""
    return all(size == 1 or stride > 0 for size, stride in zip(fake.shape, fake.stride(), strict=True))


def strides_of(fake: Any) -> list[int]:
    """The strides of a tensor as its array will have them, at least 1."""
    found = fake.stride() if is_dense_enough(fake) else fake.contiguous().stride()
    return [max(1, int(stride)) for stride in found] or [1]


def lower(graph: Graph, node: Node, values: dict[Node, Any]) -> Any:
    """Lower one operator.

    Raises:
        NotSupported: There is no lowering, or it refuses an argument.
        BadParam: The graph refuses the operation.
    """
    function = LOWERINGS.get(node.target)
    if function is None:
        raise NotSupported(OPERATOR.reject(f"{node.target} ({node.name})", "operator", str(node.target)))
    args = torch.fx.node.map_arg(node.args, values.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
    return function(Lowering(graph, node), *args, **kwargs)


def refusals(node: Node, device: DeviceSpec | str | None) -> tuple[Rejection, ...]:
    """Why an operator is not served; empty if it is. The operator is lowered in a graph of its own.

    Args:
        node: The call of the operator.
        device: The device of the graph.

    Returns:
        The reasons.
    """
    graph = Graph("operator", device=device)
    try:
        values = {source: _alone(graph, source) for source in node.all_input_nodes}
        found = lower(graph, node, values)
        for i, tensor in enumerate(_flat(found)):
            if isinstance(found, list) and not _is_read(node, i):
                continue
            if tensor is None:
                raise NotSupported(refused_result(node, i))
            copy = graph.pointwise(PointwiseMode.IDENTITY, x=tensor)
            kind = tensor.get_data_type()
            (copy if kind is None else copy.set_data_type(kind)).set_output(True)
        graph.build_operation_graph()
    except GraphdnnError as error:
        return tuple(error.rejections)
    return ()


def _alone(graph: Graph, source: Node) -> Any:
    fake = source.meta["val"]
    if isinstance(fake, torch.Tensor):
        return input_tensor(graph, fake, source.name)
    if isinstance(fake, (tuple, list)):
        return [input_tensor(graph, f, source.name) if isinstance(f, torch.Tensor) else f for f in fake]
    return fake


def _is_read(node: Node, index: int) -> bool:
    return any(user.target is operator.getitem and user.args[1] == index for user in node.users)


def refused_result(node: Node, index: int | None = None) -> Rejection:
    """The reason for a result that the lowering does not compute."""
    which = node.args[1] if index is None else index
    reason = "the library computes the results that inference reads"
    return UNUSED_RESULT.reject(f"{node.target} ({node.name})", "result", which, served="computed by it", reason=reason)


def view_root(node: Node) -> Node:
    """The node whose memory a chain of views shows."""
    while node.op == "call_function":
        if node.target in VIEWS:
            node = node.args[0]  # type: ignore[assignment]
        elif node.target is operator.getitem and node.args[0].target in VIEWS:  # type: ignore[union-attr]
            node = node.args[0].args[0]  # type: ignore[union-attr,assignment]
        else:
            break
    return node


def _geometry(fake: Any, root: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(fake.shape), tuple(fake.stride()), int(fake.storage_offset() - root.storage_offset())


def _flat(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


class Segment(torch.nn.Module):
    """A part of a module that the library executes.

    Args:
        module: The part. It is what PyTorch executes if a call cannot be served.
        described: The part as a graph with a plan.
    """

    def __init__(self, module: GraphModule, described: Described) -> None:
        super().__init__()
        self.fallback = module
        self.described = described
        self.graph = described.graph
        self._uids = (*(uid for _, uid in described.inputs), *described.written_uids)
        self._indices = tuple(i for i, _ in described.inputs)
        self._new = tuple(
            (tuple(f.shape), tuple(strides_of(f)) if f.dim() else (), f.dtype, f.device) for f in described.written
        )
        self._copied = tuple(
            i for i, n in zip(self._indices, _placeholders(module, self._indices), strict=True)
            if not is_dense_enough(n.meta["val"]) or not n.meta["val"].dim()
        )  # fmt: skip

    def forward(self, *args: Any) -> Any:
        """Execute the plan on tensors, in PyTorch's current stream on a GPU.

        Args:
            args: The arguments of the part.

        Returns:
            The results, in memory of their own or as views of arguments.
        """
        given = [args[i] for i in self._indices]
        if self._copied:
            given = [_dense(t) if i in self._copied else t for i, t in zip(self._indices, given, strict=True)]
        made = [torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype, device in self._new]
        bound = [t if t.dim() else t.view(1) for t in made]
        bindings = dict(zip(self._uids, (*given, *bound), strict=True))
        try:
            self.graph.execute(bindings)
        except BadParam:
            self.graph.execute(dict(zip(self._uids, (*map(_aligned, given), *bound), strict=True)))
        results = [None if o is None else _shown(o, made, args) for o in self.described.outputs]
        return results[0] if self.described.is_single else tuple(results)


def _placeholders(module: GraphModule, indices: Sequence[int]) -> list[Node]:
    nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
    return [nodes[i] for i in indices]


def _dense(tensor: Any) -> Any:
    return tensor.contiguous().view(tensor.shape or 1)


def _aligned(tensor: Any) -> Any:
    """The tensor itself, or a copy in memory with the alignment that the graph promises."""
    if tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _shown(output: Output, made: Sequence[Any], args: Sequence[Any]) -> Any:
    root = made[output.root] if output.root >= 0 else args[-1 - output.root]
    if output.view is None:
        return root
    size, stride, offset = output.view
    return root.as_strided(size, stride, root.storage_offset() + offset)
