"""Notes on kernels that compute a rewritten operation, for certificates and traces."""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.heuristics import EngineConfig


def rewrite_notes(config: EngineConfig) -> Iterator[str]:
    """One line for each kernel of a configuration whose engine applies a rewrite."""
    for choice in config.choices:
        rewrite = choice.rewrite
        if rewrite is not None:
            yield f"{choice.task.op.name}: {rewrite.lines()[0]}"
