"""Bindings: variant packs with tensors, uids or names as keys, read as arrays by uid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphdnn.builder.description import UNKNOWN_KEY, Description
from graphdnn.builder.shape_inference import placed
from graphdnn.enums import Status, shown
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

NO_PACK = Rule(
    id="builder.binding.pack",
    expected="a mapping of tensors, uids or names to arrays",
    reason="an array alone does not say which tensor it is for",
    fix="pass a mapping: dict(x=array, y=out) by names",
)
AMBIGUOUS = Rule(
    id="builder.binding.ambiguous",
    expected="one array for one tensor",
    reason="{why}",
    fix="bind it once, by the tensor itself or its uid",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)


def by_uid(description: Description, variant_pack: Mapping[Any, Any]) -> dict[int, Any]:
    """The arrays of a variant pack by uid.

    Args:
        description: The described graph.
        variant_pack: ``{tensor, uid or name: array}``; keys that are None are skipped.

    Returns:
        ``{uid: array}``.

    Raises:
        BadParam: The pack is no mapping, or a key stands for no tensor, for several tensors, or for a bound tensor.
    """
    if not isinstance(variant_pack, Mapping):
        raise BadParam(NO_PACK.reject(description.where, "variant_pack", type(variant_pack).__name__))
    bindings: dict[int, Any] = {}
    found = []
    for key, value in dict(variant_pack).items():
        if key is None:
            continue
        uid = description.uid_of(key)
        if uid is None:
            named = sum(t.name == key for t in description.tensors) if isinstance(key, str) else 0
            rule = AMBIGUOUS if named else UNKNOWN_KEY
            why = f"{named} tensors have this name"
            names = dict.fromkeys(t.name for t in description.tensors if t.name and not t.is_virtual)
            known = f": {', '.join(names)}" if names else ""
            found.append(rule.reject(description.where, "variant_pack", shown(key), why=why, known=known))
        elif uid in bindings:
            why = f"uid {uid} is bound already"
            found.append(AMBIGUOUS.reject(description.where, "variant_pack", shown(key), why=why))
        else:
            bindings[uid] = value
    if found:
        raise BadParam(found)
    return bindings


def with_lines(description: Description, error: BadParam) -> BadParam:
    """The same with the lines that made the tensors: many have no name."""
    specs = description.build_operation_graph().tensors
    lines = {specs[t.uid].label(): t.origin for t in description.tensors if t.uid is not None and t.uid in specs}
    found = [replace(r, attribute=placed(r.attribute, lines.get(r.attribute, ""))) for r in error.rejections]
    made = BadParam(found)
    made.subject = error.subject
    return made
