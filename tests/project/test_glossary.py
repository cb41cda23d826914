"""Every word of an engine's name, every knob and every rule's first word is explained in docs/glossary.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from repository import ROOT

from graphdnn.engines import ENGINES
from graphdnn.engines.renames import ENGINE_RENAMES

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def _explained() -> set[str]:
    """The first cell of each row: its terms, and the words of each term."""
    cells = re.findall(r"^\| (?!---)([^|]+) \|", PAGE, re.MULTILINE)
    terms = {term.strip(" `") for cell in cells for term in cell.split(",")}
    return terms | {word for term in terms for word in re.split(r"[ -]", term)}


EXPLAINED = _explained()


def unexplained_words(engine: str) -> list[str]:
    return [word for word in engine.split("_") if word not in EXPLAINED]


@pytest.mark.parametrize("engine", [engine.name for engine in ENGINES])
def test_words_of_engines(engine: str) -> None:
    words = unexplained_words(engine)
    assert not words, f"explain {words} in docs/glossary.md, or take a word that is there"


def test_a_coined_word_is_rejected() -> None:
    assert unexplained_words("cuda_hopper_planes") == ["planes"]
    coined = [old for old in ENGINE_RENAMES if unexplained_words(old)]
    assert len(coined) > len(ENGINE_RENAMES) / 2, "the earlier names have words that the glossary does not explain"


def test_knobs() -> None:
    assert {knob.type.name for engine in ENGINES for knob in engine.knobs} <= EXPLAINED


def test_first_words_of_rules() -> None:
    """In a process of its own: other tests define rules."""
    code = """
import importlib, json, pkgutil
import graphdnn
from graphdnn.rules import RULES
for module in pkgutil.walk_packages(graphdnn.__path__, "graphdnn."):
    needs_pytorch = module.name.startswith("graphdnn.torch.") and not module.name.endswith(".rules")
    if not module.name.endswith(("__main__", "pytest_plugin")) and not needs_pytorch:
        importlib.import_module(module.name)
print(json.dumps(sorted({rule.split(".")[0] for rule in RULES})))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    first = set(json.loads(run.stdout))
    assert len(first) > 60
    unknown = sorted(first - {engine.name for engine in ENGINES} - EXPLAINED)
    assert not unknown, f"add {unknown} to 'First words of rules' in docs/glossary.md"


def test_terms_have_one_row() -> None:
    tables = PAGE.split("## Standard terms")[0]
    cells = re.findall(r"^\| (?!---|term)([^|]+) \|", tables, re.MULTILINE)
    assert len(cells) == len(set(cells)) > 60
