"""The benchmark's calls of cuDNN, on graphdnn's own face of the same calls."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from gpu import cudnn_graph
from gpu.layers import Layer

from graphdnn import backend

torch = pytest.importorskip("torch")
LAYER = Layer("small", 2, 16, 7, 6, 24, 3, 3, 2, 1)


class Library:
    """The C calls, with numbers for descriptors."""

    def __init__(self) -> None:
        self.handle = backend.cudnnCreate()
        self.made: list[Any] = []

    def _of(self, number: Any) -> Any:
        return self.made[(number.value if isinstance(number, ctypes.c_void_p) else number) - 1]

    def cudnnCreate(self, handle: Any) -> int:
        handle._obj.value = 1
        return 0

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        return 0

    def cudnnBackendCreateDescriptor(self, kind: int, to: Any) -> int:
        self.made.append(backend.cudnnBackendCreateDescriptor(kind))
        to._obj.value = len(self.made)
        return 0

    def cudnnBackendSetAttribute(self, descriptor: Any, name: int, element: int, count: Any, array: Any) -> int:
        assert count.value == len(array)
        values = list(array)
        if element == backend.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            values = [self._of(value) for value in values]
        elif element == backend.CUDNN_TYPE_HANDLE:
            values = [self.handle]
        backend.cudnnBackendSetAttribute(self._of(descriptor), name, element, len(values), values)
        return 0

    def cudnnBackendFinalize(self, descriptor: Any) -> int:
        backend.cudnnBackendFinalize(self._of(descriptor))
        return 0

    def cudnnBackendGetAttribute(
        self, descriptor: Any, name: int, element: int, most: Any, count: Any, array: Any
    ) -> int:
        if element == backend.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            into = [self._of(value) for value in array]
            found, _ = backend.cudnnBackendGetAttribute(self._of(descriptor), name, element, most.value, into)
            count._obj.value = min(found, most.value)
        else:
            count._obj.value, (array._obj.value,) = backend.cudnnBackendGetAttribute(
                self._of(descriptor), name, element, most.value
            )
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        backend.cudnnBackendExecute(self.handle, self._of(plan), self._of(pack))
        return 0


@pytest.mark.parametrize("result", ["int8", "float32", "int32"])
def test_a_convolution_of_bytes(result: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ctypes.CDLL
    fake = lambda name, **options: Library() if "cudnn" in str(name) else real(name, **options)
    monkeypatch.setattr(cudnn_graph.ctypes, "CDLL", fake)
    cudnn_graph.cudnn.cache_clear()
    torch.manual_seed(0)
    x, w = (
        torch.randint(-128, 128, dims, dtype=torch.int8).contiguous(memory_format=torch.channels_last)
        for dims in (LAYER.x_dims, LAYER.w_dims)
    )
    y = torch.empty(LAYER.y_dims, dtype=getattr(torch, result)).contiguous(memory_format=torch.channels_last)
    scale, b = (torch.rand(1, LAYER.k, 1, 1) for _ in range(2))
    made = cudnn_graph.ByteConvolution(result, x, w, [LAYER.stride] * 2, [LAYER.padding] * 2, y)
    for number in range(len(made.plans)):
        y.zero_()
        stream = type("Stream", (), {"cuda_stream": 0})
        made.on(torch, {"x": x, "w": w, "scale": scale * 0.002, "b": b, "y": y}, number)(stream)
        sums = torch.nn.functional.conv2d(x.double(), w.double(), None, LAYER.stride, LAYER.padding)
        if result != "int32":
            sums = (sums.float() * (scale * 0.002) + b).relu()
        expected = sums.round().clamp(max=127) if result == "int8" else sums
        assert torch.equal(y.double(), expected.double())
    cudnn_graph.cudnn.cache_clear()
