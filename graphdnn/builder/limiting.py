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
        """Force, forbid or bound kernels, in addition to earlier limits.

        An operation is named by a tensor that it writes: the tensor, its uid or its name.

        Args:
            force: Sequences of operations; each sequence has to be one kernel.
            forbid: Pairs of operations that are never in one kernel, or single tensors that always have memory.
            bound: The most operations in a kernel. None leaves the earlier bound.

        Raises:
            BadParam: An entry names no operation of the graph.
            NotSupported: The graph has a list of plans, and no fusion satisfies the limits. The earlier limits then
                stay.
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
