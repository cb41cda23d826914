"""The number of a tile never changes: plans, tuning databases and measured times store it or the tile's name.

``tests/data/tile_numbers.json`` has the names of each table in its order. A new tile is a row at the end of its table and
a name at the end of its list there.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from graphdnn.engines import cuda

_FILE = Path(__file__).parents[2] / "data" / "tile_numbers.json"
_STORED: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))


def _tables() -> Iterator[tuple[str, list[str]]]:
    """The names of the tiles of each module with a table ``TILES`` of its own."""
    for found in pkgutil.walk_packages(cuda.__path__, f"{cuda.__name__}."):
        module = import_module(found.name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        if "\nTILES: " in source or "\nTILES = " in source:
            yield found.name.removeprefix(f"{cuda.__name__}."), [tile.name for tile in module.TILES]


_TABLES = dict(_tables())


def test_every_table_is_stored() -> None:
    assert sorted(_TABLES) == sorted(_STORED), f"{_FILE.name} has one list of names for each module with TILES"


@pytest.mark.parametrize("module", _TABLES)
def test_tiles_keep_their_numbers(module: str) -> None:
    names, stored = _TABLES[module], _STORED[module]
    moved = [f"{i}: {old}" for i, old in enumerate(stored, 1) if names[i - 1 : i] != [old]]
    assert not moved, f"plans store the number of a tile: add new rows at the end of TILES in {module}. Moved: {moved}"
    new = names[len(stored) :]
    assert not new, f"add the new names at the end of {module} in tests/data/{_FILE.name}: {new}"
