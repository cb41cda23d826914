"""What stands for cuda.bindings.driver, where what the library says to the driver is tested."""

from __future__ import annotations

from enum import IntEnum

NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE",
         700: "CUDA_ERROR_ILLEGAL_ADDRESS", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}  # fmt: skip
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MEMORY_CLOCK_RATE": 3201000, "GLOBAL_MEMORY_BUS_WIDTH": 6144, "CLOCK_RATE": 1980000,
    "L2_CACHE_SIZE": 60 << 20, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
}  # fmt: skip
Attribute = IntEnum("Attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": i for i, name in enumerate(ATTRIBUTES)})


class FakeDriver:
    """cuda.bindings.driver with one GPU. Every answer is an attribute that a test changes."""

    CUdevice_attribute = Attribute

    def __init__(self) -> None:
        self.init, self.count, self.version, self.name = 0, 1, 13000, b"NVIDIA H200"
        self.attributes = dict(ATTRIBUTES)
        self.current: tuple[int, int] = (201, 0)
        self.answer = 0

    def CUresult(self, code: int) -> int:
        if code > 1000:
            raise ValueError(f"{code} is not a valid CUresult")
        return code

    def cuInit(self, flags: int) -> tuple[int]:
        return (self.init,)

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return self.init, self.count

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version

    def cuGetErrorName(self, code: int) -> tuple[int, bytes | None]:
        return (0, NAMES[code].encode()) if code in NAMES else (1, None)

    def cuGetErrorString(self, code: int) -> tuple[int, bytes | None]:
        return 0, b"words of the driver"

    def cuCtxGetDevice(self) -> tuple[int, int]:
        return self.current

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, size: int, device: int) -> tuple[int, bytes]:
        return 0, self.name.ljust(size, b"\0")

    def cuDeviceTotalMem(self, device: int) -> tuple[int, int]:
        return 0, 141 << 30

    def cuDeviceGetAttribute(self, attribute: Attribute, device: int) -> tuple[int, int]:
        return 0, self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        return (self.answer,)

    def cuMemGetInfo(self) -> tuple[int, int, int]:
        return self.answer, 5, 8
