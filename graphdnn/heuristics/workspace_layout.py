"""Where virtual tensors between kernels lie in the workspace."""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.fusion.views import views_of
from graphdnn.tensors import TensorSpec

WORKSPACE_ALIGNMENT = 256


def materialized_slots(fused: FusedGraph, device: DeviceSpec) -> list[tuple[TensorSpec, int]]:
    """(tensor, workspace offset) of every virtual tensor that kernels write."""
    slots, offset = [], 0
    for tensor in _materialized(fused, device):
        slots.append((tensor, offset))
        offset += _aligned(tensor.bytes)
    return slots


def materialized_bytes(fused: FusedGraph, device: DeviceSpec) -> int:
    tensors = _materialized(fused, device)
    return sum([_aligned(t.bytes) for t in tensors]) if tensors else 0


def _materialized(fused: FusedGraph, device: DeviceSpec) -> tuple[TensorSpec, ...]:
    """Kernels of a device read views where they lie; the host's take whole arrays."""
    return _beside_views(fused) if device.kind == "cuda" else _whole(fused)


@memoize
def _whole(fused: FusedGraph) -> tuple[TensorSpec, ...]:
    return fused.materialized


@memoize
def _beside_views(fused: FusedGraph) -> tuple[TensorSpec, ...]:
    tensors = fused.materialized
    views = views_of(fused) if tensors else {}
    return tuple([t for t in tensors if t.uid not in views])


def _aligned(size: int) -> int:
    return -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
