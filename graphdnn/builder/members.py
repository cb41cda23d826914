"""Members of enums by their names, as element types are: ``reduction(x, "ADD")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphdnn.enums import CEnum
from graphdnn.spec import Spec


def with_members(cls: type[Spec], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec with members in place of names."""
    kinds = {name: cls.model_fields[name].annotation for name in fields if name in cls.model_fields}
    enums = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, CEnum)}
    return {name: enums[name].named(value) if name in enums else value for name, value in fields.items()}
