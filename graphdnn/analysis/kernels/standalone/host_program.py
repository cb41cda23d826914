"""The ``main`` of a standalone program: memory, the launches as the plan makes them, the comparison, the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import sqrt

import ml_dtypes
import numpy as np

from graphdnn.analysis.kernels.standalone.comments import in_string
from graphdnn.analysis.kernels.standalone.reference_kernels import arguments_of, kernel_name, source_of
from graphdnn.analysis.kernels.standalone.tensor_access import by_value, span, uid_text
from graphdnn.cuda.tensor_map import ELEMENT_NUMBERS, SWIZZLE_NUMBERS, TF32_NUMBER, TensorMap
from graphdnn.dtypes import COMPUTE, ELEMENTS, FLOATS, cast
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import STORAGE, MapSlot, Slot, scalar_bits
from graphdnn.engines.operation_cost import reduction_length
from graphdnn.escaped import escaped
from graphdnn.fusion import FusedOp
from graphdnn.heuristics import Choice
from graphdnn.tensors import TensorSpec
from graphdnn.text_format import plural

THREADS = 256
_POISON = "0x7f"  # in every byte of an output: NaN, or a large integer

TOOLS = """\
static void check(cudaError_t code, const char* call) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\\n", call, cudaGetErrorString(code));
    std::exit(2);
}
#define CHECK(call) check(call, #call)

template <class Element> static Element* allocate(long long bytes, int byte) {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, bytes > 0 ? bytes : 1));
    CHECK(cudaMemset(memory, byte, bytes));
    return (Element*)memory;
}
static unsigned blocks_for(long long count) { return (unsigned)((count + 255) / 256); }
"""

# What the driver has to encode, found without linking to it.
MAPS = """\
static void* driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
    CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
    if (found != cudaDriverEntryPointSuccess) { std::fprintf(stderr, "the driver has no %s\\n", name); std::exit(2); }
    return function;
}
[[maybe_unused]] static auto encode_tiled() {
    return (decltype(&cuTensorMapEncodeTiled))driver_function("cuTensorMapEncodeTiled");
}
[[maybe_unused]] static auto encode_im2col() {
    return (decltype(&cuTensorMapEncodeIm2col))driver_function("cuTensorMapEncodeIm2col");
}
static void check_map(CUresult code) {
    if (code == CUDA_SUCCESS) return;
    std::fprintf(stderr, "a tensor map cannot be encoded: error %d\\n", (int)code);
    std::exit(2);
}
"""


def main_text(op: FusedOp, choice: Choice, kernel: DeviceKernel, numbers: dict[str, int]) -> str:
    """``numbers``: of each text by its name, as its namespace has it."""
    tensors = {s.uid: s for s in (*op.inputs, *op.outputs) if not (s.is_by_value or s.is_constant)}
    launches = [step for step in kernel.steps if isinstance(step, Launch)]
    parts = [
        *_structs(launches),
        "int main() {",
        *_memory(op, tensors, kernel.workspace_bytes),
        *(line for i, launch in enumerate(launches) for line in _filled_in(i, launch, tensors, op)),
        "",
        "    // The launches of one execution.",
        "    auto execute = [&]() {",
        *(line for i, launch in enumerate(launches) for line in _launched(i, launch, numbers)),
        "    };",
        "    execute();",
        "    CHECK(cudaDeviceSynchronize());",
        *_expected(op),
        *_verdicts(op, choice),
        *_timed(launches),
        '    std::printf(ok ? "PASS\\n" : "FAIL\\n");',
        "    return ok ? 0 : 1;",
        "}",
        "",
    ]
    return "\n".join(parts)


def _structs(launches: Sequence[Launch]) -> list[str]:
    """The struct of each launch: words in the order of its fields, with zeros for what ``main`` fills in."""
    lines = []
    for i, launch in enumerate(launches):
        words = np.frombuffer(launch.params.data, np.int64)
        lines.append(f"// struct Params of launch {i}, {launch.entry}")
        lines.append(f"alignas(128) static unsigned long long params_{i}[{len(words)}] = {{")
        start = 0
        for name, count in _fields(launch.text.text):
            lines.append(f"    {', '.join(map(_word, words[start : start + count]))},  // {name}")
            start += count
        rest = words[start:]
        if len(rest):
            lines.append(f"    {', '.join(['0'] * len(rest))},  // the struct ends aligned")
        lines += ["};", ""]
    return lines


def _word(value: np.int64) -> str:
    """As its literal: numbers below zero are the largest ones without a sign, and doubles are bits."""
    return f"{value}" if 0 <= value < 2**31 else f"0x{int(value) & (2**64 - 1):x}"


def _fields(text: str) -> list[tuple[str, int]]:
    """(name, words) of each field of ``struct Params`` in a kernel's text."""
    body = text[text.index("struct Params {") :]
    body = body[: body.index("};")]
    found = []
    for type_, name, count in re.findall(r"^    (.+?)\s+(\w+)(?:\[(\d+)\])?;", body, re.MULTILINE):
        found.append((name, (16 if type_ == "TensorMap" else 1) * int(count or 1)))
    return found


def _memory(op: FusedOp, tensors: dict[int, TensorSpec], scratch: int) -> list[str]:
    lines = ["    // Inputs have the same numbers in each run. Outputs are poisoned."]
    written = {s.uid for s in op.outputs}
    for number, spec in enumerate(tensors.values()):
        storage, name = STORAGE[spec.data_type], f"tensor_{uid_text(spec)}"
        poison = _POISON if spec.uid in written else "0"
        label = (
            f"  // {escaped(spec.label())}: {spec.data_type.name} {list(spec.extents)}, strides {list(spec.strides)}"
        )
        lines.append(f"    auto* {name} = allocate<{_qualified(storage)}>({spec.bytes}LL, {poison});{label}")
        if spec.uid not in written:
            count = span(spec)
            lines.append(f"    reference::fill<<<blocks_for({count}LL), {THREADS}>>>({name}, {count}LL, {number}u);")
    if scratch:
        lines.append(f"    auto* scratch = allocate<unsigned char>({scratch}LL, {_POISON});")
    lines += ["    CHECK(cudaDeviceSynchronize());", ""]
    return lines


def _qualified(storage: str) -> str:
    """An element type outside its namespace."""
    return storage if storage in ("float", "double") else f"reference::{storage}"


def _address(slot: Slot, tensors: dict[int, TensorSpec]) -> str:
    base = "scratch" if slot.uid is None else f"tensor_{uid_text(tensors[slot.uid])}"
    return f"(unsigned long long){base}" + (f" + {slot.offset}ull" if slot.offset else "")


def _filled_in(i: int, launch: Launch, tensors: dict[int, TensorSpec], op: FusedOp) -> list[str]:
    lines = [f"    // Addresses of launch {i}."]
    for slot in launch.params.slots:
        if isinstance(slot, MapSlot):
            assert slot.map is not None
            lines += _map(f"&params_{i}[{slot.word}]", slot.map, _address(slot, tensors))
        elif slot.by_value:
            spec = next(s for s in op.inputs if s.uid == slot.uid)
            value = cast(np.asarray(by_value(spec)), spec.data_type)
            bits = int.from_bytes(scalar_bits(value.tobytes()), "little")
            lines.append(
                f"    params_{i}[{slot.word}] = 0x{bits:x}ull;  // {escaped(spec.label())} = {by_value(spec):g}"
            )
        else:
            lines.append(f"    params_{i}[{slot.word}] = {_address(slot, tensors)};")
    return lines


def _map(place: str, box: TensorMap, address: str) -> list[str]:
    """A call that encodes a map, as the plan makes it."""
    rank = len(box.sizes)
    kind = TF32_NUMBER if box.is_rounded else ELEMENT_NUMBERS[box.data_type]

    def array(type_: str, name: str, values: Sequence[int]) -> str:
        return f"        const {type_} {name}[] = {{{', '.join(map(str, values))}}};"

    indent = " " * 12
    head = f"(CUtensorMap*){place}, (CUtensorMapDataType){kind}, {rank},\n{indent}(void*)({address}), sizes, strides"
    tail = (
        f"steps,\n{indent}CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle){SWIZZLE_NUMBERS[box.row]}, "
        f"CU_TENSOR_MAP_L2_PROMOTION_L2_128B,\n{indent}CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"
    )
    lines = [
        "    {",
        array("cuuint64_t", "sizes", box.sizes),
        array("cuuint64_t", "strides", box.strides),
        array("cuuint32_t", "steps", box.steps or (1,) * rank),
    ]
    if box.box:
        lines.append(array("cuuint32_t", "box", box.box))
        call = f"encode_tiled()({head}, box, {tail})"
    else:
        lines.append(array("int", "lower", box.lower or (0,)))
        lines.append(array("int", "upper", box.upper or (0,)))
        walk = f"lower, upper, {box.channels}, {box.pixels}"
        call = f"encode_im2col()({head}, {walk}, {tail})"
    return [*lines, f"        check_map({call});", "    }"]


def _launched(i: int, launch: Launch, numbers: dict[str, int]) -> list[str]:
    function = f"kernel_{numbers[launch.text.name]}::{launch.entry}"
    attributes = [
        name
        for name, is_set in (
            ("cudaLaunchAttributeCooperative", launch.is_cooperative),
            ("cudaLaunchAttributeProgrammaticStreamSerialization", launch.starts_early),
        )
        if is_set
    ]
    lines = [
        "        {",
        "            cudaLaunchConfig_t config = {};",
        f"            config.gridDim = dim3({', '.join(map(str, launch.grid))});",
        f"            config.blockDim = dim3({launch.block});",
        f"            config.dynamicSmemBytes = {launch.shared};",
    ]
    if attributes:
        lines.append(f"            cudaLaunchAttribute attributes[{len(attributes)}] = {{}};")
        for n, name in enumerate(attributes):
            field = "cooperative" if "Cooperative" in name else "programmaticStreamSerializationAllowed"
            lines.append(f"            attributes[{n}].id = {name};")
            lines.append(f"            attributes[{n}].val.{field} = 1;")
        lines.append("            config.attrs = attributes;")
        lines.append(f"            config.numAttrs = {len(attributes)};")
    if launch.shared:
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines.append(f"            CHECK(cudaFuncSetAttribute({function}, {attribute}, {launch.shared}));")
    lines.append(f"            void* arguments[] = {{params_{i}}};")
    lines.append(f"            CHECK(cudaLaunchKernelExC(&config, (const void*){function}, arguments));")
    lines.append("        }")
    return lines


def _expected(op: FusedOp) -> list[str]:
    """Every result by plain loops, in the order of the operations."""
    known = source_of(op)
    lines = ["", "    // The same by plain loops. Each result is rounded to the type of its tensor."]
    for number, step in enumerate(op.operations):
        for port, spec in step.outputs().items():
            result = known[spec.uid]
            storage = _qualified(result.storage)
            size = spec.elements * ELEMENTS[spec.data_type].bytes
            lines.append(f"    auto* {result.name} = allocate<{storage}>({size}LL, 0);")
            names = ", ".join(a.name for a in arguments_of(step, known, spec))
            call = f"reference::{kernel_name(number, port)}<<<blocks_for({spec.elements}LL), {THREADS}>>>({names});"
            lines.append(f"    {call}")
    return [*lines, "    CHECK(cudaDeviceSynchronize());"]


def bound_of(op: FusedOp, choice: Choice, spec: TensorSpec) -> tuple[float, float]:
    """(share of the largest expected magnitude, absolute) that an element may be off by.

    Each operation may round each of its sums of n terms with 8 (sqrt(n) + 1) units of its arithmetic, as the oracle
    allows; storing rounds once. Integers are exact.
    """
    if spec.data_type not in FLOATS:
        is_rounded = any(_unit(COMPUTE.get(step.compute_type)) for step in op.operations)
        return 0.0, 1.0 if is_rounded and ELEMENTS[spec.data_type].kind != "bool" else 0.0
    share = 0.0
    for step in op.operations:
        unit = _unit(COMPUTE.get(step.compute_type))
        share += 8 * (sqrt(reduction_length(step)) + 1) * unit * choice.engine.growth(step)
        share += sum(_unit(ELEMENTS[t.data_type].numpy) for t in step.outputs().values() if t.data_type in FLOATS)
    return share, float(ml_dtypes.finfo(ELEMENTS[spec.data_type].numpy).smallest_subnormal)  # type: ignore[no-untyped-call]


def _unit(dtype: object) -> float:
    if dtype is None or np.dtype(dtype).kind in "biu":  # type: ignore[call-overload]
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


def _verdicts(op: FusedOp, choice: Choice) -> list[str]:
    lines = ["", "    bool ok = true;"]
    for spec in op.outputs:
        uid, (share, absolute) = uid_text(spec), bound_of(op, choice, spec)
        blocks = f"<<<blocks_for({spec.elements}LL), {THREADS}>>>"
        lines += [
            "    {",
            "        auto* verdict = allocate<reference::Verdict>(sizeof(reference::Verdict), 0);",
            f"        reference::compare_{uid}{blocks}(tensor_{uid}, expected_{uid}, 0.0, 0, verdict);",
            "        reference::Verdict found;",
            "        CHECK(cudaMemcpy(&found, verdict, sizeof(found), cudaMemcpyDeviceToHost));",
            "        double scale, worst;",
            "        std::memcpy(&scale, &found.scale, sizeof(scale));",
            f"        const double bound = {share!r} * scale + {absolute!r};",
            f"        reference::compare_{uid}{blocks}(tensor_{uid}, expected_{uid}, bound, 1, verdict);",
            "        CHECK(cudaMemcpy(&found, verdict, sizeof(found), cudaMemcpyDeviceToHost));",
            "        std::memcpy(&worst, &found.worst, sizeof(worst));",
            f"        const double compared = found.compared / {float(max(1, spec.elements))!r};",
            f'        std::printf("{in_string(spec.label())}: max error %g, bound %g, ", worst, bound);',
            '        std::printf("largest value %g, ", scale);',
            '        std::printf("compared %.3g %%, %llu wrong\\n", 100 * compared, found.wrong);',
            "        // Values that are all zero, or are no numbers, prove nothing.",
            "        ok = ok && found.wrong == 0 && compared >= 0.5 && scale > 0;",
            "    }",
        ]
    return lines


def _timed(launches: Sequence[Launch]) -> list[str]:
    return [
        "",
        "    // The least time of 20 executions, from event to event.",
        "    cudaEvent_t before, after;",
        "    CHECK(cudaEventCreate(&before));",
        "    CHECK(cudaEventCreate(&after));",
        "    float least = 1e30f;",
        "    for (int i = 0; i < 20; ++i) {",
        "        float milliseconds = 0;",
        "        CHECK(cudaEventRecord(before));",
        "        execute();",
        "        CHECK(cudaEventRecord(after));",
        "        CHECK(cudaEventSynchronize(after));",
        "        CHECK(cudaEventElapsedTime(&milliseconds, before, after));",
        "        least = milliseconds < least ? milliseconds : least;",
        "    }",
        f'    std::printf("time: %.2f us for {plural(len(launches), "launch", "launches")}\\n", least * 1e3);',
    ]
