"""The process that builds, runs and times candidates: ``main([INITIALIZER])``, started by ``worker_process``.

It answers one message after another (``protocol``) and does nothing on its own, so that whatever a
candidate does to it ends with this process. The tuner starts it, watches the clock, and ends it.

INITIALIZER names a module that is imported first, and whose ``register()`` is called: the way to bring engines of
one's own into the process. Only the caller of ``autotune`` can name one; no file and no database does.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from graphdnn.analysis.random_operands import REPEATED, blended, fill, poisoned, random_operands
from graphdnn.device.profiles import DeviceSpec, device_from_json
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.engines.host.memory import as_it_lies, axes_of, empty
from graphdnn.files import config_from_dict, graph_from_dict, guarded
from graphdnn.plan import ExecutionPlan, class_of
from graphdnn.tensors import TensorSpec
from graphdnn.tuning.workers.message_loop import serve
from graphdnn.tuning.workers.protocol import Message

if TYPE_CHECKING:
    from graphdnn.tuning.workers.device_digests import Fingerprints
    from graphdnn.tuning.workers.device_gather import DeviceGather

GARBAGE = 0xFF  # what workspaces and floating results are filled with: NaN, or -1
LARGE = 0x7F  # and whole results: no small numbers
_WARM = 2  # executions before the timed ones


class Bench:
    """One graph on one device, with its operands and the plans that were built for it."""

    def __init__(self, message: Message) -> None:
        self.device: DeviceSpec = device_from_json(message["device"])
        self.graph = guarded(lambda: graph_from_dict(message["graph"]))
        _choose(message.get("ordinal"))
        class_of(self.device.kind).prepare(self.device)
        is_host = self.device.kind == "cpu"  # elsewhere results are garbage of the device's own
        self.host = random_operands(self.graph, message["seed"], distinct=REPEATED, outputs=is_host)
        self.before = blended(self.graph, self.host)
        self.arrays: dict[int, Any] = {}
        self.plans: dict[int, tuple[ExecutionPlan, Any]] = {}
        self.repeated: dict[int, Any] = {}  # key -> what executes its plan once
        self._checked: ExecutionPlan | None = None  # whose results the arrays hold
        self._fetched: dict[int, Array] = {}  # those of them that were copied to the host
        self._prints: Fingerprints | None = None  # where the arrays are on a device
        self._picked: DeviceGather | None = None
        self._untouched: dict[int, int] = {}  # uid of an input -> its fingerprint

    def build(self, key: int, entries: Message) -> tuple[Message, bytes]:
        start = perf_counter()
        plan = ExecutionPlan(guarded(lambda: config_from_dict(entries, self.device)))
        plan.load()
        if not self.arrays:
            self.arrays = self._copies() if self.device.kind == "cpu" else self._on_device(plan)
        workspace = plan.new_workspace()
        seconds = perf_counter() - start
        mark = _fingerprint(plan)
        self.plans[key] = plan, workspace
        return {"seconds": seconds, "workspace": plan.workspace_size, "kernels": _launches(plan), "mark": mark}, b""

    def check(self, key: int) -> tuple[Message, bytes]:
        """One execution on outputs and a workspace full of garbage."""
        plan, workspace = self.plans[key]
        for spec in self.graph.outputs:
            self._spoil(plan, spec)
        if workspace is not None:
            fill(workspace, GARBAGE, workspace.nbytes)
        (seconds,) = _times(plan, lambda: plan.execute(self.arrays, workspace), 1)
        self._checked, self._fetched = plan, {}
        altered, digest = self._seen() if self._prints is None else self._fingerprinted(self._prints)
        return {"seconds": seconds, "digest": digest, "altered": altered}, b""

    def _seen(self) -> tuple[list[int], str]:
        """Inputs that were written to, and a digest of the results, from what lies in host memory."""
        altered = [t.uid for t in self._arrays_read() if not _same_bits(self.arrays[t.uid], self.host[t.uid])]
        digest = hashlib.sha256()
        for spec in self.graph.outputs:
            digest.update(_bytes(self.arrays[spec.uid]))
        return altered, digest.hexdigest()

    def _fingerprinted(self, prints: Fingerprints) -> tuple[list[int], str]:
        """The same where the arrays are on a device."""
        read, written = self._arrays_read(), self.graph.outputs
        found = prints.of([(self.arrays[t.uid].data.ptr, t.bytes) for t in (*read, *written)])
        altered = [t.uid for t, number in zip(read, found, strict=False) if number != self._untouched[t.uid]]
        return altered, "-".join(f"{number:016x}" for number in found[len(read) :])

    def outputs(self, axes: list[int | None], kept: list[int]) -> tuple[Message, bytes]:
        """What the last checked execution wrote; of each result the slices ``kept`` along its one of ``axes``."""
        assert self._checked is not None
        found = zip(self.graph.outputs, axes, strict=True)
        parts = [self._result(self._checked, spec, axis, kept) for spec, axis in found]
        return {"sizes": [len(part) for part in parts]}, b"".join(parts)

    def _result(self, plan: ExecutionPlan, spec: TensorSpec, axis: int | None, kept: list[int]) -> bytes | memoryview:
        array = self.arrays[spec.uid]
        if axis is not None and self._picked is not None and as_it_lies(array).flags.c_contiguous:
            return self._picked.of(array, axis, kept).data
        if spec.uid not in self._fetched:
            self._fetched |= plan.to_host({spec.uid: array})
        whole = self._fetched[spec.uid]
        if axis is None:
            return _bytes(whole)
        return np.take(as_it_lies(whole), kept, axes_of(whole).index(axis)).tobytes()

    def time(self, key: int, calls: int, samples: int, *, is_warmed: bool) -> tuple[Message, bytes]:
        """Seconds of an execution, for each sample the mean of ``calls`` that follow each other."""
        plan, workspace = self.plans[key]
        warm = 0 if not is_warmed else 1 if key in self.repeated else _WARM
        if key not in self.repeated:
            self.repeated[key] = self._repeatable(plan, workspace)
        call = self.repeated[key]
        start = perf_counter()
        for _ in range(warm):
            call()

        def batch() -> None:
            for _ in range(calls):
                call()

        times = [seconds / calls for seconds in _times(plan, batch, samples)]
        return {"times": times, "seconds": perf_counter() - start}, b""

    def drop(self, key: int) -> None:
        self.plans.pop(key, None)
        self.repeated.pop(key, None)

    def _repeatable(self, plan: ExecutionPlan, workspace: Any) -> Any:
        """An execution as one call: of a CUDA graph where the plan can be captured."""
        arrays = self.arrays
        if self.device.kind == "cuda":
            with contextlib.suppress(Exception):  # a library that cannot be captured is called
                return plan.capture(arrays, workspace).launch
        return lambda: plan.execute(arrays, workspace)

    def _on_device(self, plan: ExecutionPlan) -> dict[int, Any]:
        arrays = plan.to_device(self.host)
        arrays |= {t.uid: plan.new_array(t) for t in self.graph.outputs if t.uid not in arrays}
        self._prints, self._picked = _kernels(self.device)
        if self._prints is not None:
            read = self._arrays_read()
            found = self._prints.of([(arrays[t.uid].data.ptr, t.bytes) for t in read])
            self._untouched = {t.uid: number for t, number in zip(read, found, strict=True)}
        return arrays

    def _copies(self) -> dict[int, Any]:
        """The operands again, for plans to work on."""
        copies = dict(self.host)
        for spec in self.graph.bound:
            if not spec.is_by_value:
                copies[spec.uid] = empty(spec)
                copies[spec.uid][...] = self.host[spec.uid]
        return copies

    def _arrays_read(self) -> list[TensorSpec]:
        return [t for t in self.graph.inputs if not t.is_by_value]

    def _spoil(self, plan: ExecutionPlan, spec: TensorSpec) -> None:
        """Garbage in place of a result; what beta reads gets its old values."""
        old = self.before.get(spec.uid)
        array = self.arrays[spec.uid]
        if isinstance(array, np.ndarray):
            array[...] = poisoned(spec) if old is None else old
        elif old is None:
            fill(array, GARBAGE if ELEMENTS[spec.data_type].kind == "float" else LARGE, spec.bytes)
        else:
            array.data.copy_from_device_async(plan.to_device({spec.uid: old})[spec.uid].data, spec.bytes)


def _kernels(device: DeviceSpec) -> tuple[Fingerprints | None, DeviceGather | None]:
    """Where arrays are on a device. Asked for with the first plan: theirs were compiled ahead by then."""
    from graphdnn.cuda.driver_api import available

    if device.kind == "cpu" or available():  # which says why there is no driver
        return None, None
    from graphdnn.plan.cuda_runtime import CudaRuntime
    from graphdnn.tuning.workers.device_digests import Fingerprints
    from graphdnn.tuning.workers.device_gather import DeviceGather

    runtime = CudaRuntime(device)
    return Fingerprints(runtime, device), DeviceGather(runtime, device)


def _times(plan: ExecutionPlan, call: Callable[[], None], repeat: int) -> list[float]:
    """Seconds of each of several calls, on the device where there is one; all work has ended when this returns."""
    timings = getattr(plan, "timings", None)  # of plans for a device
    if timings is not None:
        return [float(seconds) for seconds in timings(call, repeat)]
    found = []
    for _ in range(repeat):
        start = perf_counter()
        call()
        found.append(perf_counter() - start)
    return found


def _launches(plan: ExecutionPlan) -> int:
    """Kernels and library calls of an execution."""
    return sum(len(getattr(kernel, "steps", (kernel,))) for kernel in plan.compiled)


def _fingerprint(plan: ExecutionPlan) -> str | None:
    """Equal for plans that launch the same kernels in the same way; None where that cannot be told."""
    if plan.config.device.kind == "cpu":
        return None
    from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch

    parts: list[object] = []
    for kernel in plan.compiled:
        assert isinstance(kernel, DeviceKernel)
        for step in kernel.steps:
            if not isinstance(step, Launch):
                return None
            parts.append((step.text.text, step.entry, step.grid, step.block, bytes(step.params.data), step.shared))
            parts.append((step.is_cooperative, step.starts_early))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _same_bits(one: Array, other: Array) -> bool:
    """NaNs and all; the fast way where the arrays lie without gaps."""
    one, other = as_it_lies(one), as_it_lies(other)
    if one.flags.c_contiguous and other.flags.c_contiguous:
        return bool(np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)))
    return one.tobytes() == other.tobytes()


def _bytes(array: Array) -> bytes | memoryview:
    """Elements in the order of memory; without a copy where there are no gaps."""
    lying = as_it_lies(array)
    return lying.reshape(-1).view(np.uint8).data if lying.flags.c_contiguous else lying.tobytes()


def _warm(device: DeviceSpec, ordinal: int | None) -> None:
    """Load what will be wanted, before there is anything to do with it."""
    import_module("graphdnn.engines")
    _choose(ordinal)
    class_of(device.kind).prepare(device)


def _choose(ordinal: int | None) -> None:
    if ordinal is not None:
        import cupy

        cupy.cuda.Device(ordinal).use()


def _limit_memory(limit: int | None) -> None:
    """Let the process grow by ``limit`` bytes from here, where the system can hold it to that; None: as it likes."""
    try:
        import resource
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        most = resource.RLIM_INFINITY
        if limit is not None:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            most = pages * resource.getpagesize() + limit
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


class Service:
    """Messages to what they ask for."""

    def __init__(self) -> None:
        self.bench: Bench | None = None

    def answer(self, message: Message) -> tuple[Message, bytes]:
        do = message["do"]
        if do == "warm":
            _warm(device_from_json(message["device"]), message.get("ordinal"))
            return {}, b""
        if do == "open":
            self.bench = None
            _limit_memory(None)
            self.bench = Bench(message)
            if self.bench.device.kind == "cpu":  # CUDA reserves addresses far beyond what it uses
                _limit_memory(message["memory"])
            if not gc.isenabled():  # what is loaded by now stays
                gc.freeze()
                gc.enable()
            return {}, b""
        if do == "close":
            self.bench = None
            return {"closed": message["key"]}, b""
        bench = self.bench
        assert bench is not None
        if do == "build":
            return bench.build(message["key"], message["config"])
        if do == "check":
            return bench.check(message["key"])
        if do == "outputs":
            return bench.outputs(message["axes"], message["kept"])
        if do == "time":
            return bench.time(message["key"], message["calls"], message["samples"], is_warmed=message["warm"])
        assert do == "drop"
        bench.drop(message["key"])
        return {}, b""

    def still_works(self) -> bool:
        """After an error: a device may refuse everything from then on."""
        if self.bench is None or self.bench.device.kind == "cpu":
            return True
        try:
            from graphdnn.cuda import driver_api

            driver_api.synchronize(0)
        except Exception:  # whatever it is, this process is of no more use
            return False
        return True


def main(arguments: list[str]) -> None:
    for name in arguments:
        import_module(name).register()
    serve(Service())
