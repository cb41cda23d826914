"""The generated pages are current, links between pages lead somewhere, and what is Python in them runs."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from repository import ROOT

from graphdnn import ExecutionPlan, Graph, GraphdnnError
from graphdnn.cli import parser_for


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


def _blocks(page: Path) -> list[tuple[int, str]]:
    """Line and text of each block of Python."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)
    return [(text.count("\n", 0, match.start()) + 2, match[1]) for match in found]


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_page_is_current(name: str) -> None:
    committed = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert committed == GENERATOR.PAGES[name](), f"docs/{name} is out of date: run `make docs`"


def test_figures_of_the_readme_are_current() -> None:
    assert GENERATOR.README.read_text(encoding="utf-8") == GENERATOR.readme(), "README.md: run `make docs`"


@pytest.mark.parametrize("page", sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]), ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    """As a page on GitHub has them: words of the heading with hyphens between them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]), ids=lambda p: p.name)
def test_links_into_a_page_name_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        assert anchor in _anchors(page.parent / target if target else page), f"{page.name}: {target}#{anchor}"


FOR_CONTRIBUTORS = ("architecture.md", "changing.md")
NOT_COMMITTED = "docs/_build/"
PAGES_WITH_PATHS = [
    p for p in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if p.name != "performance-log.md"
]


@cache
def _every_path() -> tuple[str, ...]:
    folders = ("graphdnn", "tests", "benchmarks", "docs", "examples")
    return tuple(f"/{path.relative_to(ROOT).as_posix()}" for top in folders for path in (ROOT / top).rglob("*"))


@pytest.mark.parametrize("page", PAGES_WITH_PATHS, ids=lambda p: p.name)
def test_paths_in_a_page_exist(page: Path) -> None:
    """A page names a file by its path from the root. Pages for contributors may leave out the first folders."""
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:graphdnn|tests|benchmarks|docs|examples)/[\w./-]*)`", text)
    missing = [path for path in paths if not path.startswith(NOT_COMMITTED) and not (ROOT / path).exists()]
    if page.name in FOR_CONTRIBUTORS:
        named = re.findall(r"`([\w./-]+/[\w.-]*|[\w-]+\.(?:py|cuh?|md))`", text)
        missing += [path for path in named if not any(one.endswith(f"/{path.rstrip('/')}") for one in _every_path())]
    assert not missing, f"{page.name} names files that do not exist"


# Python in the pages. Blocks of a page follow each other; the names that a page takes for granted are these.

HAVE_PYTHON = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if _blocks(page)]
COMPLETE = ("README.md", "tutorial.md")
NOT_RUN = {"cuda.md": "needs a GPU", "tuning.md": "takes its budget of seconds"}


@pytest.mark.parametrize("page", HAVE_PYTHON, ids=lambda p: p.name)
def test_python_in_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name == "pytorch.md":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    names = {} if page.name in COMPLETE else _taken_for_granted("h200" if page.name == "refusals.md" else None)
    for line, code in _blocks(page):
        tree = ast.parse(code, f"{page.name} from line {line}")
        _names_exist(tree)
        if page.name not in NOT_RUN:
            exec(compile(tree, f"{page.name} from line {line}", "exec"), names)


def _names_exist(tree: ast.AST) -> None:
    """What is asked of a graph or a plan is there, and takes the keywords that are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in KNOWN:
            assert hasattr(KNOWN[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


KNOWN = {"graph": Graph, "plan": ExecutionPlan}


def _taken_for_granted(device: str | None) -> dict[str, Any]:
    graph = Graph("layer", io_data_type="float32", device=device)
    x, w = graph.tensor([2, 4, 8, 8], name="x"), graph.tensor([4, 4, 3, 3], name="w")
    sums = graph.conv_fprop(x, w, padding=[1, 1])
    y = graph.relu(sums).set_output(True)
    plan = graph.build()
    data = {t.get_uid(): np.ones(t.get_dim(), np.float32) for t in (x, w, y)}
    wrong = Graph("wrong", io_data_type="float32")
    operands = wrong.tensor([2, 4, 8, 8]), wrong.tensor([4, 3, 3, 3])
    with pytest.raises(GraphdnnError) as caught:
        wrong.conv_fprop(*operands)
    return {"graph": graph, "plan": plan, "data": data, "uid": sums.get_uid(), "error": caught.value}


def _commands(page: Path) -> list[str]:
    """Of a page: lines of blocks, and words in the text, that begin with the command."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```", text, re.M | re.S))
    found = re.findall(r"^(?:\$ )?(graphdnn .*)$", blocks, re.M) + re.findall(r"`(graphdnn [^`\n]+)`", text)
    return [re.split(r"\s{2,}", command)[0] for command in found]  # a comment follows after a gap


def is_understood(words: list[str]) -> bool:
    try:
        parser_for(words).parse_args(words)
    except SystemExit as ended:
        return not ended.code
    return True


HAVE_COMMANDS = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if _commands(page)]


@pytest.mark.parametrize("page", HAVE_COMMANDS, ids=lambda p: p.name)
def test_commands_in_a_page_are_understood(page: Path) -> None:
    """Their names and options are there; what is only named is not asked for its arguments."""
    for command in _commands(page):
        words = shlex.split(command)[1:]
        if any(word for word in words[1:] if not word.startswith("-")):
            assert is_understood(words), f"{page.name}: {command}"
        else:
            assert is_understood([words[0], "--help"]), f"{page.name}: {command}"


def test_the_page_of_tests_names_what_is_there() -> None:
    here = ROOT / "tests"
    named = re.findall(r"`([\w/*]+(?:\.py)?)`", (here / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    for name in named:
        assert list(here.glob(name if name.endswith((".py", "/")) else f"{name}.py")), name
