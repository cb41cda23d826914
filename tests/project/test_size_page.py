"""The table of lines by package counts every file of the package once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from repository import ROOT


def _size() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_size", ROOT / "docs" / "size.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SIZE = _size()


def test_lines_and_files_of_a_tree(tmp_path: Path) -> None:
    root = tmp_path / "graphdnn"
    files = {
        "a.py": 3, "fusion/b.py": 4, "fusion/patterns/c.py": 5, "engines/d.py": 6, "engines/cuda/norm/e.py": 7,
        "engines/cuda/norm/e.cu": 8, "engines/cuda/norm/sub/f.cuh": 9, "fusion/notes.md": 10,
    }  # fmt: skip
    for name, lines in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n" * lines, encoding="utf-8")
    assert SIZE.sizes(root) == {
        "graphdnn": (3, 0, 1),
        "graphdnn/engines": (6, 0, 1),
        "graphdnn/engines/cuda/norm": (7, 17, 3),
        "graphdnn/fusion": (9, 0, 2),
    }


def test_every_file_of_the_package_is_counted_once() -> None:
    paths = [path for suffix in ("py", "cu", "cuh") for path in (ROOT / "graphdnn").rglob(f"*.{suffix}")]
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in paths)
    counted = SIZE.sizes().values()
    assert sum(files for *_, files in counted) == len(paths)
    assert sum(python + cuda for python, cuda, _ in counted) == lines
