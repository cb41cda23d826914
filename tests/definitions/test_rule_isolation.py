"""Each reason of an engine to decline, and each guard of the fusion pass, is met by a graph that breaks only it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from requirement_cases import INSEPARABLE, NEED_CASES, TABLE, broken, engine_of, from_text, libraries
from rule_cases import RULE_CASES, StoppedError

from graphdnn.engines import ENGINES
from graphdnn.errors import GraphdnnError
from graphdnn.fusion import fusion_pass
from graphdnn.fusion.patterns.pattern import CHAIN_GUARDS, Link
from graphdnn.fusion.templates import EPILOGUE_GUARDS, PROLOGUE_GUARDS

NEEDS = tuple(dict.fromkeys(need.id for engine in ENGINES for need in engine.needs))
FAMILIES = (EPILOGUE_GUARDS, PROLOGUE_GUARDS, CHAIN_GUARDS)
GUARDS = tuple(dict.fromkeys(guard.id for family in FAMILIES for guard in family))
LIBRARIES = {"cublas": "cublas", "cufft": "cufft", "library": "cublas"}
INSEPARABLE_WHERE = "name them in INSEPARABLE of tests/support/requirement_cases.py"
WHERE = "write or change its line in tests/data/need_cases.txt, or its row in NEED_CASES of requirement_cases.py"


@pytest.mark.parametrize("rule", NEEDS)
def test_a_need_is_broken_alone(rule: str) -> None:
    found, others = set(_broken(rule)), INSEPARABLE.get(rule, ((), ""))[0]
    assert rule in found, f"the case of {rule} does not break it: {WHERE}"
    more = sorted(found - {rule, *others})
    assert not more, f"the case of {rule} breaks {more} too: change the case, or {INSEPARABLE_WHERE}"


def _broken(rule: str) -> list[str]:
    library = LIBRARIES.get(rule.rsplit(".", maxsplit=1)[-1])
    if library:
        kind = "matmul a=f32[1,64,64] b=f32[1,64,64]" if "matmul" in rule else "conv x=f32[2,64,28,28] w=f32[64,64,3,3]"
        with libraries(missing=library):
            return broken(engine_of(rule), from_text(kind, "h200")())
    with libraries():
        if rule in NEED_CASES:
            return broken(engine_of(rule), NEED_CASES[rule]())
        if rule not in RULE_CASES:
            pytest.fail(f"no case breaks {rule}: {WHERE}")
        with pytest.raises(GraphdnnError) as raised:
            RULE_CASES[rule]()
    return [rejection.rule for rejection in raised.value.rejections]


def test_the_table_has_no_old_rules() -> None:
    assert set(NEED_CASES) <= set(NEEDS)
    assert set(INSEPARABLE) <= set(NEEDS)
    rules = [line.split("|")[0].strip() for line in TABLE.read_text().splitlines() if line and line[0] != "#"]
    assert len(rules) == len(set(rules))


@pytest.mark.parametrize("rule", GUARDS)
def test_a_guard_refuses_an_edge_alone(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All guards of its family are asked about each edge that it stops; on one of them nothing else stops it."""
    stopped: list[Any] = []
    note = fusion_pass._Walk._note

    def noted(walk: Any, guard: Any, subject: Any, *rest: Any) -> bool:
        refused = note(walk, guard, subject, *rest)
        if refused and guard.id == rule:
            families = [CHAIN_GUARDS] if isinstance(subject, Link) else FAMILIES[:2]
            for family in families:
                if guard in family:
                    with suppress(KeyError):  # a guard of the other family looks at what is not there
                        stopped.append([g.id for g in family if not g.holds(subject)])
        return refused

    monkeypatch.setattr(fusion_pass._Walk, "_note", noted)
    with pytest.raises(StoppedError) as raised:
        RULE_CASES[rule]()
    assert rule in raised.value.rules
    assert [rule] in stopped
