"""Limits of the fusion, by the tensors of the graph that is being built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphdnn.builder.description import Description
from graphdnn.enums import shown
from graphdnn.errors import BadParam
from graphdnn.fusion import FusionLimits
from graphdnn.fusion.limits import not_written

Named = tuple[Any, ...]  # tensors, uids or names


class RequestedLimits:
    """The limits as the user wrote them. Uids are known only when the operation graph is built."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._forced: tuple[Named, ...] = ()
        self._forbidden: tuple[Named, ...] = ()
        self._bound: int | None = None

    def added(
        self, force: Iterable[Sequence[Any]], forbid: Iterable[Sequence[Any]], bound: int | None
    ) -> RequestedLimits:
        """These limits and further ones."""
        both = RequestedLimits(self._description)
        both._forced = (*self._forced, *map(tuple, force))
        both._forbidden = (*self._forbidden, *map(tuple, forbid))
        both._bound = self._bound if bound is None else bound
        return both

    def by_uid(self) -> FusionLimits:
        """The limits as the fusion pass takes them. This builds the operation graph."""
        self._description.build_operation_graph()
        forced, forbidden = (
            [tuple(map(self._written, entry)) for entry in entries] for entries in (self._forced, self._forbidden)
        )
        return FusionLimits.of(forced, forbidden, self._bound)

    def _written(self, key: Any) -> int:
        uid = self._description.uid_of(key)
        if uid is None:
            raise BadParam(not_written(self._description.build_operation_graph(), "tensor", shown(key)))
        return uid
