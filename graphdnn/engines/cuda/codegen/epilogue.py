"""Epilogue: the generated functions ``load_column_operands`` and ``epilogue``, which take accumulators to memory.

Operations of a class differ in extents and strides. The functions depend only on the facts that ``_lie`` collects:
contiguous axes, vector widths that rows allow, and operands that are as large as the result. These facts are the key
of a cache. Operations that differ only in their batch size share an entry of a second cache, which skips the facts as
well.
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

SUMS = "const {accumulator} (&acc)[{width}]"  # the accumulators of a vector as an argument
_MOST = 512  # cached epilogues


@dataclass(frozen=True, slots=True)
class Epilogue:
    """``functions``: ``keep`` with its struct, and ``epilogue(p, at, kept, acc, is_there)`` of ``width`` sums.
    ``fetching``: ``fetch``, which asks for ``fetched`` elements of the operands as large as the result, ahead of use.
    """

    width: int
    functions: tuple[str, str]
    fetching: str
    fetched: int


@dataclass(frozen=True, slots=True)
class _Known:
    """``fields``: that its functions read, with the tensors whose addresses and strides they hold, by their places."""

    ending: Epilogue
    fields: tuple[Field, ...]
    places: tuple[int, ...]


_texts = BoundedCache[tuple[object, ...], KernelText](_MOST)  # by images


def text_of_images(
    op: FusedOp, ending: Epilogue, about: tuple[object, ...], write: Callable[[], KernelText]
) -> KernelText:
    """The text around an ending, written once for any number of images. ``about``: the kernel, and all that its text
    depends on beside the operation.
    """
    number = images_of(op)
    if number is None:
        return write()
    key = (number, ending.functions, *about)
    found = _texts.get(key)
    if found is None:
        found = _texts.remember(key, write())
    return found


_Strides = tuple[tuple[int, ...], ...]
_known = BoundedCache[tuple[object, ...], _Known](_MOST)
_of_images = BoundedCache[tuple[object, ...], tuple[_Known, _Strides]](_MOST)
_places = BoundedCache[KernelStructure, tuple[int, ...] | None](
    _MOST
)  # of what the end of a class's kernels reads and writes


def epilogue_of(
    steps: LaunchSequence,
    parameters: Parameters,
    space: IndexSpace | tuple[Any, ...],
    axis: int,
    most: int,
    accumulator: str,
    *,
    taken: str = SUMS,
    residual: TensorSpec | None = None,
    sums: int = 0,
) -> Epilogue:
    """The epilogue of the operation of ``steps``; ``parameters`` get its fields.

    ``space``: the coordinates that ``epilogue`` is called with. It may be a function of the operation with its further
    arguments, if the strides do not depend on the number of images.
    ``axis``: the vectorized axis; a call of ``epilogue`` takes at most ``most`` contiguous elements of it.
    ``accumulator``: the type of the accumulators, which are passed as ``taken``.
    ``residual``: the operand that TMA has loaded into ``kept``.
    ``sums``: accumulators of a thread, where the kernel calls ``epilogue`` for each vector of them.
    """
    op, asked = steps.op, (axis, most, accumulator, taken, None if residual is None else residual.uid, sums)
    tensors = (*op.inputs, *op.outputs, *op.internal)
    places = _places_of(steps, tensors)
    if places is None:
        made = _made(op, space)
        return _written(steps, parameters, made, axis, most, accumulator, taken, residual, sums)[0]
    stored = [tensors[place] for place in places]
    largest = max([t.elements for t in stored])
    sizes = tuple([(t.span <= INT_MAX, 2 * t.elements >= largest) for t in stored])
    number = None if isinstance(space, IndexSpace) else images_of(op)
    if number is not None:
        found = _of_images.get((number, space, asked, sizes))
        if found is not None:
            known, strides = found
            parameters.again(known.fields, zip([tensors[place] for place in known.places], strides, strict=True))
            return known.ending
    made = _made(op, space)
    key = op.structure, asked, sizes, *_lie(made, axis, stored)
    kept = _known.get(key)
    if kept is None:
        before = len(parameters.fields)
        ending, read = _written(steps, parameters, made, axis, most, accumulator, taken, residual, sums)
        place_of = {t.uid: place for place, t in enumerate(tensors)}
        kept = _Known(ending, parameters.fields[before:], tuple([place_of[uid] for uid in read]))
        _known.remember(key, kept)
        strides = _strides(made, kept, tensors)
    else:
        strides = _strides(made, kept, tensors)
        parameters.again(kept.fields, zip([tensors[place] for place in kept.places], strides, strict=True))
    if number is not None:
        _of_images.remember((number, space, asked, sizes), (kept, strides))
    return kept.ending


def _made(op: FusedOp, space: IndexSpace | tuple[Any, ...]) -> IndexSpace:
    return space if isinstance(space, IndexSpace) else space[0](op, *space[1:])


def _strides(space: IndexSpace, known: _Known, tensors: Sequence[TensorSpec]) -> _Strides:
    """The strides of the tensors that the fields describe; by-value tensors have none."""
    return tuple([() if (t := tensors[place]).is_by_value else space.strides(t) for place in known.places])


def _written(
    steps: LaunchSequence,
    parameters: Parameters,
    space: IndexSpace,
    axis: int,
    most: int,
    accumulator: str,
    taken: str,
    residual: TensorSpec | None,
    sums: int,
) -> tuple[Epilogue, tuple[int, ...]]:
    """The epilogue, and the uids of the tensors that its fields describe."""
    width = min(width_for(space, steps.epilogue_tensors(), axis), most)
    body = Program(
        steps.op, parameters, space, "t", width=width, vector_axis=axis, keeps=True, condition="is_there", sums=sums
    )
    brought = {}
    if residual is not None:
        body.given(residual, "kept.residual[e]")
        brought["residual"] = STORAGE[residual.data_type]
    steps.finish(body, "acc", accumulator)
    argument = taken.format(accumulator=accumulator, width=width)
    functions = (
        body.keeping(brought),
        body.function("epilogue", f"const ColumnOperands& kept, {argument}, bool is_there"),
    )
    return Epilogue(width, functions, body.fetching("fetch"), body.fetched), body.operands


def _places_of(steps: LaunchSequence, tensors: Sequence[TensorSpec]) -> tuple[int, ...] | None:
    """What the end of a class's kernels reads and writes in memory; None where texts depend on indices."""
    op, structure = steps.op, steps.op.structure
    if structure is None:
        return None
    if structure in _places:
        return _places.get(structure)
    place_of = {t.uid: place for place, t in enumerate(tensors)}
    stored = dict.fromkeys([place_of[t.uid] for t in steps.epilogue_tensors() if not t.is_by_value])
    return _places.remember(structure, None if gen_index_axes(op.epilogue) else tuple(stored))


def _lie(space: IndexSpace, axis: int, tensors: Sequence[TensorSpec]) -> list[object]:
    """How tensors lie, as far as functions depend on it. Packs have at most ``MAX_WIDTH`` elements, so of a stride and
    of the extent along ``axis`` it is what is left beyond a multiple of that.
    """
    sizes, strides, whole = space.sizes, space.strides, prod(space.sizes)
    found: list[object] = [sizes[axis] % MAX_WIDTH, tuple([size > 1 for size in sizes])]
    for t in tensors:
        lying = tuple([s if s < 2 else 2 + s % MAX_WIDTH for s in strides(t)])
        found.append((lying, t.elements >= whole))
    return found
