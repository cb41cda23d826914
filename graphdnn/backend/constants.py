"""Every C enumerator name as a module constant: ``CUDNN_ATTR_TENSOR_DIMENSIONS``, ``CUDNN_DATA_HALF``, ...

The names come from the enums, aliases included, so there is no second list to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphdnn import attribute_names, enums
from graphdnn.enums import CEnum, c_members


def _enums() -> list[type[CEnum]]:
    found = (*vars(enums).values(), attribute_names.AttributeName)
    return [e for e in found if isinstance(e, type) and issubclass(e, CEnum) and e is not CEnum]


def _constants() -> dict[str, CEnum]:
    result: dict[str, CEnum] = {}
    for enum in _enums():
        members = c_members(enum)
        assert not result.keys() & members.keys(), f"{enum.__name__} repeats a C name"
        result |= members
    return result


CONSTANTS: dict[str, CEnum] = _constants()
globals().update(CONSTANTS)
__all__ = list(CONSTANTS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> CEnum: ...
