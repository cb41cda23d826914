"""Limits of the fusion, by the tensors of the graph that is being built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphdnn.builder.attention_methods import Attention
from graphdnn.enums import shown
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.fusion import FusionLimits
from graphdnn.fusion.limits import not_written

Named = tuple[Any, ...]  # tensors, uids or names


class Limiting(Attention):
    """What was asked for, kept as it was said: uids are known when the operation graph is."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._forced: tuple[Named, ...] = ()
        self._forbidden: tuple[Named, ...] = ()
        self._bound: int | None = None

    def limit_fusion(
        self,
        force: Iterable[Sequence[Any]] = (),
        forbid: Iterable[Sequence[Any]] = (),
        bound: int | None = None,
    ) -> None:
        """Force, forbid or bound kernels, in addition to what was asked before.

        Operations are named by tensors that they write, each a tensor, its uid or its name. ``force``: sequences of
        operations that have to be one kernel. ``forbid``: pairs that are never in one kernel, or single tensors that
        never stay inside one. ``bound``: the most operations in a kernel. What cannot be is refused with the kernels,
        or here where there is a list of plans already, which then stays as it was.
        """
        before = self._forced, self._forbidden, self._bound
        self._forced += tuple(map(tuple, force))
        self._forbidden += tuple(map(tuple, forbid))
        self._bound = self._bound if bound is None else bound
        try:
            self._relimit()
        except GraphdnnError:
            self._forced, self._forbidden, self._bound = before
            raise

    def _relimit(self) -> None:
        """The limits have changed."""

    @property
    def _limits(self) -> FusionLimits:
        self.build_operation_graph()
        forced, forbidden = (
            [tuple(map(self._written, entry)) for entry in entries] for entries in (self._forced, self._forbidden)
        )
        return FusionLimits.of(forced, forbidden, self._bound)

    def _written(self, key: Any) -> int:
        uid = self._uid_of(key)
        if uid is None:
            raise BadParam(not_written(self.build_operation_graph(), "tensor", shown(key)))
        return uid
