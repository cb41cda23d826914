"""A kernel of a plan as one file: the texts as they are launched, the loops, and a ``main``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphdnn.analysis.kernels.kernel_view import KernelView
from graphdnn.analysis.kernels.standalone.comments import comment
from graphdnn.analysis.kernels.standalone.host_program import MAPS, TOOLS, main_text
from graphdnn.analysis.kernels.standalone.loops import LOOPS
from graphdnn.analysis.kernels.standalone.reference_kernels import COMMON, compare_kernels, loop_kernels
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import MapSlot
from graphdnn.engines.cuda.codegen.source import common_headers
from graphdnn.enums import DataType, Status
from graphdnn.errors import NotSupported, Rejection
from graphdnn.rules import Rule

NO_LOOPS = Rule(
    id="kernels.standalone.operation",
    expected="operations that the plain loops have",
    reason="a program that does not compare its result proves nothing, and there are no loops for {what}",
    fix="write the kernel's text alone with -o FILE, or compare it by graphdnn run",
    status=Status.NOT_SUPPORTED,
)
NO_LAUNCH = Rule(
    id="kernels.standalone.launch",
    expected="a kernel that is launched with text of its own",
    reason="{what}",
    fix="choose an engine with a kernel of its own: --engine NAME, --device NAME",
    status=Status.NOT_SUPPORTED,
)
NO_LAYOUT = Rule(
    id="kernels.standalone.layout",
    expected="elements of whole bytes, without vectors",
    reason="the plain loops find an element by its strides",
    fix="choose another type or layout, or compare the kernel by graphdnn run",
    status=Status.NOT_SUPPORTED,
)
_GUARDED = ("INFINITY", "NAN")  # the texts define these only where nobody else has


def standalone(kernel: KernelView, version: str, problem: str = "") -> str:
    """The file's text. ``nvcc`` compiles it; the program launches, compares with plain loops and prints the time.

    ``version`` and ``problem``, a text, stand in its head.
    Raises ``NotSupported`` for a kernel of the host or of a library, and for operations that the loops do not have.
    """
    problems = list(_problems(kernel))
    if problems:
        raise NotSupported(problems)
    compiled = kernel.compiled
    assert isinstance(compiled, DeviceKernel)
    texts = list(kernel.texts)
    numbers = {text.name: i for i, text in enumerate(texts)}
    launches = [step for step in compiled.steps if isinstance(step, Launch)]
    has_maps = any(isinstance(slot, MapSlot) for launch in launches for slot in launch.params.slots)
    return "\n".join(
        [
            *_head(kernel, version, problem),
            "#ifndef __CUDACC_RTC__",
            *(["#include <cuda.h>"] if has_maps else []),
            "#include <cuda_runtime.h>",
            "#include <cstdio>",
            "#include <cstdlib>",
            "#include <cstring>",
            "#endif",
            "",
            *(line for i, text in enumerate(texts) for line in _namespace(f"kernel_{i}", text.text, text.name)),
            *_namespace(
                "reference",
                "\n".join((common_headers(), COMMON, loop_kernels(kernel.op), compare_kernels(kernel.op))),
                "plain loops, and what fills and compares tensors",
            ),
            "#ifndef __CUDACC_RTC__",
            TOOLS,
            *([MAPS] if has_maps else []),
            main_text(kernel.op, kernel.choice, compiled, numbers),
            "#endif",
            "",
        ]
    )


def compile_options(kernel: KernelView) -> tuple[str, ...]:
    """Options of nvcc that compile the text as the plan does."""
    own = {option for text in kernel.texts for option in text.options}
    number = kernel.architecture.removeprefix("sm_")
    return (
        "-gencode",
        f"arch=compute_{number},code=sm_{number}",
        "-std=c++17",
        "--expt-relaxed-constexpr",
        *sorted(own),
    )


def _head(kernel: KernelView, version: str, problem: str) -> Sequence[str]:
    knobs = ", ".join(f"{k.name}={v}" for k, v in kernel.choice.knobs.items()) or "none"
    return [
        comment(kernel.name),
        "//",
        *([comment(f"problem   {problem}")] if problem else []),
        *(comment(f"computes  [{i}] {op.line()}") for i, op in enumerate(kernel.operations)),
        f"// engine    {kernel.engine}, knobs {knobs}",
        f"// device    {kernel.device.name}, {kernel.architecture}",
        f"// written   by graphdnn {version}",
        "//",
        f"// compile   nvcc {' '.join(compile_options(kernel))} FILE.cu -o program && ./program",
        "//",
        "// The program fills its inputs, launches the kernel exactly as the library does, compares each output with",
        "// plain loops on the device, and prints the time. It exits with 0 if all outputs are right, with 1 if one is",
        "// wrong, and with 2 if CUDA reports an error.",
        "",
    ]


def _namespace(name: str, text: str, about: str) -> list[str]:
    """A text in a namespace: two texts define the same names. Macros know no namespaces, so they end with it."""
    body = for_device(text).replace('extern "C" __global__', "__global__")
    body = re.sub(
        r"^((?:\[\[maybe_unused\]\] )?)constexpr (\w+ \w+\[)", r"\1__device__ constexpr \2", body, flags=re.MULTILINE
    )  # NVRTC needs no mark
    macros = [m for m in dict.fromkeys(re.findall(r"^[ \t]*#define (\w+)", body, re.MULTILINE)) if m not in _GUARDED]
    return [
        f"// ---- {about}",
        f"namespace {name} {{",
        body,
        f"}}  // namespace {name}",
        *(f"#undef {macro}" for macro in macros),
        "",
    ]


def for_device(text: str) -> str:
    """The text as a device's compiler reads it: what stands there for the emulator, which is C++, is left out."""
    kept: list[str] = []
    open_: list[str] = []  # of each conditional: "device", "emulator", or "" for another condition
    for line in text.split("\n"):
        word = line.strip()
        if word.startswith("#if"):
            open_.append({"#ifdef __CUDA_ARCH__": "device", "#ifndef __CUDA_ARCH__": "emulator"}.get(word, ""))
            is_mark = open_[-1] != ""
        elif word.startswith(("#else", "#endif")) and open_:
            is_mark = open_[-1] != ""
            if word.startswith("#endif"):
                open_.pop()
            elif is_mark:
                open_[-1] = "device" if open_[-1] == "emulator" else "emulator"
        else:
            is_mark = False
        if not is_mark and "emulator" not in open_:
            kept.append(line)
    return "\n".join(kept)


def _problems(kernel: KernelView) -> Sequence[Rejection]:
    where, found = f"kernel {kernel.name}", []
    if kernel.is_on_host:
        return [NO_LAUNCH.reject(where, "device", kernel.device.name, what="NumPy computes this kernel")]
    if not kernel.launches:
        return [NO_LAUNCH.reject(where, "launches", 0, what="the result is a view of the operand's memory")]
    libraries = [launch.name for launch in kernel.launches if launch.is_library]
    if libraries:
        found.append(
            NO_LAUNCH.reject(where, "launches", ", ".join(libraries), what="a library does a part of the work")
        )
    for step in kernel.operations:
        loops = LOOPS.get(type(step))
        missing = step.tag if loops is None else loops.missing(step)
        if missing:
            found.append(NO_LOOPS.reject(where, "operation", step.label(), what=missing))
    for spec in {t.uid: t for t in (*kernel.op.inputs, *kernel.op.outputs, *kernel.op.internal)}.values():
        if spec.vector_count > 1 or spec.data_type is DataType.BOOLEAN:
            value = f"{spec.data_type.name}, vectors of {spec.vector_count}"
            found.append(NO_LAYOUT.reject(where, spec.label(), value))
    return found
