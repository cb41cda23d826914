"""Model: an ONNX model that runs on graphdnn's plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from graphdnn.bounded_cache import BoundedCache
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.errors import BadParam, MalformedFile, NotSupported
from graphdnn.onnx.element_types import ELEMENT_TYPES
from graphdnn.onnx.model_file import read_model
from graphdnn.onnx.package import onnx_package
from graphdnn.onnx.program import Program
from graphdnn.onnx.rules import FALLBACK, INPUT_KIND, INPUT_NAME, INPUT_SHAPE, INPUT_TYPE, NOT_A_MODEL, OUTPUT_NAME
from graphdnn.onnx.specialization import Specialization, specialized
from graphdnn.onnx.value import Value

_MOST_PROGRAMS = 32
_MOST_ELEMENTS = 4096  # of an input whose value decides shapes


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """The declaration of an input or an output.

    Attributes:
        name: The name.
        shape: One extent, name of an extent, or None for each axis; None if the rank is open.
        type: The element type in ONNX's words, such as ``FLOAT``; empty for what is no tensor.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    type: str

    @property
    def is_static(self) -> bool:
        """Whether every extent is a number."""
        return self.shape is not None and all(isinstance(extent, int) for extent in self.shape)


def load(source: Any, *, device: DeviceSpec | str | None = "cpu", fallback: str | None = None) -> Model:
    """Read an ONNX model. If its shapes are static, its plans are built.

    Args:
        source: The path of a file, the bytes of one, or an ``onnx.ModelProto``.
        device: A device profile, its name, or None for the default device.
        fallback: None refuses nodes that no engine serves, ``"reference"`` runs them by ONNX's reference evaluator.

    Returns:
        The model.

    Raises:
        MalformedFile: The model is invalid.
        NotSupported: Nodes are not served. The error has the reasons of all of them.
        BadParam: An argument is invalid.
    """
    return Model(source, device=device, fallback=fallback)


class Model:
    """An ONNX model. ``load`` makes it.

    A model is specialized for the shapes of its inputs when it first runs with them; later calls with the same shapes
    reuse the plans. An input that decides shapes, for example the shape operand of a Reshape, is part of that key by
    its value.

    Args:
        source: The path of a file, the bytes of one, or an ``onnx.ModelProto``.
        device: A device profile, its name, or None for the default device.
        fallback: None or ``"reference"``.
        bind: False ranks engines only, for a device that is not present.

    Raises:
        MalformedFile: The model is invalid.
        NotSupported: Nodes are not served.
        BadParam: An argument is invalid.
    """

    def __init__(
        self,
        source: Any,
        *,
        device: DeviceSpec | str | None = "cpu",
        fallback: str | None = None,
        bind: bool = True,
    ) -> None:
        if fallback not in (None, "reference"):
            raise BadParam(FALLBACK.reject("load", "fallback", fallback))
        self.device, self.fallback, self._binds = device_spec(device), fallback, bind
        self.proto, self.name = read_model(source)
        self.opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in self.proto.opset_import}
        graph = self.proto.graph
        initialized = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        try:
            declared = [_info(i) for i in graph.input]
            self.outputs = [_info(o) for o in graph.output]
        except ValueError as error:  # a number that names no element type
            raise MalformedFile(NOT_A_MODEL.reject("load", "elem_type", self.name, detail=str(error))) from None
        self.inputs = [i for i in declared if i.name not in initialized]
        self.overridable = [i for i in declared if i.name in initialized]
        self._by_value: set[str] = set()
        self._programs: BoundedCache[Any, Program] = BoundedCache(_MOST_PROGRAMS)
        self._building = Lock()
        if all(i.is_static and i.type for i in self.inputs):
            self._prepare()

    def __repr__(self) -> str:
        return f"<Model {self.name!r}: {len(self.proto.graph.node)} nodes on {self.device.name}>"

    def _prepare(self) -> None:
        """Build the plans of static shapes, unless the value of an input decides shapes."""
        values = {i.name: Value(_number(i.type), i.shape) for i in self.inputs}  # type: ignore[arg-type]
        found = specialized(self.proto.graph, self.opsets, values)
        small = {n for n in found.wanted if prod(values[n].dims) <= _MOST_ELEMENTS}
        self._by_value |= small
        if not small:
            key = tuple((n, v.shape, None) for n, v in values.items())
            self._programs.remember(key, self._program(found))

    def _program(self, found: Specialization) -> Program:
        return Program(found, self.device, self.name, self.fallback, bind=self._binds)

    def program(self, feeds: Mapping[str, Any]) -> Program:
        """The plans for the shapes of these arrays.

        Args:
            feeds: A host array for each input.

        Returns:
            The program, which later calls with the same shapes return again.

        Raises:
            BadParam: An input is missing or unknown, or it has the wrong type or shape.
            NotSupported: Nodes are not served.
        """
        arrays = self._checked(feeds)
        while True:
            key = tuple((n, shape_of(a), _key_of(a) if n in self._by_value else None) for n, a in arrays.items())
            program = self._programs.get(key)
            if program is not None:
                return program
            with self._building:
                found = specialized(self.proto.graph, self.opsets, self._values(arrays))
                small = {n for n in found.wanted if arrays[n].size <= _MOST_ELEMENTS}
                if small <= self._by_value:
                    return self._programs.remember(key, self._program(found))
                self._by_value |= small

    def _values(self, arrays: Mapping[str, Any]) -> dict[str, Value]:
        kinds = {i.name: i.type for i in (*self.inputs, *self.overridable)}
        return {
            n: Value(_number(kinds[n]), a.shape, a if n in self._by_value else None) if kinds[n] else Value(0, None)
            for n, a in arrays.items()
        }

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the model.

        Args:
            feeds: A NumPy array for each input, by name.
            outputs: The names of the outputs to return; None for all.

        Returns:
            ``{name: array}`` in host memory.

        Raises:
            BadParam: An input or a name is wrong.
            NotSupported: Nodes are not served, or the device is not present.
            ExecutionFailed: A kernel or the reference evaluator failed.
        """
        known = [o.name for o in self.outputs]
        names = known if outputs is None else list(outputs)
        for name in names:
            if name not in known:
                raise BadParam(OUTPUT_NAME.reject(self.name, "output", name, expected=f"one of {', '.join(known)}"))
        program = self.program(feeds)
        return dict(zip(names, program.run(self._checked(feeds), names), strict=True))

    def explain(self, feeds: Mapping[str, Any] | None = None) -> str:
        """The parts of the model with their plans, and every node that no plan runs, with its reasons.

        Args:
            feeds: Arrays whose shapes are explained. None explains what was built last.

        Returns:
            The text.

        Raises:
            BadParam: Nothing was built yet, and no arrays are given.
        """
        if feeds is None and self._programs:
            return list(self._programs.values())[-1].explain()
        return self.program(feeds or {}).explain()

    def _checked(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The feeds as arrays with the declared types and shapes, in the order of the model."""
        declared = {i.name: i for i in (*self.inputs, *self.overridable)}
        expected = ", ".join(i.name for i in self.inputs) or "no inputs"
        wrong = [name for name in feeds if name not in declared]
        wrong += [i.name for i in self.inputs if i.name not in feeds]
        if wrong:
            problems = [
                INPUT_NAME.reject(
                    self.name, "input", f"{'unknown' if n in feeds else 'missing'}: {n}", expected=expected
                )
                for n in wrong
            ]
            raise BadParam(problems)
        extents: dict[str, int] = {}
        return {n: self._array(declared[n], feeds[n], extents) for n in declared if n in feeds}

    def _array(self, info: ValueInfo, given: Any, extents: dict[str, int]) -> Any:
        where = f"{self.name}: input '{info.name}'"
        if not info.type:
            if self.fallback is None:
                raise NotSupported(INPUT_KIND.reject(where, "type", "no tensor"))
            return given
        wanted = onnx_package().helper.tensor_dtype_to_np_dtype(_number(info.type))
        try:  # lists and numbers have no type of their own
            array = np.asarray(given) if hasattr(given, "dtype") else np.asarray(given, wanted)
        except (TypeError, ValueError, OverflowError) as error:
            shown = f"{type(given).__name__}: {error}"
            raise BadParam(INPUT_TYPE.reject(where, "value", shown, expected=f"an array of {wanted}")) from None
        if array.dtype != wanted and not (wanted.kind == "O" and array.dtype.kind in "UOS"):
            raise BadParam(INPUT_TYPE.reject(where, "dtype", str(array.dtype), expected=str(wanted)))
        if info.shape is None:
            return array
        fits = len(array.shape) == len(info.shape)
        for have, want in zip(array.shape, info.shape, strict=False):
            if isinstance(want, str) and want.isidentifier():  # some exporters name every open extent "?"
                fits = fits and extents.setdefault(want, have) == have
            elif isinstance(want, int):
                fits = fits and have == want
        if not fits:
            shown = "[" + ", ".join("any" if e is None else str(e) for e in info.shape) + "]"
            raise BadParam(INPUT_SHAPE.reject(where, "shape", array.shape, expected=shown))
        return array


def _info(proto: Any) -> ValueInfo:
    if not proto.type.HasField("tensor_type") or proto.type.tensor_type.elem_type == 0:
        return ValueInfo(proto.name, None, "")
    tensor = proto.type.tensor_type
    kind = onnx_package().TensorProto.DataType.Name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ValueInfo(proto.name, None, kind)
    # Some exporters write -1 for an open extent.
    extents = [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in tensor.shape.dim
    ]
    return ValueInfo(proto.name, tuple(extents), kind)


def _number(name: str) -> int:
    known = {t.name: n for n, t in ELEMENT_TYPES.items()}
    return known.get(name) or int(onnx_package().TensorProto.DataType.Value(name))


def shape_of(given: Any) -> tuple[int, ...] | None:
    """The shape of an array; None for what is no tensor."""
    return given.shape if isinstance(given, np.ndarray) else None


def _key_of(array: Any) -> tuple[str, bytes]:
    return str(array.dtype), array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
