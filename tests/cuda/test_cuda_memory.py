"""How far memory reaches from an address: one allocation, or pieces that were mapped side by side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphdnn.cuda import allocations, driver_library

PIECE, START = 20 << 20, 1 << 40


class Driver:
    """Pieces of memory side by side; ``mapped``: by cuMemMap, as PyTorch's expandable segments are."""

    def __init__(self, pieces: int, mapped: int) -> None:
        self.pieces, self.mapped, self.held = pieces, mapped, 0

    def cuMemGetAddressRange(self, address: int) -> tuple[int, int, int]:
        place = (address - START) // PIECE
        return (0, START + place * PIECE, PIECE) if 0 <= place < self.pieces else (500, 0, 0)

    def cuMemRetainAllocationHandle(self, address: int) -> tuple[int, Any]:
        if not 0 <= (address - START) // PIECE < self.mapped:
            return 1, None
        self.held += 1
        return 0, SimpleNamespace()

    def cuMemRelease(self, handle: Any) -> tuple[int]:
        self.held -= 1
        return (0,)


@pytest.mark.parametrize(
    ("pieces", "mapped", "wanted", "expected"),
    [
        (1, 0, PIECE, PIECE),
        (3, 0, 2 * PIECE, PIECE),  # allocations that lie side by side are several
        (3, 3, PIECE, PIECE),  # no further than is asked
        (3, 3, 2 * PIECE, 2 * PIECE),
        (3, 3, 9 * PIECE, 3 * PIECE),
        (4, 2, 9 * PIECE, 2 * PIECE),  # an ordinary allocation behind mapped ones
    ],
)
def test_room(monkeypatch: pytest.MonkeyPatch, pieces: int, mapped: int, wanted: int, expected: int) -> None:
    driver = Driver(pieces, mapped)
    monkeypatch.setattr(allocations, "bindings", lambda: driver)
    monkeypatch.setattr(driver_library, "bindings", lambda: driver)
    assert allocations.room(START, wanted) == expected
    assert allocations.room(START + 512, max(1, wanted - 512)) == expected - 512
    assert driver.held == 0


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "bindings", lambda: Driver(1, 1))
    assert allocations.room(START - 1, 4) is None
    assert allocations.room(START + PIECE, 4) is None
