"""The result of a CUDA engine: kernel launches and library calls in stream order.

This module uses no device. A ``DeviceKernel`` can be generated, inspected and compiled without a GPU; a plan loads it
onto a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.parameters import PackedParams
from graphdnn.operations import Operation


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    Args:
        text: The kernel text.
        entry: The name of the kernel in the text.
        grid: CTAs along x, y and z.
        block: Threads of a CTA.
        params: The struct argument.
        shared: Bytes of dynamic shared memory.
        is_cooperative: Whether CTAs synchronize with each other, so that all CTAs must be resident.
        starts_early: Whether it is a programmatic dependent launch; its kernel calls ``pdl_wait``.
        operations: The operations whose numbers the text has, if they are not the list of the fused operation.
    """

    text: KernelText
    entry: str
    grid: tuple[int, int, int]
    block: int
    params: PackedParams
    shared: int = 0
    is_cooperative: bool = False
    starts_early: bool = False
    operations: tuple[Operation, ...] = ()


def early(launch: Launch, device: DeviceSpec) -> Launch:
    """The launch as a programmatic dependent launch, if the device supports it. The kernel must call ``pdl_wait``."""
    return replace(launch, starts_early=device.compute_capability >= (9, 0))


# (addresses by uid, address of the workspace, stream) -> None; asynchronous, and without allocation
Function = Callable[[Mapping[int, int], int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """A library call on the stream. ``prepare()`` returns the call when a plan is loaded."""

    name: str
    prepare: Callable[[], Function]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """A fused operation compiled for a CUDA device."""

    name: str
    steps: tuple[Launch | LibraryCall, ...]
    workspace_bytes: int = 0  # bytes of workspace

    @property
    def source(self) -> str:
        """The texts of all launched kernels, each once."""
        texts = dict.fromkeys(step.text.text for step in self.steps if isinstance(step, Launch))
        return "\n".join(texts)
