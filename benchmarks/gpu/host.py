"""Host time: what a call, a replay and a build cost the processor, while the GPU has next to nothing to do."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import plan_building

from gpu.buffers import BufferSet, allocate, fill
from gpu.contest import brief, precision
from gpu.convolutions import fused_problem
from gpu.device import Call, Device
from gpu.layers import Layer
from gpu.options import Options
from gpu.problem import Case, Group, Problem
from gpu.result import PeerResult, Result
from gpu.timing import Timed
from graphdnn import ExecutionPlan, OperationGraph, build

TINY = Layer("tiny", 1, 16, 8, 8, 16, 3, 3, 1, 1)
CORES = 16  # of the host's that are tried, about
CALLS = 100  # in one measurement; a stream takes many more before it makes the host wait
NEW = 64  # sets of arrays: more than a plan knows
BUILDS = 10
FRESH_BUILDS = 3
FRESH_LIMIT = 120  # seconds

Step = Callable[[Device, Options, Result], None]


def tiny_graph() -> OperationGraph:
    """Convolution, bias and ReLU in fp16: four bound tensors."""
    return graph_of(TINY)


def graph_of(layer: Layer) -> OperationGraph:
    return fused_problem(layer, "f16").graph


def measure(group: Group, case: Case, device: Device, options: Options) -> Result:
    """Never raises, short of what ends the process."""
    result = Result(group.name, case.name, note=case.note, host=True)
    start = time.perf_counter()
    try:
        with precision(device.torch, tf32=False), device.active():
            case.describe()(device, options, result)
        result.status = "ok"
    except Exception as error:
        result.status, result.reason = "failed", brief(error)
    result.seconds = time.perf_counter() - start
    return result


def in_turns(calls: Mapping[str, Call], device: Device, repeats: int, count: int = CALLS) -> dict[str, Timed]:
    """Host microseconds of one call, in alternating series on one core."""
    for call in calls.values():
        call()
    device.synchronize()
    times: dict[str, list[float]] = {name: [] for name in calls}
    with _on_fastest_core(lambda: sum(_series(call, device, count) for call in calls.values())):
        for _ in range(repeats):
            for name, call in calls.items():
                times[name].append(_series(call, device, count))
    return {name: _timed(values, count) for name, values in times.items()}


def _series(call: Call, device: Device, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    us = (time.perf_counter() - start) * 1e6 / count
    device.synchronize()
    return us


@contextlib.contextmanager
def _on_fastest_core(measured: Callable[[], float]) -> Iterator[None]:
    """Keeps this thread on the core where all contestants together take least: cores of one host differ by a third, and
    one that changes between them measures where it was, not what it called.
    """
    if not hasattr(os, "sched_setaffinity"):  # systems that leave no choice
        yield
        return
    allowed = os.sched_getaffinity(0)
    tried = sorted(allowed)[:: max(1, len(allowed) // CORES)]
    found: list[tuple[float, int]] = []
    try:
        for core in tried:
            os.sched_setaffinity(0, {core})
            found.append((min(measured() for _ in range(2)), core))
        os.sched_setaffinity(0, {min(found)[1]})
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _timed(us: list[float], count: int) -> Timed:
    return Timed(statistics.median(us), min(us), max(us), len(us), count, captured=False)


def _ready(device: Device, result: Result) -> tuple[Problem, BufferSet, Call]:
    """The tiny problem with its memory, and the call of its plan."""
    problem = fused_problem(TINY, "f16")
    buffers = allocate(problem, device)
    fill(problem, buffers, device, 0)
    plan = build(problem.graph, device.engine_device)
    result.plan, result.workspace = plan.name, plan.workspace_size
    return problem, buffers, _execute(plan, buffers)


def _execute(plan: ExecutionPlan, buffers: BufferSet) -> Call:
    bindings, workspace = buffers.bindings, plan.new_workspace()
    return lambda: plan.execute(bindings, workspace)


def _peers(problem: Problem, buffers: BufferSet, device: Device, result: Result) -> dict[str, Call]:
    """Those that work here; the others leave their reason in the result."""
    calls: dict[str, Call] = {}
    for peer in problem.peers:
        found = PeerResult(peer.label, peer.part)
        result.peers.append(found)
        try:
            call = peer.prepare(device.torch, buffers.tensors)
            call()
            device.synchronize()
            calls[peer.label] = call
        except Exception as error:
            found.error = brief(error)
    return calls


def _file(times: dict[str, Timed], result: Result) -> None:
    result.ours = times["ours"]
    for peer in result.peers:
        peer.time = times.get(peer.label)


def execute(device: Device, options: Options, result: Result) -> None:
    problem, buffers, ours = _ready(device, result)
    _file(in_turns({"ours": ours, **_peers(problem, buffers, device, result)}, device, options.repeats), result)


def execute_other_arrays(sets: int, device: Device, options: Options, result: Result) -> None:
    """Every call gets arrays that are not the last call's; ``sets`` of them take turns."""
    problem, _, _ = _ready(device, result)
    plan = build(problem.graph, device.engine_device)
    workspace = plan.new_workspace()
    others = itertools.cycle([allocate(problem, device).bindings for _ in range(sets)])
    call = {"ours": lambda: plan.execute(next(others), workspace)}
    for _ in range(3 * sets):
        call["ours"]()
    _file(in_turns(call, device, options.repeats), result)


def execute_torch(sets: int, device: Device, options: Options, result: Result) -> None:
    """PyTorch's tensors over the same memory; every call gets the next one of ``sets``."""
    problem, _, _ = _ready(device, result)
    plan = build(problem.graph, device.engine_device)
    workspace = plan.new_workspace()
    arrays = [allocate(problem, device).bindings for _ in range(sets)]
    tensors = itertools.cycle([{uid: device.torch.from_dlpack(a) for uid, a in found.items()} for found in arrays])
    call = {"ours": lambda: plan.execute(next(tensors), workspace)}
    for _ in range(3 * sets):
        call["ours"]()
    _file(in_turns(call, device, options.repeats), result)


def replay(device: Device, options: Options, result: Result) -> None:
    problem, buffers, ours = _ready(device, result)
    calls = {"ours": ours, **_peers(problem, buffers, device, result)}
    graphs = {}
    for name, call in calls.items():
        call()
        device.synchronize()
        launches = device.launches([call], foreign=name != "ours")
        if launches.captured:
            graphs[name] = launches.run
    if "ours" not in graphs:
        raise RuntimeError("the call could not be captured in a CUDA graph")
    _file(in_turns(graphs, device, options.repeats), result)


def build_again(device: Device, options: Options, result: Result) -> None:
    """The plan of a graph, in a process that has built the same before."""
    _ready(device, result)
    times = []
    for graph in [tiny_graph() for _ in range(BUILDS)]:
        start = time.perf_counter()
        build(graph, device.engine_device)
        times.append((time.perf_counter() - start) * 1e6)
    result.ours = _timed(times, 1)


def build_other_shape(name: str, device: Device, options: Options, result: Result) -> None:
    """The plan of a graph, in a process that has built others of its kind; no kernel is compiled."""

    def known() -> ExecutionPlan:
        return build(plan_building.graph(name, plan_building.FIRST), device.engine_device)

    result.plan = known().name
    with _on_fastest_core(lambda: _series(known, device, BUILDS)):
        found = plan_building.other_shapes(name, device.engine_device)
    least, middle = found["other shape"]
    result.ours = Timed(middle, least, middle, plan_building.COUNT, 1, captured=False)
    result.note = f"least {least:.0f}, an equal graph {found['equal graph'][1]:.0f}"


def fresh_build(cached: bool, device: Device, options: Options, result: Result) -> None:
    """The first plan of a new process, with kernels cached on disk or not, and bytecode as an installation has it."""
    script = Path(__file__).with_name("fresh_build.py")
    times = []
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for i in range(FRESH_BUILDS + 1):
            cache = Path(folder, "kept" if cached else str(i))
            environment = {**inherited, **own, "GRAPHDNN_CACHE_DIR": str(cache)}
            command = [sys.executable, str(script), device.engine_device]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=FRESH_LIMIT, check=False
            )
            if done.returncode:
                raise RuntimeError(f"a new process failed: {done.stderr.strip()[-200:]}")
            if i:  # the first one writes the bytecode, and fills the cache
                times.append(json.loads(done.stdout.splitlines()[-1]))
            if options.is_late:
                break
    if not times:
        raise RuntimeError("the time limit was reached before the first figure")
    result.ours = _timed([t["first"] * 1e6 for t in times], 1)
    middle = {key: statistics.median(t[key] for t in times) for key in ("import", "prepare", "second")}
    before = f"imports {middle['import']:.2f} s, prepare {middle['prepare']:.2f} s"
    result.note = f"{before}, the same plan again {middle['second'] * 1e3:.2f} ms"


def _step(step: Step) -> Callable[[], Step]:
    return lambda: step


HOST = Group(
    "host",
    f"host time, conv {TINY.x_dims} + bias + ReLU in fp16",
    (
        Case("execute", _step(execute), quick=True),
        Case("execute_other_arrays", _step(partial(execute_other_arrays, 2)), note="two sets take turns"),
        Case("execute_new_arrays", _step(partial(execute_other_arrays, NEW)), note="so many sets that none is known"),
        Case("execute_torch", _step(partial(execute_torch, 1)), quick=True, note="tensors of PyTorch, the same ones"),
        Case("execute_torch_new", _step(partial(execute_torch, NEW)), note="tensors of PyTorch, none of them known"),
        Case("replay", _step(replay), quick=True),
        Case("build_again", _step(build_again), quick=True),
        *(
            Case(f"build_other_shape_{name}", _step(partial(build_other_shape, name)), quick=name == "conv")
            for name in plan_building.CLASSES
        ),
        Case("build_new_process_cached", _step(partial(fresh_build, True))),
        Case("build_new_process_cold", _step(partial(fresh_build, False)), quick=True),
    ),
)
