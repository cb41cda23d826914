"""fitted_h200.json: every constant has a unit and a meaning, which the field of its class repeats."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from graphdnn.engines.cuda.sm90 import fitted_constants
from graphdnn.engines.cuda.sm90.fitted_constants import FILE, read

TABLES: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
SOURCE = Path(fitted_constants.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_where_its_constants_come_from(name: str) -> None:
    assert all(TABLES[name][key] for key in ("device", "driver", "date", "fitted_to"))


@pytest.mark.parametrize("name", TABLES)
def test_a_model_has_the_constants_of_its_table(name: str) -> None:
    model = getattr(fitted_constants, name.upper())
    constants = TABLES[name]["constants"]
    assert dataclasses.asdict(model) == {constant: row["value"] for constant, row in constants.items()}
    body = SOURCE.split(f"class {type(model).__name__}:")[1].split("\n\n\n")[0]
    lines = [line.strip() for line in body.splitlines()]
    for constant, row in constants.items():
        (place,) = (i for i, line in enumerate(lines) if line.startswith(f"{constant}: "))
        told = f"# {row['unit']}: {row['meaning']}"
        assert lines[place].endswith(f"  {told}") or lines[place - 1] == told, constant


def test_a_table_with_other_names_is_refused() -> None:
    table = {"constants": {"copies": {"value": 1.0}}}
    with pytest.raises(ValueError, match=r"FilterCopyConstants has other constants: \['copies', 'copy_launches'\]"):
        read(fitted_constants.FilterCopyConstants, table)
