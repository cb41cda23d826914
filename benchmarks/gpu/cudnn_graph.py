"""cuDNN's graph calls through ctypes: what PyTorch does not offer of it, above all convolutions of bytes.

Names and numbers of enumerators are those of graphdnn's own face of the same calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import graphdnn.backend as names

_LIBRARY = "libcudnn.so.9"  # PyTorch has loaded it
_CANDIDATES = 8  # of the heuristics' answers, that are timed
_C_TYPES: dict[str, Any] = {
    "INT64": ctypes.c_int64, "FLOAT": ctypes.c_float, "BOOLEAN": ctypes.c_bool, "HANDLE": ctypes.c_void_p,
    "VOID_PTR": ctypes.c_void_p, "BACKEND_DESCRIPTOR": ctypes.c_void_p,
}  # fmt: skip
Descriptor = Any


def _number(name: str) -> int:
    return int(getattr(names, f"CUDNN_{name}"))


class Cudnn:
    """One handle. Every call raises with the status that is not success."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(_LIBRARY)
        self.handle = ctypes.c_void_p()
        self._check(self.library.cudnnCreate(ctypes.byref(self.handle)), "cudnnCreate")

    def _check(self, status: int, call: str) -> None:
        if status:
            raise RuntimeError(f"{call}: cuDNN status {status}")

    def created(self, kind: str) -> Descriptor:
        found = ctypes.c_void_p()
        status = self.library.cudnnBackendCreateDescriptor(_number(f"BACKEND_{kind}_DESCRIPTOR"), ctypes.byref(found))
        self._check(status, kind)
        return found

    def describe(self, kind: str, **attributes: tuple[str, Any]) -> Descriptor:
        """A finalized descriptor. ``attributes``: name without what all of the kind begin with, to (type, value)."""
        descriptor = self.created(kind)
        for name, (element, value) in attributes.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            array = (_C_TYPES.get(element, ctypes.c_int) * len(values))(*values)
            arguments = _number(f"ATTR_{name}"), _number(f"TYPE_{element}"), ctypes.c_int64(len(values)), array
            self._check(self.library.cudnnBackendSetAttribute(descriptor, *arguments), f"{kind}, {name}")
        self._check(self.library.cudnnBackendFinalize(descriptor), f"{kind}, finalize")
        return descriptor

    def configurations(self, graph: Descriptor, mode: str, most: int) -> list[Descriptor]:
        heuristics = self.describe(
            "ENGINEHEUR",
            ENGINEHEUR_OPERATION_GRAPH=("BACKEND_DESCRIPTOR", graph),
            ENGINEHEUR_MODE=("HEUR_MODE", _number(f"HEUR_MODE_{mode}")),
        )
        found = (ctypes.c_void_p * most)(*(self.created("ENGINECFG") for _ in range(most)))
        count = ctypes.c_int64()
        results = _number("ATTR_ENGINEHEUR_RESULTS"), _number("TYPE_BACKEND_DESCRIPTOR"), ctypes.c_int64(most)
        status = self.library.cudnnBackendGetAttribute(heuristics, *results, ctypes.byref(count), found)
        self._check(status, "ENGINEHEUR, results")
        return [ctypes.c_void_p(one) for one in found[: count.value]]

    def plan(self, configuration: Descriptor) -> tuple[Descriptor, int]:
        """And the bytes of its workspace."""
        plan = self.describe(
            "EXECUTION_PLAN",
            EXECUTION_PLAN_HANDLE=("HANDLE", self.handle),
            EXECUTION_PLAN_ENGINE_CONFIG=("BACKEND_DESCRIPTOR", configuration),
        )
        size, count = ctypes.c_int64(), ctypes.c_int64()
        what = _number("ATTR_EXECUTION_PLAN_WORKSPACE_SIZE"), _number("TYPE_INT64"), ctypes.c_int64(1)
        status = self.library.cudnnBackendGetAttribute(plan, *what, ctypes.byref(count), ctypes.byref(size))
        self._check(status, "EXECUTION_PLAN, workspace")
        return plan, size.value

    def execution(self, plan: Descriptor, pointers: Mapping[int, int], workspace: int) -> Callable[[Any], None]:
        """Runs the plan on a stream."""
        pack = self.describe(
            "VARIANT_PACK",
            VARIANT_PACK_UNIQUE_IDS=("INT64", list(pointers)),
            VARIANT_PACK_DATA_POINTERS=("VOID_PTR", list(pointers.values())),
            VARIANT_PACK_WORKSPACE=("VOID_PTR", workspace),
        )

        def run(stream: int) -> None:
            self._check(self.library.cudnnSetStream(self.handle, ctypes.c_void_p(stream)), "cudnnSetStream")
            self._check(self.library.cudnnBackendExecute(self.handle, plan, pack), "cudnnBackendExecute")

        return run


@cache
def cudnn() -> Cudnn:
    return Cudnn()


class ByteConvolution:
    """y = convolution of bytes, alone with int32 results, or relu(scale * it + bias) as int8 or float32."""

    def __init__(self, result: str, x: Any, w: Any, strides: Sequence[int], padding: Sequence[int], y: Any) -> None:
        self.api, self._uid = cudnn(), 0
        self.plans: list[tuple[Descriptor, int]] = []
        self.uids: dict[str, int] = {}
        is_alone = result == "int32"
        ends = {"x": self._tensor("x", x, "INT8"), "w": self._tensor("w", w, "INT8")}
        ends["y"] = self._tensor("y", y, {"int8": "INT8", "int32": "INT32", "float32": "FLOAT"}[result])
        sums = ends["y"] if is_alone else self._tensor("", y, "INT32")
        operations = [self._convolution(ends["x"], ends["w"], sums, strides, padding)]
        if not is_alone:
            channel = _Like((1, y.shape[1], 1, 1), (y.shape[1], 1, y.shape[1], y.shape[1]))
            scale, bias = self._tensor("scale", channel, "FLOAT"), self._tensor("b", channel, "FLOAT")
            scaled, moved = self._tensor("", y, "FLOAT"), self._tensor("", y, "FLOAT")
            operations += [
                self._pointwise("MUL", sums, scale, scaled),
                self._pointwise("ADD", scaled, bias, moved),
                self._pointwise("RELU_FWD", moved, None, ends["y"]),
            ]
        self.graph = self.api.describe(
            "OPERATIONGRAPH",
            OPERATIONGRAPH_HANDLE=("HANDLE", self.api.handle),
            OPERATIONGRAPH_OPS=("BACKEND_DESCRIPTOR", operations),
        )
        reasons = []
        for mode in ("A", "FALLBACK"):
            try:
                for configuration in self.api.configurations(self.graph, mode, _CANDIDATES):
                    try:
                        self.plans.append(self.api.plan(configuration))
                    except RuntimeError as error:
                        reasons.append(str(error))
            except RuntimeError as error:
                reasons.append(str(error))
            if self.plans:
                return
        raise RuntimeError(f"cuDNN has no plan: {'; '.join(sorted(set(reasons))) or 'no engine'}")

    def _tensor(self, name: str, like: Any, data_type: str) -> Descriptor:
        """Virtual without a name."""
        self._uid += 1
        if name:
            self.uids[name] = self._uid
        strides = like.stride() if callable(like.stride) else like.stride
        return self.api.describe(
            "TENSOR",
            TENSOR_UNIQUE_ID=("INT64", self._uid),
            TENSOR_DATA_TYPE=("DATA_TYPE", _number(f"DATA_{data_type}")),
            TENSOR_DIMENSIONS=("INT64", list(like.shape)),
            TENSOR_STRIDES=("INT64", list(strides)),
            TENSOR_BYTE_ALIGNMENT=("INT64", 16),
            TENSOR_IS_VIRTUAL=("BOOLEAN", not name),
        )

    def _convolution(
        self, x: Descriptor, w: Descriptor, y: Descriptor, strides: Sequence[int], padding: Sequence[int]
    ) -> Descriptor:
        settings = self.api.describe(
            "CONVOLUTION",
            CONVOLUTION_COMP_TYPE=("DATA_TYPE", _number("DATA_INT32")),
            CONVOLUTION_CONV_MODE=("CONVOLUTION_MODE", _number("CROSS_CORRELATION")),
            CONVOLUTION_SPATIAL_DIMS=("INT64", 2),
            CONVOLUTION_DILATIONS=("INT64", [1, 1]),
            CONVOLUTION_FILTER_STRIDES=("INT64", list(strides)),
            CONVOLUTION_PRE_PADDINGS=("INT64", list(padding)),
            CONVOLUTION_POST_PADDINGS=("INT64", list(padding)),
        )
        return self.api.describe(
            "OPERATION_CONVOLUTION_FORWARD",
            OPERATION_CONVOLUTION_FORWARD_X=("BACKEND_DESCRIPTOR", x),
            OPERATION_CONVOLUTION_FORWARD_W=("BACKEND_DESCRIPTOR", w),
            OPERATION_CONVOLUTION_FORWARD_Y=("BACKEND_DESCRIPTOR", y),
            OPERATION_CONVOLUTION_FORWARD_CONV_DESC=("BACKEND_DESCRIPTOR", settings),
            OPERATION_CONVOLUTION_FORWARD_ALPHA=("FLOAT", 1.0),
            OPERATION_CONVOLUTION_FORWARD_BETA=("FLOAT", 0.0),
        )

    def _pointwise(self, mode: str, x: Descriptor, b: Descriptor | None, y: Descriptor) -> Descriptor:
        settings = self.api.describe(
            "POINTWISE",
            POINTWISE_MODE=("POINTWISE_MODE", _number(f"POINTWISE_{mode}")),
            POINTWISE_MATH_PREC=("DATA_TYPE", _number("DATA_FLOAT")),
        )
        other = {} if b is None else {"OPERATION_POINTWISE_BDESC": ("BACKEND_DESCRIPTOR", b)}
        return self.api.describe(
            "OPERATION_POINTWISE",
            OPERATION_POINTWISE_PW_DESCRIPTOR=("BACKEND_DESCRIPTOR", settings),
            OPERATION_POINTWISE_XDESC=("BACKEND_DESCRIPTOR", x),
            OPERATION_POINTWISE_YDESC=("BACKEND_DESCRIPTOR", y),
            **other,
        )

    def on(self, torch: Any, tensors: Mapping[str, Any], number: int) -> Callable[[Any], None]:
        """The plan of that number on these tensors."""
        plan, size = self.plans[number]
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=tensors["y"].device)
        pointers = {uid: tensors[name].data_ptr() for name, uid in self.uids.items()}
        run = self.api.execution(plan, pointers, workspace.data_ptr())

        def call(stream: Any, _kept: Any = (workspace, dict(tensors))) -> None:
            run(stream.cuda_stream)

        return call


@dataclass(frozen=True, slots=True)
class _Like:
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def fastest(torch: Any, convolution: ByteConvolution, tensors: Mapping[str, Any]) -> int:
    """The number of the plan that took least, of those that run."""
    times: dict[int, float] = {}
    stream = torch.cuda.current_stream()
    for number in range(len(convolution.plans)):
        try:
            call = convolution.on(torch, tensors, number)
            spans = []
            for _ in range(4):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record(stream)
                call(stream)
                end.record(stream)
                end.synchronize()
                spans.append(float(start.elapsed_time(end)))
            times[number] = min(spans)
        except RuntimeError:
            continue
    if not times:
        raise RuntimeError("no plan of cuDNN runs")
    return min(times, key=lambda number: times[number])
