"""Arguments of a segment as inputs of its graph: as they are, as views of them, or as values prepared from weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphdnn.builder import Graph
from graphdnn.builder.tensor import Tensor
from graphdnn.dtypes import data_type_of
from graphdnn.enums import DataType
from graphdnn.errors import NotSupported
from graphdnn.torch.folding import Fold
from graphdnn.torch.rules import ELEMENT_TYPE, EMPTY, LAYOUT

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]  # size, strides, offset from the root


@dataclass(frozen=True, slots=True)
class Input:
    """How the array of an input is made from arguments.

    Args:
        tensor: The input of the graph.
        arguments: The indices of the arguments.
        make: The function of the arguments; None for one argument as it is.
        is_copy: The array is computed from the arguments, so it must follow their values.
    """

    tensor: Tensor
    arguments: tuple[int, ...]
    make: Callable[..., Any] | None
    is_copy: bool = False


class Arguments:
    """The inputs of a graph, while it is being described.

    Args:
        graph: The graph.
        static: The indices of parameters and buffers.
        is_frozen: Arrays may be prepared from parameters once.
    """

    def __init__(self, graph: Graph, static: frozenset[int] = frozenset(), *, is_frozen: bool = False) -> None:
        self._graph, self.static, self._is_frozen = graph, static, is_frozen
        self.folds: list[Fold] = []
        self.inputs: list[Input] = []
        self._of: dict[int, Input] = {}  # by the identity of the tensor
        self._fakes: dict[int, Any] = {}  # of inputs that are arguments as they are
        self._known: dict[Any, Tensor] = {}

    def add(self, index: int, fake: Any, name: str) -> Tensor:
        """The input for an argument.

        Raises:
            NotSupported: The tensor has no strides, no element, or a type that the library lacks.
        """
        make, is_copy = None, False
        if not is_distinct(fake):
            make, is_copy = _contiguous, True
        elif not fake.dim():
            make = _as_vector
        tensor = self._enter(fake_input(self._graph, fake, name), (index,), make, is_copy=is_copy)
        if make is None:
            self._fakes[id(tensor)] = fake
        return tensor

    def _enter(
        self, tensor: Tensor, arguments: tuple[int, ...], make: Callable[..., Any] | None, *, is_copy: bool
    ) -> Tensor:
        found = Input(tensor, arguments, make, is_copy)
        self.inputs.append(found)
        self._of[id(tensor)] = found
        return tensor

    def view(self, tensor: Tensor, size: Sequence[int], strides: Sequence[int], offset: int) -> Tensor | None:
        """Another input with the memory of an argument; None if ``tensor`` is not an argument as it is.

        Args:
            tensor: The input.
            size: The extents of the view.
            strides: Its strides in elements.
            offset: Its first element, from the first element of the argument.
        """
        if id(tensor) not in self._fakes or not all(size) or not is_apart(size, strides):
            return None
        index = self._of[id(tensor)].arguments[0]
        geometry = tuple(size), tuple(strides), offset
        key = index, geometry
        if key not in self._known:
            kind = tensor.get_data_type()
            dim, steps = list(size) or [1], [max(1, s) for s in strides] or [1]
            made = self._graph.tensor(dim, steps, kind).set_name(f"{tensor.get_name()}_view")
            self._known[key] = self._enter(made, (index,), _viewing(geometry), is_copy=False)
        return self._known[key]

    def reshaped(self, tensor: Tensor, dim: Sequence[int]) -> Tensor | None:
        """An argument under other extents, as a view; None where a view cannot show it."""
        fake = self._fakes.get(id(tensor))
        if fake is None:
            return None
        try:
            shown = fake.view(list(dim))
        except (RuntimeError, ValueError):  # its strides do not allow it
            return None
        return self.view(tensor, shown.shape, shown.stride(), 0)

    def prepared(self, function: Callable[..., Any], tensors: Sequence[Tensor], like: Any) -> Tensor | None:
        """An input whose array a function of parameters computes, once for each value of the parameters.

        Args:
            function: A function of the arguments.
            tensors: The inputs, all of them arguments as they are.
            like: A fake tensor with the extents, the strides and the type of the result.

        Returns:
            The input; None if one of the tensors is no parameter, or parameters are not frozen.
        """
        arguments = self._parameters(tensors)
        if arguments is None or not self._is_frozen:
            return None
        key = arguments, function
        if key not in self._known:
            made = fake_input(self._graph, like, f"{tensors[0].get_name()}_prepared")
            self._known[key] = self._enter(made, arguments, function, is_copy=True)
        return self._known[key]

    def _parameters(self, tensors: Sequence[Tensor]) -> tuple[int, ...] | None:
        """The indices of arguments that are parameters; None if one of the tensors is something else."""
        if any(id(t) not in self._fakes for t in tensors):
            return None
        arguments = tuple(self._of[id(t)].arguments[0] for t in tensors)
        return arguments if self.static.issuperset(arguments) else None

    def folded(self, tensors: Sequence[Tensor], eps: float, dim: Sequence[int]) -> tuple[Tensor, Tensor] | None:
        """The inputs for factor and offset of a batch normalization; None if one of the tensors is no parameter.

        Args:
            tensors: Weight, bias, mean and variance.
            eps: The number that is added to the variance.
            dim: The extents of the factor, ``[1, C, 1, ...]``.
        """
        arguments = self._parameters(tensors)
        if arguments is None:
            return None
        wide = [torch.promote_types(self._fakes[id(t)].dtype, torch.float32) for t in (tensors[3], tensors[1])]
        factor, offset = (
            self._graph.tensor(list(dim), data_type=kind).set_name(f"{tensors[0].get_name()}_{name}")
            for kind, name in zip(wide, ("factor", "offset"), strict=True)
        )
        weight, bias, mean, variance = arguments
        self.folds.append(Fold((weight, bias, mean, variance), eps, factor, offset))
        return factor, offset


def fake_input(graph: Graph, fake: Any, name: str) -> Tensor:
    """The description of a fake tensor as an input.

    Raises:
        NotSupported: The tensor has no strides, no element, or a type that the library lacks.
    """
    where = f"tensor {name}"
    if fake.layout is not torch.strided or fake.is_quantized:
        raise NotSupported(LAYOUT.reject(where, "layout", str(fake.layout)))
    if fake.numel() == 0:
        raise NotSupported(EMPTY.reject(where, "shape", tuple(fake.shape)))
    return graph.tensor(list(fake.shape) or [1], strides_of(fake), library_type(fake.dtype, where)).set_name(name)


def library_type(dtype: torch.dtype, where: str) -> DataType:
    """The library's element type.

    Raises:
        NotSupported: The library has none. The error is about ``where``.
    """
    try:
        return data_type_of(dtype)
    except ValueError:
        raise NotSupported(ELEMENT_TYPE.reject(where, "dtype", str(dtype))) from None


def is_apart(size: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each element has an address of its own, as far as strides of 0 are concerned."""
    return all(n == 1 or step > 0 for n, step in zip(size, strides, strict=True))


def is_distinct(fake: Any) -> bool:
    """Whether no axis of a tensor is expanded. An expanded tensor is copied before a call."""
    return is_apart(fake.shape, fake.stride())


def strides_of(fake: Any) -> list[int]:
    """The strides of a tensor as its array will have them, at least 1."""
    found = fake.stride() if is_distinct(fake) else fake.contiguous().stride()
    return [max(1, int(stride)) for stride in found] or [1]


def _contiguous(tensor: Any) -> Any:
    return tensor.contiguous().view(tensor.shape or 1)


def _as_vector(tensor: Any) -> Any:
    return tensor.view(1)


def _viewing(geometry: Geometry) -> Callable[[Any], Any]:
    size, strides, offset = geometry

    def view(tensor: Any) -> Any:
        return tensor.as_strided(size or (1,), strides or (1,), tensor.storage_offset() + offset)

    return view
