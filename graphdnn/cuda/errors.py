"""CudaError: what a call into the driver answered, and what can be done about it."""

from __future__ import annotations

from typing import Any

from graphdnn.enums import Status
from graphdnn.errors import ExecutionFailed, Rejection
from graphdnn.rules import Rule

CALL = Rule(
    id="cuda.driver.call",
    expected="CUDA_SUCCESS",
    reason="the driver says: {description}",
    fix="{fix}",
    status=Status.EXECUTION_FAILED_CUDA_DRIVER,
)

# After one of these every further call in the process fails: the context is lost with all its memory.
STICKY: dict[int, str] = {
    214: "an uncorrectable memory error: reset or replace the GPU, then start a new process",
    220: "an uncorrectable NVLink error: check the link, then start a new process",
    226: "the GPU is being recovered from an error: start a new process",
    700: "a kernel read or wrote outside its tensors; start a new process, and run it under compute-sanitizer",
    702: "a kernel ran longer than the display allows; start a new process, on a GPU without a display",
    710: "a kernel's own assertion failed; start a new process",
    714: "a kernel's stack was damaged; start a new process, and run it under compute-sanitizer",
    715: "a kernel ran into an instruction that the GPU does not have; start a new process, and report it",
    716: "a kernel used an address that is not a multiple of its access; start a new process, check the alignment",
    717: "a kernel used an address of another kind of memory; start a new process, and report it",
    718: "a kernel jumped outside its code; start a new process, and run it under compute-sanitizer",
    719: "a kernel failed while it ran; start a new process, and run it under compute-sanitizer",
}
_FIXES: dict[int, str] = {
    1: "report it: the library passed a value that the driver does not take",
    2: "free memory on the device, or choose a plan with a smaller workspace",
    3: "CUDA cannot be used after a fork: start processes with the method spawn",
    4: "do not execute plans while the interpreter shuts down",
    98: "build the plan again: the kernel's module is not loaded on this device",
    200: "report it: the cubin was not taken",
    201: "make a device's context current, for instance by cupy.cuda.Device(0).use()",
    209: "build the plan for this device: the cubin is of another architecture",
    218: "report it: the cubin was not taken",
    222: "use a newer NVIDIA driver, or an older NVRTC",
    400: "pass a stream of this device that still exists",
    500: "report it: the kernel is not in its module",
    701: "report it: the kernel needs more registers or shared memory than the device has",
    720: "build the plan for this device: it has fewer multiprocessors, and blocks that wait for each other do not fit",
    800: "the device is in use by another process in exclusive mode, or forbids compute",
    900: "the call cannot be captured into a CUDA graph: build and execute the plan once before capturing",
    901: "begin the capture again: an earlier call invalidated it",
    905: "pass the stream that is being captured: the execution waits there for what made its inputs",
    906: "execute on the capturing stream, not on the default stream",
    907: "pass the stream that is being captured: the execution waits there for what made its inputs",
}
_OTHER_FIX = "look the code up in the CUDA driver documentation; report it if it comes from graphdnn"
_OUT_OF_MEMORY = 2


MEMORY = Rule(
    id="cuda.memory",
    expected="{wanted} of free memory on the device",
    reason="the device has less free memory: {detail}",
    fix="free arrays (cupy.get_default_memory_pool().free_all_blocks() returns what CuPy keeps), "
    "or choose a plan with a smaller workspace (Filters(workspace_limit=...))",
    status=Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
)
# Launches return before they run, so what is found at one may be an earlier one's.
_LATE = "of this launch or of an earlier one (GRAPHDNN_VERBOSE=1 waits for each execution, and names the one)"


class CudaError(ExecutionFailed):
    """A driver call failed. ``is_sticky``: nothing works in this process any more, so start a new one."""

    def __init__(
        self, rejections: Any, code: int = 0, name: str = "", description: str = "", kernel: str = "", plan: str = ""
    ) -> None:
        super().__init__(rejections)
        self.code = code
        self.name = name
        self.description = description
        self.kernel = kernel
        self.plan = plan

    @property
    def is_sticky(self) -> bool:
        return self.code in STICKY

    def of(self, kernel: str, plan: str) -> CudaError:
        """The same answer, where the kernel and the plan are known."""
        call = self.rejections[0].attribute
        return cuda_error(call, self.code, self.name, self.description, kernel, plan, is_late=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rejections, self.code, self.name, self.description, self.kernel, self.plan)


class OutOfMemory(CudaError, MemoryError):
    """The device has no memory left for a workspace or an array of a plan. Nothing was changed."""

    @classmethod
    def of_pool(cls, size: int, detail: str, library: str = "CuPy") -> OutOfMemory:
        """``size``: bytes that were asked for. ``detail``: the message of the library that has the pool."""
        return cls._of("CUDA device", f"{size} bytes", f"{library} says: {detail.rstrip('.')}")

    @classmethod
    def of_library(cls, library: str, call: str, name: str) -> OutOfMemory:
        """``call`` of a library that needs memory of its own answers ``name``."""
        return cls._of(library, "some 64 MiB", f"{call} answers {name}")

    @classmethod
    def _of(cls, where: str, wanted: str, detail: str) -> OutOfMemory:
        rejection = MEMORY.reject(where, "memory", wanted, wanted=wanted, detail=detail)
        return cls(rejection, _OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", detail)


def cuda_error(
    call: str, code: int, name: str, description: str, kernel: str = "", plan: str = "", *, is_late: bool = True
) -> CudaError:
    """The error of a call that answered ``code``. ``is_late``: an earlier, asynchronous launch may have caused it."""
    names = [word for word in (f"kernel {kernel}" if kernel else "", f"plan {plan}" if plan else "") if word]
    said = f"{description}, {_LATE}" if is_late and code in STICKY else description
    rejection: Rejection = CALL.reject(
        " of ".join(names) or "CUDA driver", call, f"{name} ({code})",
        status=Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED if code == _OUT_OF_MEMORY else None,
        description=said, fix=STICKY.get(code) or _FIXES.get(code, _OTHER_FIX),
    )  # fmt: skip
    return CudaError(rejection, code, name, description, kernel, plan)
