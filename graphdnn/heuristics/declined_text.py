"""Engines that declined as text: one line for each reason, with the engines."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from graphdnn.heuristics.engine_config import Declined
from graphdnn.text_format import plural

_WIDTH = 118
_HINT = "first reasons; every_reason=True lists all"


def declined_by_reason(declined: Sequence[Declined]) -> list[str]:
    """Lines with the first reason of each engine. Engines with the same first reason share a line.

    Engines for other kinds of operation are counted; engines for the operation are named.
    """
    lines = []
    operations = {each.operation.index: each.operation for each in declined}
    for index, operation in operations.items():
        by_reason: dict[str, list[str]] = {}
        foreign = 0
        for each in declined:
            if each.operation.index != index:
                continue
            if each.engine.is_for(operation.rule):
                by_reason.setdefault(each.rejections[0].reason, []).append(each.engine.name)
            else:
                foreign += 1
        lines.append(f"declined {operation.name} ({_HINT}):")
        for reason, engines in by_reason.items():
            lines += _wrapped(f"{reason}: {', '.join(engines)}")
        if foreign:
            lines.append(f"  {plural(foreign, 'engine')} for other kinds of operation")
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
