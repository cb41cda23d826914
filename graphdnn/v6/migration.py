"""Migration: operation graphs as a script for the graph builder, which runs as it is printed.

Each graph becomes a function, whose operations, tensors and layouts are those of the graph that it was printed from:
only virtual tensors are counted otherwise. So its plans compute the same bits. How an operation is written,
migration_rows.py says.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence

from graphdnn.builder.shape_inference import OPEN_EXTENTS
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import Operation, Reshape, RnnSpec, Transpose
from graphdnn.spec import Spec
from graphdnn.tensors import TensorSpec, ordered_strides, packed_strides, stride_order
from graphdnn.text_format import indented
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.memory_aliases import Run, shared
from graphdnn.v6.migration_table import row_of, shown
from graphdnn.v6.rules import NO_SCRIPT

_TITLE = '"""Recorded legacy calls as graphs. Bind arrays by the tensors\' names or uids: graph.execute({...}).'
_ENUMS = ("ConvolutionMode", "DataType", "NanPropagation", "PaddingMode", "PointwiseMode", "ReductionOperator",
          "ResampleMode", "ReshapeMode", "RngDistribution")  # fmt: skip
_RESERVED = ("graph", "device", "graphdnn", *_ENUMS)
_PLACED = (Reshape, Transpose)  # the builder makes views of their virtual results


def script(graphs: Sequence[OperationGraph], runs: Sequence[Run] = ()) -> str:
    """One function for each graph, which returns the graph, not built. ``runs``: what was bound when they ran."""
    functions, names = [], []
    for i, graph in enumerate(graphs, start=1):
        writer = _Writer(graph)
        body = (indented(line, "    ") for line in writer.lines())
        functions.append("\n".join((f"def graph_{i}(device=None):", *body)))
        names.append(writer.names)
    text = "\n\n\n".join(functions)
    used = ", ".join(name for name in _ENUMS if f"{name}." in text)
    buffers = shared(graphs, runs, names)
    title = "\n".join((_TITLE, *_memory(buffers), '"""')) if buffers else f'{_TITLE}"""'
    imports = ("import graphdnn", *([f"from graphdnn.enums import {used}"] if used else []))
    return "\n".join((title, "", *imports, "", "", text, ""))


def _memory(buffers: Sequence[str]) -> Iterator[str]:
    """Which tensors are one memory, for those who bind arrays."""
    yield ""
    yield "One memory in the recording; a graph that writes it reads a copy of what was there:"
    yield from (f"- {line}" for line in buffers)


class _Writer:
    """The lines of one function."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.names: dict[int, str] = {}
        self._settings: dict[Spec, str] = {}
        for tensor in graph.bound:  # what a caller binds keeps its name
            self.name(tensor)

    def lines(self) -> Iterator[str]:
        yield f"graph = graphdnn.Graph({self.graph.name!r}, device=device)"
        for tensor in self.graph.tensors.values():
            if tensor.uid not in self.graph.producer:
                yield self._operand(tensor)
        for operation in self.graph.operations:
            row = row_of(operation)
            if row is None:
                raise CudnnError(NO_SCRIPT.reject("migration", "operation", operation.tag))
            yield from row(self, operation)
            for tensor in operation.outputs().values():
                yield from self._result(operation, tensor)
        yield "return graph"

    def name(self, tensor: TensorSpec) -> str:
        """The variable of a tensor: its name where that is one of its own, else by its uid."""
        if tensor.uid not in self.names:
            word = re.sub(r"\W+", "_", tensor.name).strip("_")
            good = word.isidentifier() and not keyword.iskeyword(word)
            self.names[tensor.uid] = self._own(word) if good else self._own(f"{word or 't'}_{tensor.uid}")
        return self.names[tensor.uid]

    def _own(self, word: str) -> str:
        """The word, or the first with a number behind it that nothing else is called."""
        taken = {*self.names.values(), *self._settings.values(), *_RESERVED}
        count, found = 1, word
        while found in taken:
            count += 1
            found = f"{word}_{count}"
        return found

    def network(self, rnn: RnnSpec) -> Iterator[str]:
        """The line that describes a recurrent network, where it is used first."""
        if rnn not in self._settings:
            self._settings[rnn] = self._own("rnn")
            given = {f: getattr(rnn, f) for f, info in RnnSpec.model_fields.items() if getattr(rnn, f) != info.default}
            settings = ", ".join(
                f"{f}={value.name!r}" if f == "cell" else f"{f}={shown(value)}" for f, value in given.items()
            )
            yield f"{self._settings[rnn]} = graphdnn.RnnSpec({settings})"

    def network_name(self, rnn: RnnSpec) -> str:
        return self._settings[rnn]

    def _operand(self, tensor: TensorSpec) -> str:
        name = self.name(tensor)
        if tensor.is_constant:
            return f"{name} = graph.tensor_scalar({shown(tensor.constant_value)}, {shown(tensor.data_type)})"
        layout = "" if tensor.strides == packed_strides(tensor.dims) else f"stride={list(tensor.strides)}, "
        line = (
            f"{name} = graph.tensor({list(tensor.dims)}, {layout}data_type={shown(tensor.data_type)}, "
            f"name={name!r}, uid={tensor.uid})"
        )
        return line + self._vector(tensor)

    def _result(self, operation: Operation, tensor: TensorSpec) -> Iterator[str]:
        """What the builder does not infer of a result."""
        settings = []
        if operation.tag in OPEN_EXTENTS or tensor.vector_count > 1:
            settings.append(f".set_dim({list(tensor.dims)})")
        if tensor.data_type is not operation.compute_type or not tensor.is_virtual:
            settings.append(f".set_data_type({shown(tensor.data_type)})")
        if tensor.vector_count > 1 or not _is_implied(operation, tensor):
            settings.append(f".set_stride({list(tensor.strides)})")
        settings.append(self._vector(tensor))
        name = self.name(tensor)
        if not tensor.is_virtual:
            settings.append(f".set_output(True).set_name({name!r}).set_uid({tensor.uid})")
        if any(settings):
            yield f"{name}{''.join(settings)}"

    def _vector(self, tensor: TensorSpec) -> str:
        alignment = f".set_alignment({tensor.byte_alignment})" if tensor.byte_alignment != 16 else ""
        if tensor.vector_count == 1:
            return alignment
        return f"{alignment}.set_vector_count_and_dimension({tensor.vector_count}, {tensor.vectorized_dimension})"


def _is_implied(operation: Operation, tensor: TensorSpec) -> bool:
    """Whether the builder lays a result out like this: in the order of any operand of its rank; packed without one."""
    if tensor.is_virtual and isinstance(operation, _PLACED):
        return False
    alike = [t for t in operation.inputs().values() if t.rank == tensor.rank]
    found = {ordered_strides(tensor.dims, stride_order(t.dims, t.strides)) for t in alike}
    return (found or {packed_strides(tensor.dims)}) == {tensor.strides}
