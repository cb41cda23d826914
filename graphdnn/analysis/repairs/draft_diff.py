"""What differs between two drafts, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphdnn.analysis.repairs.graph_draft import Draft, is_reference
from graphdnn.enums import shown
from graphdnn.tensors import TensorSpec


def changes(before: Draft, after: Draft) -> tuple[str, ...]:
    """One line for each field that differs."""
    found = []
    for key, entry in after.tensors.items():
        old = before.tensors.get(key)
        if old is None:
            found.append(f"new tensor {after.tensor_label(key)}: {_words(entry)}")
        elif old != entry:
            label = before.tensor_label(key)
            found += [f"{label}: {line}" for line in _field_changes(old, entry, TensorSpec)]
    for index, op in enumerate(after.operations):
        old = before.operations[index] if index < len(before.operations) else {}
        if old != op:
            found += [f"{after.label(index)}: {line}" for line in _field_changes(old, op, after.cls(index))]
    removed = len(before.operations) - len(after.operations)
    return (*found, *([f"{removed} operation less"] if removed > 0 else []))


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any], cls: Any, prefix: str = "") -> Iterator[str]:
    fields = getattr(cls, "model_fields", {})
    for name in dict.fromkeys((*old, *new)):
        known = fields.get(name)
        default = "unset" if known is None or known.is_required() else known.default
        a, b = old.get(name, default), new.get(name, default)
        if isinstance(a, dict) and isinstance(b, dict) and not is_reference(b):
            yield from _field_changes(a, b, known.annotation if known else None, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name} {_words(a)} -> {_words(b)}"


def _words(value: Any) -> str:
    if is_reference(value):
        return f"tensor {value['tensor']}"
    if isinstance(value, list):
        return shown(tuple(_words(v) if isinstance(v, dict) else v for v in value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items() if name != "uid")
    return shown(value) if type(value) is tuple else str(value)
