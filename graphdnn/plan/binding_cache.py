"""The arrays of a plan's earlier executions, by identity and by address.

Identities are enough, without a look at the arrays: a set of identities is forgotten as soon as one of its arrays is
deleted, before another object can have the same identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from graphdnn.plan.execution_plan import ValidatedArrays

if TYPE_CHECKING:
    from graphdnn.plan.launch_block import Block

Ids = tuple[int, ...]
Addresses = tuple[int, ...]

MOST = 16  # places that a plan knows; networks have their memory from pools, which give a layer the same few
_NO_WORKSPACE = ValidatedArrays(()), 0


class Place:
    """Where the arrays of an execution lie."""

    __slots__ = ("addresses", "blocks", "first", "ids", "scratch")

    def __init__(self, addresses: Addresses, ids: Ids, blocks: list[Block]) -> None:
        """``ids``: of the arrays that lay there last. ``blocks``: everybody's until arrays lie there again.

        ``first``: a reference to the first of those arrays: identities alone may be those of deleted arrays.
        """
        self.addresses = addresses
        self.first: Callable[[], Any] = _nobody
        self.ids = ids
        self.blocks = blocks
        self.scratch: tuple[ValidatedArrays, int] = _NO_WORKSPACE  # checked with these arrays, and its address


class BoundArrays:
    """Arrays by identity, which are not kept alive. ``references`` forget the set when an array is deleted."""

    __slots__ = ("place", "references")

    def __init__(self, references: Sequence[ref[Any]], place: Place) -> None:
        self.references = references
        self.place = place


class BindingCache:
    """Places by the addresses of their arrays, and by the identity of arrays that came again, which cannot move."""

    __slots__ = ("__weakref__", "_free", "_is_light", "_sets", "known", "places")

    def __init__(self, free: list[Block], *, is_light: bool) -> None:
        """``free``: blocks that may hold any addresses. ``is_light``: a block takes little memory, and none on the
        device, so places may have blocks of their own.
        """
        self._free = free
        self._is_light = is_light
        self.places: dict[Addresses, Place] = {}
        self._sets: dict[Ids, BoundArrays] = {}
        self.known: Callable[[Ids], BoundArrays | None] = self._sets.get

    def place(self, arrays: Sequence[Any], ids: Ids, addresses: Addresses, *, are_fixed: bool) -> Place:
        """Of arrays that were checked. Where some lie again, they get blocks of their own, which stay filled in.

        ``are_fixed``: they keep their addresses for life, as CuPy's do.
        """
        place = self.places.get(addresses)
        if place is None:
            if len(self.places) >= MOST:
                self._forget_places()
            place = self.places[addresses] = Place(addresses, ids, self._free)
            place.first = ref(arrays[0]) if are_fixed else _nobody
            return place
        if self._is_light and place.blocks is self._free:
            place.blocks = []
        if not are_fixed:
            place.ids = ids
        elif ids != place.ids or place.first() is not arrays[0]:
            place.ids, place.first = ids, ref(arrays[0])
        else:
            if len(self._sets) >= MOST:
                self._sets.clear()
            forget = _forgetting(ref(self), ids)
            self._sets[ids] = BoundArrays(tuple([ref(array, forget) for array in arrays]), place)
        return place

    def forget(self, ids: Ids) -> None:
        """Forget a set, one of whose arrays is deleted."""
        self._sets.pop(ids, None)

    def _forget_places(self) -> None:
        """All of them; blocks that nobody uses just now are everybody's again."""
        places, self.places = self.places, {}
        self._sets.clear()
        for place in places.values():
            blocks = place.blocks
            if blocks is self._free:
                continue
            place.blocks = self._free  # of the thread whose last arrays lie there
            with suppress(IndexError):  # one by one: another thread may be taking the same ones
                while len(self._free) < MOST:
                    self._free.append(blocks.pop())


def _nobody() -> None:
    """A reference to an array that is deleted."""


def _forgetting(cache: ref[BindingCache], ids: Ids) -> Callable[[object], None]:
    """What a reference calls when its array is deleted. It does not keep the cache alive."""

    def forget(_: object) -> None:
        found = cache()
        if found is not None:
            found.forget(ids)

    return forget


def is_of_cupy(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "cupy"
