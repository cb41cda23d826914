"""The value flow is one way: a module imports only from rows above its own, and faces import the core, never back."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from repository import ROOT

from graphdnn.hook_functions import HOOK_FUNCTIONS
from graphdnn.hooks import HOOKS

PACKAGE = ROOT / "graphdnn"

# Top to bottom. Packages are listed by their name and stand for everything inside them.
LAYERS = (
    ("bounded_cache", "enums", "escaped", "hooks"),
    ("attribute_names", "errors", "checks", "text_format", "host_memory"),
    ("rules", "dtypes"),
    ("storage", "debug_log", "scalars"),
    ("spec", "host_allocation"),
    ("tensors",),
    ("operations",),
    ("graph",),
    ("fusion",),
    ("device",),
    ("cuda",),
    ("engines", "device_selection"),
    ("heuristics",),
    ("plan",),
    ("pipeline", "files"),
    ("analysis.data_ranges", "analysis.median_statistics"),
    ("analysis.random_operands", "analysis.oracle"),
    ("analysis.plan_inputs", "analysis.rewrite_notes", "analysis.graph_slices"),
    ("analysis", "analysis.diagnostics", "analysis.kernels", "analysis.trace", "analysis.certificate"),
    ("analysis.repairs", "analysis.cuts", "tuning"),  # what would be better
    ("analysis.report",),
    ("builder", "backend"),
    ("problem", "v6"),  # a recording of legacy calls prints a script for the builder
    ("locks", "bundles", "importers", "onnx", "torch"),
    ("reducer",),
    ("certificate", "repairs", "report", "reducing"),  # earlier places of modules, for imports that were documented
    ("hook_functions",),  # answers of later layers to errors, plans and log lines
    ("pytest_plugin", "cli", "__init__"),
    ("__main__",),
)
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _unit(path: Path) -> str:
    return _unit_of(path.relative_to(PACKAGE).with_suffix("").parts)


def _unit_of(parts: Sequence[str]) -> str:
    """The row's name for a module: its package at the top, or its part of ``analysis``."""
    if parts[0] == "analysis" and len(parts) > 1 and parts[1] != "__init__":
        return f"analysis.{parts[1]}"
    return parts[0]


_LOADERS = ("import_module", "__import__")


def _loaded_name(call: ast.Call) -> str | None:
    """The module that a call loads by its name; a name that is put together ends in ``*`` where it is not known."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function not in _LOADERS:
        return None
    name = next((k.value for k in call.keywords if k.arg == "name"), call.args[0] if call.args else None)
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    if isinstance(name, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in name.values)
    return None


def _imported_units(source: str) -> set[str]:
    """The units that a module imports, by statements and by names in text."""
    units = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "graphdnn":
            rest = node.module.split(".")[1:]
            inner = [[*rest, alias.name] for alias in node.names] if rest in ([], ["analysis"]) else [rest]
            units |= {_unit_of(parts) for parts in inner}
        elif isinstance(node, ast.Import):
            units |= {_unit_of(a.name.split(".")[1:]) for a in node.names if a.name.startswith("graphdnn.")}
        elif isinstance(node, ast.Call) and (name := _loaded_name(node)) and name.startswith("graphdnn."):
            parts = name.split(".")[1:]  # an unknown part of analysis stands for the whole
            units.add(_unit_of([part for i, part in enumerate(parts) if i == 0 or "*" not in part]))
    return units


def _downward(source: str, unit: str) -> set[str]:
    """The imports from a unit's own row or from a row below."""
    known = {u for u in _imported_units(source) if u in ROW}
    return {u for u in known if u != unit and ROW[u] >= ROW[unit]}


def test_every_module_has_a_row() -> None:
    assert {_unit(path) for path in _modules()} <= set(ROW)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_upwards(path: Path) -> None:
    unit = _unit(path)
    downward = _downward(path.read_text(encoding="utf-8"), unit)
    assert not downward, f"{path.name} (row {ROW[unit]}) imports {downward} from its own row or below"


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("errors", 'import_module("graphdnn.analysis.diagnostics").of_error(self)'),
        ("errors", 'importlib.import_module("graphdnn.bundles").of_error(self)'),
        ("errors", 'import_module(name="graphdnn.bundles")'),
        ("debug_log", '__import__("graphdnn.bundles")'),
        ("plan", 'getattr(import_module(f"graphdnn.analysis.{module}"), function)(self)'),
        ("plan", "def f():\n    from graphdnn.analysis.cuts import of_plan"),
    ],
)
def test_import_of_a_later_layer_is_found(unit: str, source: str) -> None:
    """By a statement or by a name in text, wherever it stands."""
    assert _downward(source, unit)


@pytest.mark.parametrize("source", ['import_module("scipy.special")', 'import_module("graphdnn.engines")', "load(x)"])
def test_import_of_an_earlier_layer_is_allowed(source: str) -> None:
    assert not _downward(source, "plan")


def test_every_hook_is_answered() -> None:
    """The names that modules call are those of the table, and the table has no others."""
    called = {
        node.args[0].value
        for path in _modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "call_hook"
        and isinstance(node.args[0], ast.Constant)
    }
    assert called == set(HOOKS) == set(HOOK_FUNCTIONS)


def test_import_is_light() -> None:
    """`import graphdnn` loads neither CuPy nor networkx nor SciPy, and nothing that launches or compiles kernels."""
    heavy = ("cupy", "networkx", "scipy", "skimage", "torch", "graphdnn.engines.cuda", "graphdnn.plan.device_plan")
    code = f"import sys, graphdnn; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.long
def test_import_time(tmp_path: Path) -> None:
    """Under 130 ms of processor time more than NumPy and pydantic's models, with bytecode; median of fresh processes."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = (
        "import time, numpy; from pydantic import BaseModel; type('Model', (BaseModel,), {})  # the first loads the rest of it\n"
        "start = time.process_time(); import graphdnn; print(time.process_time() - start)"
    )

    def seconds() -> float:
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return float(run.stdout)

    seconds()  # writes the bytecode
    assert sorted(seconds() for _ in range(7))[3] < 0.130
