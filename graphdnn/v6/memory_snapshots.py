"""Contents: whether anything but the recorded calls writes the memory that these read or write.

A replay does what the calls did. What a program does to their memory in between by other means, in place by NumPy say,
a replay would leave out without a word. So a recording keeps a copy of what its calls read and wrote until its block
ends, and compares it before each call that meets the memory, and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.rules import Rule
from graphdnn.v6.recorded_graph import Key, key_of
from graphdnn.v6.thread_state import Call

CHANGED = Rule(
    id="v6.record.changed",
    expected="memory that only legacy calls write, until the block ends",
    reason="something else wrote it after {after}, and what was recorded would leave that out",
    fix="write it by a legacy call, or end the block before it is written and record the calls behind that apart",
    status=Status.NOT_SUPPORTED,
)


class Keeper(Protocol):
    """Copies of memory, on the host or on a device."""

    def keep(self, array: Array, into: Any = None) -> Any:
        """A copy of the elements; ``into``: an earlier copy of the same array, whose memory is used again."""

    def differs(self, array: Array, copy: Any) -> Callable[[], bool]:
        """Whether the elements are other bits than the copy. What is given answers, once the device is there."""


@dataclass(slots=True)
class _Known:
    """Memory whose contents a call read or left."""

    array: Array
    argument: str
    call: str
    keeper: Keeper
    copy: Any

    def meets(self, other: Array) -> bool:
        return bool(np.may_share_memory(self.array, other))


@dataclass(slots=True)
class _Look:
    """One comparison, and between which calls it stands."""

    known: _Known
    after: str
    before: str
    answer: Callable[[], bool]


@dataclass(slots=True)
class Contents:
    _known: dict[Key, _Known] = field(default_factory=dict)
    _looks: list[_Look] = field(default_factory=list)
    _found: list[Rejection] = field(default_factory=list)

    def before(self, call: Call, arrays: Mapping[int, Array], keeper: Keeper) -> None:
        """Look at what a call is about to read, and at what it is about to write in part."""
        producer = call.plan.config.fused.graph.producer
        read = {key_of(a) for uid, a in arrays.items() if uid not in producer}
        replaced = {key_of(a) for uid, a in arrays.items() if uid in producer} - read
        for key, known in self._known.items():
            if key not in replaced and any(known.meets(a) for a in arrays.values()):
                self._look(known, call.call)
        for place in call.places:
            key = key_of(arrays[place.uid])
            if not place.is_output and key not in self._known:
                array = arrays[place.uid]
                self._known[key] = _Known(array, place.label, call.call, keeper, keeper.keep(array))

    def after(self, call: Call, arrays: Mapping[int, Array], keeper: Keeper, scratch: Array | None) -> None:
        """Keep what a call left. ``scratch``: its workspace, whose contents nothing depends on."""
        outputs = [(place, arrays[place.uid]) for place in call.places if place.is_output]
        for key, known in list(self._known.items()):
            if any(known.meets(array) for _, array in outputs):
                known.call, known.copy = call.call, known.keeper.keep(known.array, known.copy)
            elif scratch is not None and known.meets(scratch):
                del self._known[key]
        for place, array in outputs:
            key = key_of(array)
            if key not in self._known:
                self._known[key] = _Known(array, place.label, call.call, keeper, keeper.keep(array))

    def end(self) -> None:
        """Look at everything once more; the copies go."""
        for known in self._known.values():
            self._look(known, "the end of the block")
        self._known.clear()

    def changed(self) -> list[Rejection]:
        """One for each memory that something else wrote. Waits for a device."""
        self._found += self._answers()
        self._looks.clear()
        return self._found

    def _look(self, known: _Known, before: str) -> None:
        self._looks.append(_Look(known, known.call, before, known.keeper.differs(known.array, known.copy)))

    def _answers(self) -> Iterator[Rejection]:
        seen: set[tuple[int, str]] = set()
        for look in self._looks:
            where = id(look.known), look.after
            if where not in seen and look.answer():
                seen.add(where)
                value = f"other contents at {look.before}"
                yield CHANGED.reject("record", f"{look.known.argument} of {look.after}", value, after=look.after)


class HostKeeper:
    """Copies on the host, which are compared at once."""

    def keep(self, array: Array, into: Any = None) -> Any:
        bits = _bits(array)
        if into is None:
            return bits.copy()
        np.copyto(into, bits)
        return into

    def differs(self, array: Array, copy: Any) -> Callable[[], bool]:
        found = not np.array_equal(_bits(array), copy)
        return lambda: found


def _bits(array: Array) -> Array:
    """The elements as integers, so that a NaN is like itself."""
    return array.view(np.dtype(f"u{array.itemsize}"))
