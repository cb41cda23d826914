"""CudaRuntime: what a device plan asks of CUDA: compile, load, the current stream and device, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.engines.cuda.launch import Launch
from graphdnn.errors import Rejection
from graphdnn.plan.bindings import Expected


class Prepared(Protocol):
    """A launch whose struct is filled in place."""

    params: Any  # writable bytes

    def launch(self, stream: int) -> None: ...


class Runtime(Protocol):
    """CUDA, or what stands in for it where there is none."""

    def compile(self, text: KernelText) -> bytes: ...

    def is_here(self) -> bool: ...

    def ordinal(self) -> int: ...

    def current_stream(self) -> int: ...

    def array_type(self) -> type | None: ...

    def prepare(self, launch: Launch, plan: str) -> Prepared: ...

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]: ...

    def memory(self, size: int) -> Any: ...

    def workspace_address(self, workspace: Any, size: int) -> tuple[int, Rejection | None]: ...


class CudaRuntime:
    """The real one. Kernels come from the kernel cache; a device is needed only to load them."""

    def __init__(self, device: DeviceSpec) -> None:
        from graphdnn.cuda.nvrtc import arch_of

        self._capability = device.compute_capability
        self._arch = arch_of(device.compute_capability, device.name)

    def compile(self, text: KernelText) -> bytes:
        from graphdnn.cuda.cache import default_cache

        return default_cache().load(text, self._arch).cubin

    def is_here(self) -> bool:
        """True when the current device runs what was compiled."""
        from graphdnn.cuda.driver import available
        from graphdnn.cuda.present import present_device

        return not available() and present_device().compute_capability == self._capability

    def ordinal(self) -> int:
        from graphdnn.cuda.driver import current_device

        return current_device()

    def current_stream(self) -> int:
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)

    def array_type(self) -> type | None:
        """The class of arrays that are admitted by the short way."""
        if not self.is_here():
            return None
        import cupy

        return cupy.ndarray  # type: ignore[no-any-return]

    def prepare(self, launch: Launch, plan: str) -> Prepared:
        from graphdnn.cuda import driver

        driver.make_current(self.ordinal())
        module = driver.load(self.compile(launch.text), launch.text.name)
        params = driver.aligned_buffer(len(launch.params.data))
        params[:] = launch.params.data
        function = module.function(launch.entry, launch.shared)
        block = (launch.block, 1, 1)
        return driver.PreparedLaunch(
            function, launch.grid, block, launch.shared, params, kernel=launch.text.name, plan=plan
        )

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        from graphdnn.plan.device_arrays import shadow_of

        ordinal = self.ordinal()
        pairs = [shadow_of(want, given, ordinal, stream) for want, given in zip(expected, arrays, strict=True)]
        return [s for s, _ in pairs if s is not None], [r for _, r in pairs if r is not None]

    def memory(self, size: int) -> Any:
        import cupy

        return cupy.empty(size, cupy.uint8)

    def workspace_address(self, workspace: Any, size: int) -> tuple[int, Rejection | None]:
        from graphdnn.plan.device_arrays import workspace_address

        return workspace_address(workspace, size, self.ordinal())
