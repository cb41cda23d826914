"""Epilogue: the generated functions ``load_column_operands`` and ``epilogue``, which store accumulators.

Fused operations with equal structure keys differ in extents and strides only. Their functions depend only on the layout
key: contiguous axes, vector widths that rows allow, and operands that are as large as the result. The layout key is the
key of a cache. A second cache has an entry for operations that differ only in their batch size, without a layout key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphdnn.bounded_cache import BoundedCache
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.engines.batch_invariance import images_of
from graphdnn.engines.cuda.codegen.index_space import INT_MAX, IndexSpace
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Field, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.vectors import MAX_WIDTH, width_for
from graphdnn.fusion.fused_graph import FusedOp, KernelStructure
from graphdnn.tensors import TensorSpec

ACCUMULATORS_ARGUMENT = "const {accumulator} (&acc)[{width}]"  # the accumulators of a vector
_MAX_CACHED = 512  # entries of a cache


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Generated functions.

    Args:
        width: Accumulators of a call of ``epilogue``.
        functions: The text of ``load_column_operands`` with its struct, and of
            ``epilogue(p, coord, column_operands, acc, is_there)``.
        prefetch_function: The text of ``prefetch``, which prefetches operands as large as the result into L2.
        prefetch_elements: Elements of an operand that a call of ``prefetch`` prefetches; 0 without such operands.
    """

    width: int
    functions: tuple[str, str]
    prefetch_function: str
    prefetch_elements: int


@dataclass(frozen=True, slots=True)
class _CachedEpilogue:
    """An epilogue with the fields that it reads, and with the indices of the tensors that the fields describe."""

    epilogue: Epilogue
    fields: tuple[Field, ...]
    tensor_indices: tuple[int, ...]

    def select(self, tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
        """The tensors that the fields describe, in order."""
        return [tensors[index] for index in self.tensor_indices]


_texts_by_image_count = BoundedCache[tuple[object, ...], KernelText](_MAX_CACHED)


def batch_invariant_text(
    op: FusedOp, epilogue: Epilogue, about: tuple[object, ...], write: Callable[[], KernelText]
) -> KernelText:
    """The kernel text with an epilogue, cached for all batch sizes.

    Args:
        op: The fused operation.
        epilogue: Its epilogue.
        about: The kernel, and everything that its text depends on except the operation and the epilogue.
        write: Generates the text.
    """
    image_key = images_of(op)
    if image_key is None:
        return write()
    key = (image_key, epilogue.functions, *about)
    entry = _texts_by_image_count.get(key)
    if entry is None:
        entry = _texts_by_image_count.remember(key, write())
    return entry


_Strides = tuple[tuple[int, ...], ...]
_by_layout = BoundedCache[tuple[object, ...], _CachedEpilogue](_MAX_CACHED)
_by_image_count = BoundedCache[tuple[object, ...], tuple[_CachedEpilogue, _Strides]](_MAX_CACHED)
_memory_operands_by_structure = BoundedCache[KernelStructure, tuple[int, ...] | None](_MAX_CACHED)


def epilogue_of(
    steps: LaunchSequence,
    parameters: Parameters,
    space: IndexSpace | tuple[Any, ...],
    axis: int,
    max_width: int,
    accumulator: str,
    *,
    argument: str = ACCUMULATORS_ARGUMENT,
    residual: TensorSpec | None = None,
    accumulators: int = 0,
) -> Epilogue:
    """The epilogue of a fused operation.

    Args:
        steps: The launches of the operation.
        parameters: The kernel's parameters, to which the fields of the epilogue are added.
        space: The index space of ``coord``; or a function of the operation, with its further arguments, if the strides
            do not depend on the number of images.
        axis: The vectorized axis.
        max_width: The most contiguous elements of a call of ``epilogue``.
        accumulator: The type of the accumulators.
        argument: The accumulators as an argument of ``epilogue``.
        residual: The operand that TMA has loaded into ``column_operands.residual``.
        accumulators: Accumulators of a thread, if the kernel calls ``epilogue`` for each vector of them.
    """
    op, options = steps.op, _Options(axis, max_width, accumulator, argument, residual, accumulators)
    tensors = (*op.inputs, *op.outputs, *op.internal)
    indices = _memory_operands(steps, tensors)
    if indices is None:
        return _generate(steps, parameters, _resolved_space(op, space), options)[0]
    stored = [tensors[index] for index in indices]
    largest = max([t.elements for t in stored])
    sizes = tuple([(t.span <= INT_MAX, 2 * t.elements >= largest) for t in stored])
    image_key = None if isinstance(space, IndexSpace) else images_of(op)
    if image_key is not None:
        entry = _by_image_count.get((image_key, space, options.key, sizes))
        if entry is not None:
            cached, strides = entry
            parameters.add_cached(cached.fields, zip(cached.select(tensors), strides, strict=True))
            return cached.epilogue
    resolved = _resolved_space(op, space)
    key = op.structure, options.key, sizes, *_layout_key(resolved, axis, stored)
    generated = _by_layout.get(key)
    if generated is None:
        before = len(parameters.fields)
        epilogue, read = _generate(steps, parameters, resolved, options)
        index_of = {t.uid: index for index, t in enumerate(tensors)}
        generated = _CachedEpilogue(epilogue, parameters.fields[before:], tuple([index_of[uid] for uid in read]))
        _by_layout.remember(key, generated)
        strides = _strides(resolved, generated, tensors)
    else:
        strides = _strides(resolved, generated, tensors)
        parameters.add_cached(generated.fields, zip(generated.select(tensors), strides, strict=True))
    if image_key is not None:
        _by_image_count.remember((image_key, space, options.key, sizes), (generated, strides))
    return generated.epilogue


@dataclass(frozen=True, slots=True)
class _Options:
    """Arguments of ``epilogue_of`` that generated functions depend on."""

    axis: int
    max_width: int
    accumulator: str
    argument: str
    residual: TensorSpec | None
    accumulators: int

    @property
    def key(self) -> tuple[object, ...]:
        """The options as a part of the key of a cache."""
        residual = None if self.residual is None else self.residual.uid
        return self.axis, self.max_width, self.accumulator, self.argument, residual, self.accumulators


def _resolved_space(op: FusedOp, space: IndexSpace | tuple[Any, ...]) -> IndexSpace:
    return space if isinstance(space, IndexSpace) else space[0](op, *space[1:])


def _strides(space: IndexSpace, cached: _CachedEpilogue, tensors: Sequence[TensorSpec]) -> _Strides:
    """The strides of the tensors that the fields describe; by-value tensors have none."""
    return tuple([() if t.is_by_value else space.strides(t) for t in cached.select(tensors)])


def _generate(
    steps: LaunchSequence, parameters: Parameters, space: IndexSpace, options: _Options
) -> tuple[Epilogue, tuple[int, ...]]:
    """The epilogue, and the uids of the tensors that its fields describe, in order."""
    width = min(width_for(space, steps.epilogue_tensors(), options.axis), options.max_width)
    body = Program(
        steps.op, parameters, space, "t", width=width, vector_axis=options.axis,
        has_column_operands=True, predicate="is_there", accumulators=options.accumulators,
    )  # fmt: skip
    loaded_arrays = {}
    if options.residual is not None:
        body.bind(options.residual, "column_operands.residual[e]")
        loaded_arrays["residual"] = STORAGE[options.residual.data_type]
    steps.write_epilogue(body, "acc", options.accumulator)
    argument = options.argument.format(accumulator=options.accumulator, width=width)
    arguments = f"const ColumnOperands& column_operands, {argument}, bool is_there"
    functions = body.column_operands_text(loaded_arrays), body.function("epilogue", arguments)
    return Epilogue(width, functions, body.prefetch_text("prefetch"), body.prefetch_elements), body.operands


def _memory_operands(steps: LaunchSequence, tensors: Sequence[TensorSpec]) -> tuple[int, ...] | None:
    """Indices of the tensors that the epilogue reads or writes in memory; None if an epilogue cannot be cached."""
    op, structure = steps.op, steps.op.structure
    if structure is None:
        return None
    if structure in _memory_operands_by_structure:
        return _memory_operands_by_structure.get(structure)
    index_of = {t.uid: index for index, t in enumerate(tensors)}
    stored = dict.fromkeys([index_of[t.uid] for t in steps.epilogue_tensors() if not t.is_by_value])
    return _memory_operands_by_structure.remember(structure, None if gen_index_axes(op.epilogue) else tuple(stored))


def _layout_key(space: IndexSpace, axis: int, tensors: Sequence[TensorSpec]) -> list[object]:
    """The properties of layouts that generated functions depend on.

    A vector has at most ``MAX_WIDTH`` elements, so strides and the extent along ``axis`` count modulo ``MAX_WIDTH``.
    """
    sizes, strides, count = space.sizes, space.strides, prod(space.sizes)
    key: list[object] = [sizes[axis] % MAX_WIDTH, tuple([size > 1 for size in sizes])]
    for t in tensors:
        steps = tuple([s if s < 2 else 2 + s % MAX_WIDTH for s in strides(t)])
        key.append((steps, t.elements >= count))
    return key
