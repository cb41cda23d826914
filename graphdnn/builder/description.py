"""Description: tensors and operations of a graph in the order of the calls, and the way to a checked operation graph.

Operations are added by the functions of the ``*_methods`` modules.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Number
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from graphdnn.builder.members import with_members
from graphdnn.builder.shape_inference import (
    MOVEMENT,
    OPEN_EXTENTS,
    Defaults,
    Node,
    complete,
    compute_type,
    infer_extents,
    placed,
)
from graphdnn.builder.tensor import Freeze, Tensor, element_type
from graphdnn.dtypes import FLOATS
from graphdnn.enums import (
    DataType,
    Status,
    TensorReordering,
    shown,
)
from graphdnn.errors import BadParam, GraphdnnError, Rejection, error_for
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    Operation,
    ports,
    without_unread,
)
from graphdnn.rules import Rule
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec, channels_last_strides, packed_strides

NOT_A_TENSOR = Rule(
    id="builder.operand.type",
    expected="a tensor of this graph",
    reason="an operation connects tensors of the graph; arrays are bound to them when it is executed",
    fix="describe the operand with {how}",
)
FOREIGN = Rule(
    id="builder.tensor.foreign",
    expected="a tensor of this graph",
    reason="uids are local to a graph",
    fix="make the operand with this graph's tensor() or tensor_like()",
)
UID_TWICE = Rule(
    id="builder.uid.duplicate",
    expected="a uid of its own",
    reason="uid {uid} was given to two tensors",
    fix="leave uids to the graph, or number the tensors differently",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
LAYOUT = Rule(
    id="builder.tensor_like",
    expected="a tensor of a graph, or an array (__array_interface__ or __dlpack__)",
    reason="extents, strides and type are taken from the object",
    fix="use tensor(dim, ...) instead",
)
UNKNOWN_KEY = Rule(
    id="builder.binding.unknown",
    expected="a tensor of this graph, its uid or its name{known}",
    reason="the variant pack is addressed by tensor, uid or name",
    fix="pass the tensor that the graph returned",
)

_SHAPE_STATUSES = (Status.BAD_PARAM_SHAPE_MISMATCH, Status.NOT_SUPPORTED_SHAPE)
_LAYOUT_STATUSES = (Status.NOT_SUPPORTED_DATA_TYPE, Status.NOT_SUPPORTED_LAYOUT)  # open until the graph is built
_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
S = TypeVar("S", bound=Spec)


class Description:
    """The tensors and the operations of a graph, until and after they are frozen."""

    def __init__(
        self,
        name: str,
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
    ) -> None:
        self.name = name
        self.io_type = element_type(io_data_type, self.where)
        self._intermediate = element_type(intermediate_data_type, self.where)
        self._compute = element_type(compute_data_type, self.where)
        self._freeze = Freeze()
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self._graph: OperationGraph | None = None
        self._uids: dict[Any, int] = {}

    @property
    def where(self) -> str:
        """The graph in error messages."""
        return f"Graph '{self.name}'"

    # Tensors.

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int] | None = None,
        data_type: Any = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        ragged_offset: None = None,
        reordering_type: TensorReordering = TensorReordering.NONE,
        name: str = "",
        uid: int | None = None,
    ) -> Tensor:
        """Describe an operand that comes from outside the graph.

        Args:
            dim: The extents in logical order, for example N, C, H, W. There are 1 to 8.
            stride: The strides in elements, one for each extent. None means row-major.
            data_type: The element type. None takes the graph's ``io_data_type``.
            is_virtual: True for a tensor without memory.
            is_pass_by_value: True for one number that is read on the host.
            ragged_offset: Only None. No operation reads rows of variable length.
            reordering_type: Only ``TensorReordering.NONE``.
            name: A label; ``execute`` accepts it as a key.
            uid: The number of the tensor in files and in plans. None and -1 let the graph choose.

        Returns:
            The tensor.

        Raises:
            BadParam: An extent, a stride, a type or the uid has the wrong type.
            NotSupported: ``ragged_offset`` is given.
            NotInitialized: The graph is built and accepts no more tensors.
        """
        with self.atomic():
            tensor = self.new_tensor(name)
            tensor.set_dim(dim).set_data_type(data_type).set_is_virtual(is_virtual).set_ragged_offset(ragged_offset)
            tensor.set_is_pass_by_value(is_pass_by_value).set_reordering_type(reordering_type)
            if stride is not None:
                tensor.set_stride(stride)
            if uid is not None and uid != -1:  # the frontend's -1 leaves it to the graph
                tensor.set_uid(uid)
            return tensor

    def tensor_like(self, like: Any, name: str = "") -> Tensor:
        """Describe an operand with the extents, strides and element type of a tensor, a NumPy array or a DLPack object.

        Args:
            like: The tensor or the array.
            name: A label; ``execute`` accepts it as a key.

        Returns:
            The tensor.

        Raises:
            BadParam: ``like`` is neither a tensor nor an array, or its element type is unknown.
            NotInitialized: The graph is built and accepts no more tensors.
        """
        with self.atomic():
            tensor = self.new_tensor(name)
            if isinstance(like, Tensor):
                tensor.dim, tensor.stride, tensor.data_type = like.dim, like.stride, like.data_type
                tensor.is_by_value, tensor.vector, tensor.constant = like.is_by_value, like.vector, like.constant
                return tensor
            return self._like_array(tensor, like)

    def _like_array(self, tensor: Tensor, like: Any) -> Tensor:
        try:
            has_interface = isinstance(like, np.ndarray) or not hasattr(like, "__dlpack__")
            array = np.asarray(like) if has_interface and hasattr(like, "__array_interface__") else np.from_dlpack(like)
        except Exception as error:  # protocols are others' code: whatever it raises is the reason
            raise BadParam(LAYOUT.reject(tensor.where, "like", f"{type(like).__name__}: {error}")) from None
        tensor.set_data_type(array.dtype).set_dim(array.shape)
        strides = [s // array.itemsize for s in array.strides]
        # NumPy gives a new axis of extent 1 the stride 0; any other does as well there.
        outermost = max((d * s for d, s in zip(array.shape, strides, strict=True)), default=1)
        return tensor.set_stride([s or outermost if d == 1 else s for d, s in zip(array.shape, strides, strict=True)])

    def tensor_scalar(self, value: float, data_type: Any = "float32", name: str = "") -> Tensor:
        """Describe a constant. Its rank follows from the operation that reads it.

        Args:
            value: The number.
            data_type: Its element type.
            name: A label for reports and error messages.

        Returns:
            The tensor, which needs no array when the graph is executed.

        Raises:
            BadParam: The element type is unknown, or it cannot hold the number.
            NotInitialized: The graph is built and accepts no more tensors.
        """
        with self.atomic():
            tensor = self.new_tensor(name).set_dim([1]).set_data_type(data_type).set_is_pass_by_value(True)
            kind = tensor.data_type or (self.io_type or DataType.FLOAT)
            described = self.settings(
                TensorSpec, uid=0, data_type=kind, dims=(1,), strides=(1,), is_by_value=True, constant_value=value
            )
            tensor.constant = described.constant_value
            return tensor

    def new_tensor(self, name: str = "") -> Tensor:
        self._freeze.check(self.where, "tensor")
        tensor = Tensor(self._freeze, name, _origin())
        self.tensors.append(tensor)
        return tensor

    @contextmanager
    def atomic(self, operands: Sequence[Tensor] = ()) -> Iterator[None]:
        """A call is done as a whole or leaves no trace: no tensors of its own, no operand aligned to another rank."""
        tensors, nodes = len(self.tensors), len(self.nodes)
        before = [(t, t.dim, t.stride, t.readers) for t in operands]
        try:
            yield
        except Exception:
            del self.tensors[tensors:], self.nodes[nodes:]
            for tensor, dim, stride, readers in before:
                tensor.dim, tensor.stride, tensor.readers = dim, stride, readers
            raise

    # Operations.

    def require_own(self, operand: Any) -> None:
        """Raise for what is not a tensor of this graph."""
        if not isinstance(operand, Tensor):
            raise BadParam(NOT_A_TENSOR.reject(self.here(), "operand", type(operand).__name__, how=_how(operand)))
        if operand._freeze is not self._freeze:
            raise BadParam(FOREIGN.reject(self.here(), "operand", repr(operand)))

    def uid_of(self, key: Any) -> int | None:
        """The uid that a tensor, a uid or a name stands for, in a graph that is built; None for anything else."""
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            return int(key)
        return self._uids.get(key) if isinstance(key, (str, Tensor)) else None

    def here(self) -> str:
        return placed(self.where, _origin())

    def settings(self, cls: type[S], **fields: Any) -> S:
        """The settings of an operation; errors in them name the line of the call."""
        try:
            return cls(**with_members(cls, fields))
        except GraphdnnError as error:
            origin = _origin()
            raise error_for(
                (replace(r, where=placed(r.where, origin)) for r in error.rejections), error.subject
            ) from None

    def compute_type(self, operands: Any, given: Any, *, exact: bool = True) -> DataType:
        """``exact``: False for operations that have no integer arithmetic: those of integers run in FLOAT, unless the
        caller asked for integers, which the operation refuses.
        """
        operands = list(operands)
        for operand in operands:
            self.require_own(operand)
        types = [t.data_type for t in operands]
        for i, operand in enumerate(operands):
            if types[i] is None:  # FLOAT is 0: `or` would take it for an open type
                types[i] = self.natural_type(operand) if operand.is_virtual else self.io_type
        found = compute_type(types, element_type(given, self.where), self._compute)
        if not exact and given is None and self._compute is None and found in (DataType.INT32, DataType.INT64):
            return DataType.FLOAT
        return found

    def add(
        self,
        cls: type[Operation],
        fields: dict[str, Any],
        outputs: tuple[str, ...],
        name: str,
        compute: DataType | None = None,
    ) -> list[Tensor]:
        self._freeze.check(self.where, cls.tag)
        operands = _operands(cls, fields)
        for operand in operands:
            self.require_own(operand)
        with self.atomic(operands):
            made = {port: self.new_tensor(f"{name}::{port}" if name else "").set_is_virtual(True) for port in outputs}
            node = Node(cls, {**fields, **made}, made, name, _origin(), {"compute_type": compute or DataType.FLOAT})
            for operand in operands:
                operand.readers += 1
            infer_extents(node)
            self.nodes.append(node)
            self._check_early(node)
            return list(made.values())

    def _check_early(self, node: Node) -> None:
        """Raise what is wrong with the extents at the call, where the user can see it; types may still change."""
        inputs = node.inputs()
        if any(t.dim is None for t in inputs):
            return
        # Elsewhere open extents can only mean operands that do not fit.
        if node.cls.tag in OPEN_EXTENTS and any(t.dim is None for t in node.outputs.values()):
            return
        tensors = [*inputs, *node.outputs.values()]
        stand_in = {id(t): _stand_in(t, uid, inputs) for uid, t in enumerate(tensors, start=1)}
        try:
            node.cls(**with_specs(node, stand_in), name=node.name, origin=node.origin)
        except GraphdnnError as error:
            wrong = [r for r in error.rejections if r.status in _SHAPE_STATUSES]
            if node.cls in MOVEMENT:  # has no settings that may still change
                wrong = [r for r in error.rejections if r.status not in _LAYOUT_STATUSES]
            if wrong:
                raise error_for(wrong, error.subject) from None

    def natural_type(self, tensor: Tensor) -> DataType:
        """The element type that a tensor gets when none is set: the type of the arithmetic that computes it.

        Args:
            tensor: A tensor of this graph.

        Returns:
            The element type.
        """
        for node in reversed(self.nodes):  # most often the last one
            if tensor in node.outputs.values():
                if node.cls in MOVEMENT:
                    moved = node.inputs()[0]
                    return moved.data_type or self.natural_type(moved)
                found: DataType = node.settings["compute_type"]
                return found
        return self.io_type or DataType.FLOAT

    def validate(self) -> None:
        """Infer every extent, stride and type that is not set.

        Raises:
            BadParam: An extent or a type cannot be inferred, or two tensors have one uid. The error lists all of them.
        """
        found: list[Rejection] = []
        suggested = (t.data_type for t in self.tensors if not t.is_virtual and t.data_type in FLOATS)
        defaults = Defaults(self.io_type, self._intermediate, self.io_type or next(suggested, None))
        for node in self.nodes:
            try:
                complete(node, defaults)
            except BadParam as error:
                found += error.rejections
        taken: dict[int, Tensor] = {}
        for tensor in self.tensors:
            if tensor.uid is not None and taken.setdefault(tensor.uid, tensor) is not tensor:
                found.append(UID_TWICE.reject(tensor.where, "uid", tensor.uid, uid=tensor.uid))
        if found:
            raise BadParam(found)

    def key(self) -> str:
        """A hash that is equal for graphs that compute the same.

        Raises:
            BadParam: The graph is invalid.
        """
        return self.build_operation_graph().key

    def build_operation_graph(self) -> OperationGraph:
        """The checked operation graph. The graph and its tensors are frozen from here on.

        Tensors without a uid are numbered 1, 2, 3 and so on.

        Returns:
            The operation graph; later calls return the same object.

        Raises:
            BadParam: A tensor or an operation is invalid. The error lists every problem.
            NotSupported: An operation is valid and the library does not serve it.
        """
        if self._graph is None:
            self.validate()
            self.number_tensors()
            in_use = {id(t): t.spec() for node in self.nodes for t in (*node.inputs(), *node.outputs.values())}
            operations = [
                node.cls(**with_specs(node, in_use), name=node.name, origin=node.origin) for node in self.nodes
            ]
            self._graph = OperationGraph.of(without_unread(operations), name=self.name)
            self._freeze.frozen = True
            named = Counter(t.name for t in self.tensors)
            for tensor in self.tensors:
                keys = (tensor, tensor.name) if tensor.name and named[tensor.name] == 1 else (tensor,)
                self._uids.update(dict.fromkeys(keys, tensor.get_uid()))
        return self._graph

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor that has a uid.

        Args:
            uid: The number.

        Returns:
            The tensor.

        Raises:
            BadParam: No tensor of the graph has this uid.
        """
        for tensor in self.tensors:
            if tensor.uid == uid:
                return tensor
        known = ", ".join(str(t.uid) for t in self.tensors if t.uid is not None)
        raise BadParam(UNKNOWN_KEY.reject(self.where, "uid", uid, known=f": {known}" if known else ""))

    def number_tensors(self) -> None:
        """Give a uid to each tensor that has none."""
        used = {t.uid for t in self.tensors if t.uid is not None}
        free = (uid for uid in range(1, len(self.tensors) + len(used) + 1) if uid not in used)
        for tensor in self.tensors:
            if tensor.uid is None:
                tensor.uid = next(free)


def _how(operand: Any) -> str:
    """The builder's call for what was passed in place of a tensor."""
    if isinstance(operand, Number):
        return f"tensor_scalar({shown(operand)})"
    return "tensor_like(array)" if is_array(operand) else "tensor([extents])"


def is_array(value: Any) -> bool:
    """Whether an object offers its memory; one whose own code fails at the question does not."""
    try:
        return hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__")
    except Exception:
        return False


def _stand_in(tensor: Tensor, uid: int, inputs: Sequence[Tensor]) -> Any:
    """A description good enough to check extents with."""
    like = tensor.dim or (inputs[0].dim if inputs else None) or (1,)
    dim = tuple(max(1, d) for d in like)  # what is wrong with it, the operation says
    last = channels_last_strides(dim) if len(dim) > 2 else ()
    strides = last if tensor.stride == last else packed_strides(dim)  # suggested edits keep the layout
    return TensorSpec(
        uid=uid, data_type=tensor.data_type or DataType.FLOAT, dims=dim, strides=strides,
        is_by_value=tensor.is_by_value, vector_count=tensor.vector[0], vectorized_dimension=tensor.vector[1],
        name=tensor.name,
    )  # fmt: skip


def _operands(cls: type[Operation], fields: Mapping[str, Any]) -> list[Any]:
    """What was given for ports that are read: a norm's mean is one in inference, and written in training.

    The seed of RNG may be a number, which is none.
    """
    found: list[Any] = []
    for port in (*ports(cls, "input"), *ports(cls, "output")):
        value = fields.get(port)
        if port in fields and not (port == "seed" and isinstance(value, int)):
            found += value if isinstance(value, tuple) else (value,)
    return found


def with_specs(node: Node, specs: Mapping[int, Any]) -> dict[str, Any]:
    """The node's fields with specs, or what stands for them, in place of builder tensors."""

    def spec(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(spec(item) for item in value)
        return specs[id(value)] if isinstance(value, Tensor) else value

    return {field: spec(value) for field, value in node.fields.items()}


def _origin() -> str:
    """``file.py:12`` of the innermost frame outside this package; empty at a prompt and under the command line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.endswith(".py"):
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
