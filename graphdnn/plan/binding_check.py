"""What CuPy's arrays are asked at each call, as functions that are written out for so many arrays: loops and tuples of
what they answer would take twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from graphdnn.enums import DataType
from graphdnn.plan.binding_cache import Addresses, ArraySet, Ids
from graphdnn.plan.binding_validation import Expected, promised_alignment
from graphdnn.plan.device_arrays import CARRIERS

Arrays = Sequence[Any]
_MOST = 8  # strides of an array


class Looks(NamedTuple):
    """``find(bindings, last, known)``: the set of arrays that is bound, the last one or what ``known`` gives for their
    identities; None unless the extents are those that are expected: nothing else of an array can be set.
    ``where(arrays, kind, device, right)``: addresses and identities of arrays of this class and device that are exactly
    as described, and either lie where others lay that were ``right``, or aligned and apart from each other; None for
    any other ones. ``strides``: for each array those that were found to be right, in bytes; axes of one element may
    have any.
    """

    find: Callable[[Mapping[int, Any], ArraySet, Callable[[Ids], ArraySet | None]], ArraySet | None]
    where: Callable[[Arrays, type | None, int, Container[Addresses]], tuple[Addresses, Ids] | None]
    strides: tuple[list[tuple[int, ...]], ...]

    def learn(self, arrays: Arrays) -> None:
        """Arrays that passed every check: their strides are right."""
        for known, array in zip(self.strides, arrays, strict=True):
            if array.strides not in known and len(known) < _MOST:
                known.append(array.strides)


def looks_of(expected: Sequence[Expected]) -> Looks:
    strides = tuple([[e.layout[2]] for e in expected])
    rows = [
        (spec.uid, _types(layout[0], spec.data_type), layout[1], known, promised_alignment(spec) - 1, spec.bytes)
        for (spec, _, layout), known in zip(expected, strides, strict=True)
    ]
    find, where = _written(tuple([e.is_output for e in expected]))(*rows)
    return Looks(find, where, strides)


def numbers_of(expected: Sequence[Expected]) -> Callable[[Mapping[int, Any], tuple[Any, ...]], tuple[Any, ...]]:
    """``numbers(bindings, last)``: the by-value numbers that are bound; ``last`` itself where these are the same."""
    return _numbers(len(expected))(*(e.spec.uid for e in expected))  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def _numbers(count: int) -> Any:
    def all_of(form: str) -> str:
        return "".join(form.format(i) for i in range(count))

    lines = [
        f"def make({all_of('u{0}, ')}):",
        "    def numbers(bindings, last):",
        f"        {all_of('l{0}, ')}= last",
        *(f"        n{i} = bindings[u{i}]" for i in range(count)),
        f"        return last if {' and '.join(f'n{i} is l{i}' for i in range(count))} else ({all_of('n{0}, ')})",
        "    return numbers",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)
    return made["make"]


@lru_cache(maxsize=64)
def _types(dtype: np.dtype[Any], data_type: DataType) -> tuple[Any, ...]:
    """The element type, and the one that carries its bits."""
    carrier = CARRIERS.get(data_type)
    return (dtype,) if carrier is None else (dtype, np.dtype(carrier))


@lru_cache(maxsize=256)
def _written(are_outputs: tuple[bool, ...]) -> Any:
    """Takes (uid, types, shape, byte strides, bits that an aligned address has not, bytes) of each array, and makes the
    two functions of them.
    """
    places = range(len(are_outputs))
    apart = [(i, j) for i in places if are_outputs[i] for j in places if i != j and not (are_outputs[j] and j < i)]
    references, same = "".join(f"r{i}, " for i in places), " and ".join(f"a{i} is r{i}()" for i in places)
    unpacked = f"        {', '.join(f'a{i}' for i in places)}, = arrays"
    lines = [
        f"def make({', '.join(f'row{i}' for i in places)}):",
        *(f"    u{i}, t{i}, s{i}, q{i}, m{i}, n{i} = row{i}" for i in places),
        "    def find(bindings, last, known, id=id):",
        *(f"        a{i} = bindings[u{i}]" for i in places),
        f"        {references}= last.references",
        f"        if not ({same}):",
        f"            last = known(({', '.join(f'id(a{i})' for i in places)},))",
        "            if last is None: return None",
        f"            {references}= last.references",
        f"            if not ({same}): return None",
        "        try:",
        f"            if {' or '.join(f'a{i}.shape != s{i}' for i in places)}: return None",
        "        except AttributeError: return None",  # None itself is bound, and an array was there that is gone
        "        return last",
        "    def where(arrays, kind, device, right, id=id):",
        unpacked,
    ]
    for i in places:
        lines += [
            f"        if type(a{i}) is not kind or a{i}.dtype not in t{i}: return None",
            f"        if a{i}.shape != s{i} or a{i}.strides not in q{i}: return None",
            f"        memory = a{i}.data",
            f"        p{i} = memory.ptr",
            "        if memory.device_id != device: return None",
        ]
    lines += [
        f"        addresses = ({', '.join(f'p{i}' for i in places)},)",
        "        if addresses not in right:",
        f"            if {' or '.join(f'p{i} & m{i}' for i in places)}: return None",
        *(f"            if p{i} < p{j} + n{j} and p{j} < p{i} + n{i}: return None" for i, j in apart),
        f"        return addresses, ({', '.join(f'id(a{i})' for i in places)},)",
        "    return find, where",
    ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), made)  # made of numbers only
    return made["make"]
