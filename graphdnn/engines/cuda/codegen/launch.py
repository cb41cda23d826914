"""The result of a CUDA engine: kernel launches and library calls in stream order.

Nothing here touches a device. A ``DeviceKernel`` can be made, looked at and compiled
anywhere; the plan loads it when there is a device to run on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.parameters import Packed
from graphdnn.operations import Operation


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch with its struct argument."""

    text: KernelText
    entry: str
    grid: tuple[int, int, int]
    block: int  # threads of a CTA
    params: Packed
    shared: int = 0  # bytes of dynamic shared memory
    is_cooperative: bool = False  # CTAs synchronize with each other, so all of them must be resident
    starts_early: bool = False  # programmatic dependent launch; the kernel calls pdl_wait
    operations: tuple[Operation, ...] = ()  # what its text numbers, where not the list of the fused operation


def early(launch: Launch, device: DeviceSpec) -> Launch:
    """A launch whose kernel calls pdl_wait: it starts while the previous one finishes, on devices that support it."""
    return replace(launch, starts_early=device.compute_capability >= (9, 0))


# (uid -> address, address of the scratch memory, stream) -> None; asynchronous and without allocation
Function = Callable[[Mapping[int, int], int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """A library call on the stream; ``prepare()`` runs when the plan is loaded and returns the call."""

    name: str
    prepare: Callable[[], Function]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """A fused operation compiled for a CUDA device."""

    name: str
    steps: tuple[Launch | LibraryCall, ...]
    scratch: int = 0  # bytes of workspace

    @property
    def source(self) -> str:
        """The texts of all kernels that it launches, each once."""
        texts = dict.fromkeys(step.text.text for step in self.steps if isinstance(step, Launch))
        return "\n".join(texts)
