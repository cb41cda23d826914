"""Description: a part of a module's graph as one ``Graph``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node

from graphdnn.builder import Graph
from graphdnn.builder.tensor import Tensor
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import PointwiseMode
from graphdnn.errors import GraphdnnError, NotSupported, Rejection
from graphdnn.tensors import packed_strides
from graphdnn.torch.arguments import Arguments, Geometry, Input, fake_input, strides_of
from graphdnn.torch.folding import Fold
from graphdnn.torch.lowering import Lowering, is_read
from graphdnn.torch.lowerings import ELEMENTWISE, LOWERINGS
from graphdnn.torch.lowerings.shape import VIEWS
from graphdnn.torch.rules import LOWERING, NARROW, OPERATOR, UNUSED_RESULT


@dataclass(frozen=True, slots=True)
class Output:
    """One result of a segment: an array that the plan writes, or an input, and the view of it."""

    root: int  # index among the written arrays; for an input, ``-1 - index``
    view: Geometry | None  # of the root; None for the root itself
    expanded: Any = None  # the fake tensor of the result, if the written array or the number broadcasts to it
    number: Any = None  # the result, or the element of each place, in place of a written array


@dataclass(frozen=True, slots=True)
class Described:
    """A segment as a graph.

    ``inputs``: how each array that the graph reads is made from arguments.
    ``written``: for each array that the plan writes, the fake tensor, the extents and the strides.
    """

    graph: Graph
    inputs: tuple[Input, ...]
    folds: tuple[Fold, ...]
    written: tuple[tuple[Any, tuple[int, ...], tuple[int, ...]], ...]
    written_uids: tuple[int, ...]
    outputs: tuple[Output | None, ...]
    is_single: bool  # the part returns one tensor, not a tuple


class Description:
    """Lowers the nodes of a segment into a graph, in order.

    Args:
        module: The segment. Its nodes have fake tensors with concrete extents in ``meta["val"]``.
        device: The device of the graph.
        static: The indices of arguments that are parameters or buffers.
        is_frozen: Layouts of parameters may be changed once.
    """

    def __init__(
        self, module: GraphModule, device: DeviceSpec | str | None, static: frozenset[int], *, is_frozen: bool
    ) -> None:
        self._module = module
        self.graph = Graph("torch", device=device)
        self._arguments = Arguments(self.graph, static, is_frozen=is_frozen)
        self._values: dict[Node, Any] = {}

    def describe(self) -> Described:
        """The graph of the segment.

        Raises:
            GraphdnnError: An operator is not served. The reasons name its node.
        """
        index = 0
        result: Node | None = None
        needed = _needed(self._module)
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._argument(node, index)
                index += 1
            elif node.op == "output":
                result = node
            elif node in needed:
                self._values[node] = self._lowered(node)
        assert result is not None
        return self._finished(result)

    def _argument(self, node: Node, index: int) -> Any:
        fake = node.meta["val"]
        return self._arguments.add(index, fake, node.name) if isinstance(fake, torch.Tensor) else fake

    def _lowered(self, node: Node) -> Any:
        if node.target is operator.getitem:
            source, which = node.args
            found = self._view(node) if source.target in VIEWS else None
            found = self._values[source][which] if found is None else found
            if found is None:
                raise NotSupported(refused_result(node))
            return found
        found = self._view(node) if node.target in VIEWS else None
        if isinstance(node.meta["val"], (list, tuple)) and view_root(node).op == "placeholder":
            return [None] * len(node.meta["val"])  # views of an argument, which become inputs of their own
        return lower(self.graph, node, self._read, self._arguments) if found is None else found

    def _read(self, node: Node) -> Any:
        """The value of a node for an operator that reads it, with the extents that PyTorch gives it.

        Lowerings leave axes of one element in place, for example in statistics ``[1, C, 1, 1]``.
        """
        value = self._values[node]
        fake = node.meta["val"]
        if isinstance(value, Tensor) and _has_other_axes(value, fake):
            value = self._values[node] = Lowering(self.graph, node, self._arguments).view(value, fake.shape)
        return value

    def _view(self, node: Node) -> Tensor | None:
        """A view of an argument as an input of its own; None for other nodes."""
        root, fake = view_root(node), node.meta["val"]
        if root.op != "placeholder" or not isinstance(fake, torch.Tensor):
            return None
        return self._arguments.view(self._values[root], *_geometry(fake, root.meta["val"]))

    def _finished(self, result: Node) -> Described:
        nodes = _flat(result.args[0])
        arguments = list(self._module.graph.find_nodes(op="placeholder"))
        known = {id(found.tensor) for found in self._arguments.inputs}
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
            value = self._values[root]
            if isinstance(value, NUMBERS):
                fake = root.meta["val"]
                outputs.append(Output(0, view, fake if isinstance(fake, torch.Tensor) else None, value))
                continue
            if root not in written:
                written[root] = tensor = self._own(self._values[root], root, known)
                known.add(id(tensor))
            fake = root.meta["val"]
            if view is None and written[root].get_dim() != list(fake.shape):
                view = _geometry(fake, fake)
            is_narrow = prod(written[root].get_dim()) != fake.numel()
            outputs.append(Output(list(written).index(root), view, fake if is_narrow else None))
        self.graph.build_operation_graph()
        return Described(
            self.graph,
            tuple(found for found in self._arguments.inputs if found.tensor.readers),
            tuple(self._arguments.folds),
            tuple((root.meta["val"], tuple(t.get_dim()), tuple(t.get_stride())) for root, t in written.items()),
            tuple(t.get_uid() for t in written.values()),
            tuple(outputs),
            isinstance(result.args[0], Node),
        )

    def _own(self, tensor: Tensor, node: Node, known: set[int]) -> Tensor:
        """The tensor with the layout of PyTorch's. An input, and what is an output already, is copied."""
        fake = node.meta["val"]
        if id(tensor) in known:
            kind = tensor.get_data_type()
            tensor = self.graph.pointwise(PointwiseMode.IDENTITY, x=tensor)
            if kind is not None:
                tensor.set_data_type(kind)
        if tensor.get_dim() == (list(fake.shape) or [1]):  # else it is narrower, and expanded after the call
            tensor.set_stride(strides_of(fake))
        elif _has_other_axes(tensor, fake):
            if not fake.is_contiguous():
                tensor = self._read(node).set_stride(strides_of(fake))
            else:
                tensor.set_stride(packed_strides(tensor.get_dim()))
        return tensor.set_name(node.name).set_output(True)


def _needed(module: GraphModule) -> set[Node]:
    """The nodes that compute the results. Views of results are not among them: PyTorch shows them."""
    result = next(iter(module.graph.find_nodes(op="output")))
    needed = {view_root(node) for node in _flat(result.args[0]) if node is not None}
    for node in reversed(module.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _has_other_axes(tensor: Tensor, fake: Any) -> bool:
    """Whether a tensor has the elements of a fake tensor under other extents."""
    dim = tensor.get_dim()
    return dim != (list(fake.shape) or [1]) and prod(dim) == fake.numel()


def lower(graph: Graph, node: Node, read: Callable[[Node], Any], arguments: Arguments) -> Any:
    """Lower one operator. ``read`` gives the value of each operand.

    Raises:
        NotSupported: There is no lowering, or it refuses an argument.
        BadParam: The graph refuses the operation.
    """
    number = node.meta["val"]
    if isinstance(number, NUMBERS):  # of extents, which are concrete here
        return number
    function = LOWERINGS.get(node.target)
    if function is None:
        raise NotSupported(OPERATOR.reject(f"{node.target} ({node.name})", "operator", str(node.target)))
    if node.target not in ELEMENTWISE:
        for source in node.all_input_nodes:
            _require_all_elements(source, read(source), node)
    args = torch.fx.node.map_arg(node.args, read)
    kwargs = torch.fx.node.map_arg(node.kwargs, read)
    return function(Lowering(graph, node, arguments), *args, **kwargs)


def _require_all_elements(source: Node, value: Any, reader: Node) -> None:
    """A narrow operand would give a wrong result."""
    fake = source.meta["val"]
    if isinstance(value, Tensor) and value.get_dim() != (list(fake.shape) or [1]):
        raise NotSupported(NARROW.reject(f"{source.target} ({source.name})", "readers", str(reader.target)))


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
        found = lower(graph, node, values.__getitem__, Arguments(graph))
        if isinstance(found, (int, float)):
            return ()  # a constant, which is part of its readers
        for i, tensor in enumerate(_flat(found)):
            if isinstance(found, list) and not is_read(node, i):
                continue
            if tensor is None:
                raise NotSupported(refused_result(node, i))
            copy = graph.pointwise(PointwiseMode.IDENTITY, x=tensor)
            kind = tensor.get_data_type()
            (copy if kind is None else copy.set_data_type(kind)).set_output(True)
        graph.build_operation_graph()
    except GraphdnnError as error:
        return tuple(error.rejections)
    except Exception as error:  # PyTorch has the right answer, whatever is wrong with a lowering
        where, value = f"{node.target} ({node.name})", f"{type(error).__name__}: {error}"
        return (LOWERING.reject(where, "arguments", value.splitlines()[0]),)
    return ()


def _alone(graph: Graph, source: Node) -> Any:
    fake = source.meta["val"]
    if isinstance(fake, torch.Tensor):
        return fake_input(graph, fake, source.name)
    if isinstance(fake, (tuple, list)):
        return [fake_input(graph, f, source.name) if isinstance(f, torch.Tensor) else f for f in fake]
    return fake


def refused_result(node: Node, index: int | None = None) -> Rejection:
    """The reason for a result that the lowering does not compute."""
    which = node.args[1] if index is None else index
    reason = "the library computes the results that inference reads"
    return UNUSED_RESULT.reject(f"{node.target} ({node.name})", "result", which, served="computed by it", reason=reason)


NUMBERS = (bool, int, float)


def view_root(node: Node) -> Node:
    """The node whose memory a chain of views shows, or a view with several results."""
    while node.op == "call_function":
        if node.target in VIEWS:
            node = node.args[0]
        elif node.target is operator.getitem and node.args[0].target in VIEWS:
            node = node.args[0].args[0]
        else:
            break
    return node


def _geometry(fake: Any, root: Any) -> Geometry:
    return tuple(fake.shape), tuple(fake.stride()), int(fake.storage_offset() - root.storage_offset())


def _flat(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]
