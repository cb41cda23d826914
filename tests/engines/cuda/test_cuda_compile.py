"""What the engines emit compiles for every architecture: no spills, no stack frames, no warnings.

What starts while the launch before it finishes reads nothing from memory until that one is through: the compiler, which
takes loads of the read-only path to be of constants, may move them ahead of the wait in the text.

A fixed list: for each family of operations its types, layouts and chains, on every engine that serves it with
its default knobs. With other knob values (in the long run), which a tuner measures before it takes them, kernels have to
compile without warnings, but may spill. Compiled kernels are kept in a folder, so that a second run costs little.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from compiled_problems import CASES, EXTENSIONS, TEXTS, prepared_problem
from conftest import PROBLEMS
from cuda_comparison import compiled, compiler
from disassembly import NO_DISASSEMBLER, loads_before_the_wait
from emulator.libraries import host_libraries
from random_problems.configurations import configurations
from random_problems.families import Case
from random_problems.run_and_compare import Prepared

from graphdnn.cuda.nvrtc import KernelText, Resources, arch_of, resources
from graphdnn.device.multiprocessor import RESERVED, WARP
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import ENGINES, Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import DataType
from graphdnn.errors import NotSupported
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.problem import parse

DEVICES = ("a100", "l40s", "h200")  # sm_80, sm_89, sm_90a
SETTINGS = 2  # of knobs besides the defaults, in the long run
DRAWN_SETTINGS = 10  # of knobs that are not compiled

WITHOUT_KERNELS = {"cuda_view"}  # a view moves nothing

# Bytes that a kernel may spill, and why.
SPILLS: dict[str, tuple[int, str]] = {}


@pytest.fixture(autouse=True)
def libraries() -> Iterator[None]:
    """Kernels around calls of cuBLAS and cuFFT compile wherever NVRTC does; the libraries are not called."""
    with host_libraries():
        yield


def _texts(prepared: Prepared, device: DeviceSpec, settings: int) -> Iterator[tuple[KernelText, set[str], bool]]:
    """Each text, its entries that start early, and whether only a change of knobs leads to it."""
    seen = set()
    for config in configurations(prepared.fused, device, 0, broad=1, knob_settings=settings):
        for choice in config.choices:
            kernel = choice.engine.compile(choice.task, choice.knobs)
            assert isinstance(kernel, DeviceKernel)
            launches = [step for step in kernel.steps if isinstance(step, Launch)]
            for step in launches:
                if step.text.name not in seen:
                    seen.add(step.text.name)
                    early = {other.entry for other in launches if other.text == step.text and other.starts_early}
                    yield step.text, early, choice.knobs != choice.engine.defaults()


def _complaints(name: str, entry: str, used: Resources, tuned: bool) -> list[str]:
    found = [*used.warnings]
    spilled, (most, _) = max(used.stack, used.spill_stores, used.spill_loads), SPILLS.get(entry, (0, ""))
    if not tuned and spilled > most:
        found.append(f"{used.stack} bytes of stack, {used.spill_stores} + {used.spill_loads} bytes of spills")
    return [f"{name}, {entry}: {line}" for line in found]


def _check(what: str | Case, device: str, settings: int) -> None:
    spec = device_spec(device)
    arch = arch_of(spec.compute_capability)
    found: list[str] = []
    try:
        for text, early, tuned in _texts(prepared_problem(what), spec, settings):
            kernel = compiled(text, arch)
            entries = resources(kernel.log)
            assert entries, text.name
            PROBLEMS[f"kernels compiled for {arch}"] += 1
            for entry, used in entries.items():
                found += _complaints(text.name, entry, used, tuned)
            for entry in () if NO_DISASSEMBLER else early:
                reads = loads_before_the_wait(kernel.cubin, entry)
                found += [f"{text.name}, {entry}: ahead of the wait for the launch before: {line}" for line in reads]
    except NotSupported as error:
        if {r.status.name for r in error.rejections} <= {"NOT_SUPPORTED_GRAPH_PATTERN"}:
            pytest.skip("no engine of the device is written for this operation")
        raise
    assert not found, "\n".join(found)


@compiler
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", TEXTS)
def test_layers_compile_cleanly(text: str, device: str) -> None:
    _check(text, device, 0)


@compiler
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tag", EXTENSIONS)
def test_extensions_compile_cleanly(tag: str, device: str) -> None:
    _check(tag, device, 0)


@compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_drawn_problems_compile_cleanly(case: Case) -> None:
    _check(case, "h200", 0)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_drawn_problems_compile_cleanly_everywhere(case: Case, device: str) -> None:
    _check(case, device, SETTINGS)


@compiler
@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", TEXTS)
def test_layers_compile_cleanly_with_more_knobs(text: str, device: str) -> None:
    _check(text, device, SETTINGS)


@pytest.mark.parametrize("text", TEXTS)
def test_any_knobs_fit_the_smallest_device(text: str) -> None:
    """Whatever is asked, there is a prediction and a text, and no more is asked of a multiprocessor than it has."""
    device, rng = device_spec("l40s"), random.Random(text)
    for op in prepared_problem(text).fused:
        task = Task(op, device)
        for engine in (e for e in ENGINES if "cuda" in e.places and e.knobs and e.serves(task)):
            drawn = [{knob.type: rng.choice(knob.values) for knob in engine.knobs} for _ in range(DRAWN_SETTINGS)]
            for knobs in map(engine.settings, ({}, *drawn)):
                assert engine.cost(task, knobs).seconds > 0
                kernel = engine.compile(task, knobs)
                assert isinstance(kernel, DeviceKernel)
                for step in kernel.steps:
                    if isinstance(step, Launch):
                        assert step.block * _promised(step) <= WARP * device.warps, (engine.name, dict(knobs))
                        assert step.shared <= device.shared_memory - RESERVED, (engine.name, dict(knobs))


def test_a_text_has_one_name() -> None:
    """The name is part of a kernel's key on disk: with two of them, one text would be compiled twice."""
    device, names = device_spec("h200"), dict[str, set[str]]()
    for text in TEXTS:
        rng = random.Random(text)
        for task in (Task(op, device) for op in prepared_problem(text).fused):
            for engine in (e for e in ENGINES if "cuda" in e.places and e.serves(task)):
                drawn = [{knob.type: rng.choice(knob.values) for knob in engine.knobs} for _ in range(DRAWN_SETTINGS)]
                for knobs in map(engine.settings, ({}, *drawn)):
                    kernel = engine.compile(task, knobs)
                    for step in kernel.steps if isinstance(kernel, DeviceKernel) else ():
                        if isinstance(step, Launch):
                            names.setdefault(step.text.text, set()).add(step.text.name)
    assert len(names) > 500
    again = [sorted(found) for found in names.values() if len(found) > 1]
    assert not again, again


def _promised(launch: Launch) -> int:
    """Blocks of a multiprocessor that the text limits its registers for."""
    bounds = re.search(rf"__launch_bounds__\([^()]*, BLOCKS\) {launch.entry}\(", launch.text.text)
    found = re.search(r"constexpr int BLOCKS = (\d+)", launch.text.text)
    return int(found[1]) if bounds and found else 1


FAST = (
    "conv x=e4m3[8,64,28,28]nhwc w=e4m3[64,64,3,3]nhwc pad=1 out=f16",
    "matmul a=e4m3[1,512,512] b=e4m3[1,512,512] out=f16",
)


def _in_a_hurry(op: Operation) -> Operation:
    """Sums of fp8 products as tensor cores keep them, which problem texts have no word for."""
    name = "conv" if isinstance(op, ConvolutionOperation) else "spec"
    settings = getattr(op, name).model_copy(update={"compute_type": DataType.FAST_FLOAT_FOR_FP8})
    return op.model_copy(update={name: settings})


def test_every_cuda_engine_is_reached() -> None:
    """An engine that serves no problem of the list would be left out without a word."""
    device, reached = device_spec("h200"), set()
    engines = [e for e in ENGINES if "cuda" in e.places and e.name not in WITHOUT_KERNELS]
    for what in (*TEXTS, *EXTENSIONS, *CASES):
        for op in prepared_problem(what).fused:
            reached |= {e.name for e in engines if e.serves(Task(op, device))}
    for text in FAST:
        (op,) = fuse(OperationGraph.of(map(_in_a_hurry, parse(text).build_operation_graph().operations)))
        reached |= {e.name for e in engines if e.serves(Task(op, device))}
    assert {e.name for e in engines} <= reached
