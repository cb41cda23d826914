"""Every rule can be raised, says everything it has to say, and no rule is raised that is not in the table."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from string import Formatter

import pytest
from rule_cases import RULE_CASES, StoppedError

import graphdnn
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.rules import RULES, Rule

# Modules with a table of their own prove their rules in their own test files.
FACES = (
    "builder.",
    "problem.",
    "cli.",
    "cuda.bindings",
    "cuda.capability",
    "cuda.cupy",
    "cuda.device.",
    "cuda.driver.",
    "cuda.memory",
    "cuda.nvrtc.",
)
ELSEWHERE = {
    "attr.not_supported": "test_backend_protocol",
    "host.memory": "test_far_numbers",
}


def _needs_pytorch(module: str) -> bool:
    return module.startswith("graphdnn.torch.") and not module.endswith(".rules")


def _import_everything() -> None:
    for module in pkgutil.walk_packages(graphdnn.__path__, "graphdnn."):
        if module.name.split(".")[1] not in ("__main__",) and not _needs_pytorch(module.name):
            importlib.import_module(module.name)


def _core() -> set[str]:
    """The rules that `import graphdnn` brings along; the faces prove theirs in their own test files."""
    lazy = "graphdnn.plan.device_plan, graphdnn.plan.cuda_graph, graphdnn.engines.cuda.codegen.requirements"  # loaded with device plans
    code = f"import graphdnn, {lazy}; from graphdnn.rules import RULES; print(*RULES)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {id for id in run.stdout.split() if not id.startswith(FACES)}


CORE = _core()
_import_everything()


def test_every_core_rule_has_a_case() -> None:
    missing = CORE - set(RULE_CASES) - set(ELSEWHERE)
    assert not missing, f"no case raises {sorted(missing)}"
    assert set(RULE_CASES) <= set(RULES), f"unknown rules {sorted(set(RULE_CASES) - set(RULES))}"
    print(f"{len(RULE_CASES)} of {len(RULES)} rules raised here, the rest in the tests of their modules")


@pytest.mark.parametrize("id", RULE_CASES)
def test_rule_is_raised(id: str) -> None:
    try:
        RULE_CASES[id]()
    except StoppedError as stopped:
        assert id in stopped.rules, f"stopped by {stopped.rules}"
    except GraphdnnError as error:
        mine = [r for r in error.rejections if r.rule == id]
        assert mine, f"raised {[r.rule for r in error.rejections]} instead"
        for rejection in mine:
            _complete(rejection)
        assert int(error.status) // 1000 in (1, 2, 3, 5)
    else:
        pytest.fail(f"nothing refused {id}")


def _complete(rejection: Rejection) -> None:
    """Where, attribute, value, expected, reason, fix, status: all there and in their places, no placeholder left open."""
    for field in ("rule", "where", "attribute", "expected", "reason", "fix"):
        text = getattr(rejection, field)
        assert isinstance(text, str)
        assert text, f"{rejection.rule} has no {field}"
        assert "{" not in text or field in ("expected",), f"{rejection.rule}: {field} = {text}"
    assert re.match(r"[A-Z][A-Z_0-9]+\b|engine ", rejection.where), f"{rejection.rule}: where = {rejection.where}"
    assert not re.match(r"(?!CUDNN)[A-Z]{2}|engine ", rejection.attribute), f"{rejection.rule}: {rejection.attribute}"
    text = str(rejection)
    assert rejection.rule in text
    assert rejection.status.c_name in text
    assert rejection.to_json()["code"] == int(rejection.status)


@pytest.mark.parametrize("id", sorted(RULES))
def test_rule_texts(id: str) -> None:
    """Ids are lower case with dots; reason and fix say something and end without a full stop."""
    rule = RULES[id]
    assert id == id.lower()
    assert "." in id
    for text in (rule.reason, rule.fix):
        assert len(text) >= 5
        assert not text.endswith(".")
        list(Formatter().parse(text))


@pytest.mark.parametrize("id", sorted(RULES))
def test_no_text_raises_an_error_of_its_own(id: str) -> None:
    """With every slot that its texts have. A slot with an attribute, a conversion or a number would depend on the word."""
    rule = RULES[id]
    texts = {"expected": rule.expected, "reason": rule.reason, "fix": rule.fix}
    slots = {name for text in texts.values() for _, name, *_ in Formatter().parse(text) if name is not None}
    assert all(slot.isidentifier() for slot in slots), slots
    rejection = rule.reject("WHERE", "attribute", "value", **{slot: f"<{slot}>" for slot in slots})
    for name, text in texts.items():
        said = getattr(rejection, name)
        assert all(f"<{slot}>" in said for _, slot, *_ in Formatter().parse(text) if slot is not None)


def test_every_rejection_fills_the_slots_of_its_rule() -> None:
    """A call of ``RULE.reject`` that leaves a slot out is Python's KeyError for whoever made the mistake."""
    found, missing = 0, []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if not (module.__name__.startswith("graphdnn.") and path.endswith(".py")):
            continue
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reject"
            rule = (
                getattr(module, node.func.value.id, None) if is_call and isinstance(node.func.value, ast.Name) else None
            )
            if not isinstance(rule, Rule) or any(keyword.arg is None for keyword in node.keywords):
                continue
            texts = (rule.expected, rule.reason, rule.fix)
            slots = {name for text in texts for _, name, *_ in Formatter().parse(text) if name is not None}
            found += 1
            missing += [f"{path}:{node.lineno} {rule.id} {slot}" for slot in slots - {k.arg for k in node.keywords}]
    assert found > 300
    assert not missing
