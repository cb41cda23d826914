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
from conftest import PROBLEMS
from cuda_comparison import compiled, compiler
from disassembly import NO_DISASSEMBLER, loads_before_the_wait
from emulator.libraries import host_libraries
from extension_cases import extension_named
from random_problems.configurations import configurations
from random_problems.families import Case, draw
from random_problems.graph_sketch import Problem
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

TEXTS = (
    # The layers that matter, in the types that matter.
    "conv x=f16[32,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu",
    "conv x=bf16[32,64,56,56]nhwc w=bf16[256,64,1,1]nhwc + bias + residual + relu",
    "conv x=f16[32,64,56,56] w=f16[64,64,3,3] pad=1 + bias + relu",
    "conv x=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1 + relu",
    "dgrad dy=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc dx=[8,64,56,56] pad=1",
    "conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1",
    "conv x=f64[2,16,28,28] w=f64[32,16,3,3] pad=1",
    "conv x=e4m3[8,64,28,28]nhwc w=e4m3[64,64,3,3]nhwc pad=1 out=f16 + bias",
    "conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3]nhwc pad=1 compute=i32 out=i8 + relu",
    "conv x=f16[32,256,28,28]nhwc w=f16[256,8,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[32,448,28,28]nhwc w=f16[448,112,3,3]nhwc pad=1 + bias + relu",
    "dgrad dy=f16[32,448,28,28]nhwc w=f16[448,112,3,3]nhwc dx=[32,448,28,28] pad=1",
    "wgrad x=f16[32,256,28,28]nhwc dy=f16[32,256,28,28]nhwc dw=[256,8,3,3] pad=1",
    "matmul a=f16[4096,4096] b=f16[4096,1] + bias",
    "conv x=i16[1,1,64,64] w=i16[8,1,16,16] compute=i32 out=i32",
    "conv x=i16[1,1,64,64] w=i16[8,1,16,16] compute=i64 out=i64",
    "conv x=f16[32,3,224,224]nhwc w=f16[64,3,7,7]nhwc pad=3 stride=2",
    "conv x=f32[32,3,224,224]nhwc w=f32[64,3,7,7]nhwc pad=3 stride=2",
    "conv x=f16[16,96,112,112]nhwc w=f16[96,1,3,3]nhwc pad=1 + bias + clip(0,6)",
    "conv x=f16[16,96,112,112]nhwc w=f16[96,1,5,5]nhwc pad=2 stride=2",
    "conv x=f16[16,96,56,56] w=f16[96,1,3,3] pad=1 + bias + relu",
    "conv x=f16[4,128,28,28]nhwc w=f16[128,4,3,3]nhwc pad=1",
    "conv x=f16[2,32,8,28,28]nhwc w=f16[64,32,3,3,3]nhwc pad=1 spatial=3",
    "conv x=f32[8,64,300] w=f32[64,64,3] pad=1 spatial=1 dil=2",
    "dgrad dy=f16[32,64,56,56]nhwc w=f16[64,64,3,3]nhwc dx=[32,64,56,56] pad=1",
    "dgrad dy=f16[32,128,28,28]nhwc w=f16[128,64,3,3]nhwc dx=[32,64,56,56] pad=1 stride=2",
    "dgrad dy=f32[8,64,28,28] w=f32[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2",
    "dgrad dy=f32[8,64,28,28]nhwc w=f32[64,64,3,3]nhwc dx=[8,64,56,56] pad=1 stride=2",
    "dgrad dy=f16[16,96,56,56]nhwc w=f16[96,1,3,3]nhwc dx=[16,96,56,56] pad=1",
    "dgrad dy=f16[32,64,112,112]nhwc w=f16[64,3,7,7]nhwc dx=[32,3,224,224] pad=3 stride=2",
    "wgrad x=f16[32,3,224,224]nhwc dy=f16[32,64,112,112]nhwc dw=[64,3,7,7] pad=3 stride=2",
    "wgrad x=f16[32,64,56,56]nhwc dy=f16[32,64,56,56]nhwc dw=[64,64,3,3] pad=1",
    "wgrad x=f32[8,32,56,56] dy=f32[8,64,28,28] dw=[64,32,3,3] pad=1 stride=2",
    "wgrad x=i16[8,64,28,28]nhwc dy=i16[8,96,28,28]nhwc dw=[96,64,3,3] pad=1 compute=i64 out=i64",
    "wgrad x=i8[8,64,28,28]nhwc dy=u8[8,96,28,28]nhwc dw=[96,64,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=f16[16,96,56,56]nhwc dy=f16[16,96,56,56]nhwc dw=[96,1,3,3] pad=1",
    "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu -> reduce add [1,64,1,1]",
    "conv x=f16[8,3,224,224]nhwc w=f16[768,3,16,16]nhwc stride=16 + bias",
    "dgrad dy=f32[2,64,28,28]nhwc w=f32[64,32,2,2]nhwc dx=[2,32,56,56] stride=2 + bias",
    "wgrad x=f16[8,96,56,56]nhwc dy=f16[8,192,28,28]nhwc dw=[192,96,2,2] stride=2",
    "matmul a=f16[8,1024,512] b=f16[8,512,768] + bias + gelu",
    "matmul a=bf16[1,4096,4096] b=bf16[1,4096,4096]",
    "matmul a=f32[4,300,500] b=f32[4,500,200] + bias",
    "matmul a=f64[2,100,100] b=f64[2,100,100]",
    "matmul a=i8[1,512,512] b=i8[1,512,512] compute=i32 out=i32",
    "matmul a=e4m3[1,512,512] b=e4m3[1,512,512] out=f16",
    "pointwise x=f32[8,64,56,56] + mul + tanh",
    "pointwise x=f16[8,64,56,56]nhwc + scale + bias + gelu",
    "pointwise x=bf16[8,64,56,56]nhwc + residual + swish",
    "pointwise x=f64[100,100] + exp + erf",
    "reduce add x=f32[8,64,56,56] y=[1,64,1,1]",
    "reduce add x=f16[64,1000] y=[64,1]",
    "reduce max x=f32[1000000] y=[1]",
    "reduce norm2 x=bf16[64,128,28,28]nhwc y=[1,128,1,1]",
    "pool max x=f16[32,64,112,112]nhwc window=3 stride=2 pad=1",
    "pool avg x=f32[32,64,28,28] window=2 stride=2",
    "norm layer x=f16[4096,1024]",
    "norm batch x=f32[32,64,56,56]nhwc",
)  # fmt: skip
# (family, seeds): what has no one-line text, and every mode and operator.
DRAWN = {
    "pointwise": range(0, 60, 4), "pointwise_graph": range(3), "conversion": range(8), "mask": range(2),
    "reduction": range(9), "statistics": range(8), "matmul": range(2), "matmul_int": range(2),
    "resample": range(12), "pool_apart": range(6), "norm": range(12), "softmax": range(3), "attention": range(4), "gradient": range(2), "movement": range(8), "rng": range(4),
    "conv_fprop": range(2), "conv_dgrad": range(2), "conv_wgrad": range(2),
    "conv_fprop_int": range(2), "conv_dgrad_int": range(2), "conv_wgrad_int": range(2),
}  # fmt: skip
# What no text and no family has; "f16" is of recurrent networks that tensor cores take.
EXTENSIONS = (
    "grid_sample", "grid_sample_bwd", "patches", "rnn_fwd", "rnn_bwd_data", "rnn_bwd_weights", "rnn_fwd f16",
    "rnn_bwd_data f16", "rnn_bwd_weights f16", "ctc_loss",
)  # fmt: skip
CASES = [Case(family, seed, large=True) for family, seeds in DRAWN.items() for seed in seeds]


@pytest.fixture(autouse=True)
def libraries() -> Iterator[None]:
    """Kernels around calls of cuBLAS and cuFFT compile wherever NVRTC does; the libraries are not called."""
    with host_libraries():
        yield


def _prepared(what: str | Case) -> Prepared:
    if isinstance(what, Case):
        return Prepared.of(draw(what))
    if what in EXTENSIONS:
        return Prepared.of(Problem((extension_named(what),), {}))
    return Prepared.of(Problem(tuple(parse(what).build_operation_graph().operations), {}))


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
        for text, early, tuned in _texts(_prepared(what), spec, settings):
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
    for op in _prepared(text).fused:
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
        for task in (Task(op, device) for op in _prepared(text).fused):
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
        for op in _prepared(what).fused:
            reached |= {e.name for e in engines if e.serves(Task(op, device))}
    for text in FAST:
        (op,) = fuse(OperationGraph.of(map(_in_a_hurry, parse(text).build_operation_graph().operations)))
        reached |= {e.name for e in engines if e.serves(Task(op, device))}
    assert {e.name for e in engines} <= reached
