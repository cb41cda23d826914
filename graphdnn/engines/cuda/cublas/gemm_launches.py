"""cuBLAS calls as steps of a launch sequence, and the requirements of the engines that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphdnn.checks import AtMost, Each, Equals, OneOf
from graphdnn.cuda import cublas
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import Function, LibraryCall
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.cublas.contraction import GemmCall
from graphdnn.engines.cuda.cublas.strided_gemm import ARITHMETIC, LARGEST, RESULTS
from graphdnn.engines.engine import Knobs, Task, kind_need, need
from graphdnn.enums import DataType, NumericalNote, Status
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

_MIB = 2**20


def workspace(device: DeviceSpec) -> int:
    """Bytes of workspace for cuBLAS."""
    return (32 if device.compute_capability >= (9, 0) else 8) * _MIB


@dataclass(frozen=True, slots=True)
class Place:
    """The address of an operand: ``offset`` bytes into a bound tensor, or into the workspace for None."""

    uid: int | None
    offset: int = 0

    @classmethod
    def of(cls, steps: LaunchSequence, spec: TensorSpec, offset: int = 0) -> Place:
        place = steps.workspace_offsets.get(spec.uid)
        return cls(spec.uid, offset) if place is None else cls(None, place + offset)

    def address(self, addresses: Mapping[int, int], scratch: int) -> int:
        return (scratch if self.uid is None else addresses[self.uid]) + self.offset


def add_gemm(steps: LaunchSequence, product: GemmCall, a: Place, b: Place, c: Place, work: int) -> None:
    """Add one call. ``work``: the offset of cuBLAS's workspace."""
    gemm, size = product.gemm, workspace(steps.device)
    left, right = (b, a) if product.is_exchanged else (a, b)

    def prepare() -> Function:
        blas = cublas.library()
        blas.prepare()

        def call(addresses: Mapping[int, int], scratch: int, stream: int) -> None:
            blas.gemm(
                gemm, left.address(addresses, scratch), right.address(addresses, scratch),
                c.address(addresses, scratch), scratch + work, size, stream,
            )  # fmt: skip

        return call

    steps.add(LibraryCall("cublasGemmStridedBatchedEx", prepare))


def add_product(steps: LaunchSequence, product: GemmCall, operands: Sequence[tuple[Place, DataType]]) -> None:
    """Add all calls of a contraction of a and b to c."""
    work = steps.allocate(workspace(steps.device))
    for starts in product.starts():
        a, b, c = (
            Place(place.uid, place.offset + start * _bytes(kind))
            for (place, kind), start in zip(operands, starts, strict=True)
        )
        add_gemm(steps, product, a, b, c, work)


def _bytes(kind: DataType) -> int:
    return 8 if kind is DataType.COMPLEX_FP32 else ELEMENTS[kind].bytes


def needs_cublas(id: str, when: Callable[[Task], bool]) -> Constraint:
    """The requirement that cuBLAS is installed. ``when``: selects the operations of the engine."""
    return need(
        id,
        "cuBLAS",
        lambda task: cublas.missing() or "found",
        Equals("found"),
        reason="the product is computed by cuBLAS",
        fix="pip install nvidia-cublas, or use another engine",
        status=Status.NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE,
        when=when,
    )


def needs_sizes(
    id: str, sizes: Callable[[Task], tuple[int, ...]], what: str, when: Callable[[Task], bool]
) -> Constraint:
    """The requirement that all sizes fit cuBLAS's integers. ``sizes``: M, N, K and others; ``what``: their names."""
    return need(
        f"{id}.size",
        what,
        sizes,
        Each(AtMost(LARGEST)),
        reason="cuBLAS counts rows, columns, terms and matrices in 32 bits",
        fix="divide the product among several, or use another engine",
        status=Status.NOT_SUPPORTED_SHAPE,
        when=when,
    )


def needs_types(id: str, operands: Sequence[DataType], when: Callable[[Task], bool]) -> tuple[Constraint, Constraint]:
    """The requirement on types: two operands of one type, and a compute type of cuBLAS."""

    def types(task: Task) -> tuple[DataType, DataType]:
        a, b, *_ = task.op.main.inputs().values()
        return a.data_type, b.data_type

    pairs = tuple((kind, kind) for kind in operands)
    computes = {
        pair: tuple(compute for compute, kind in ARITHMETIC.items() if (pair[0], kind) in RESULTS) for pair in pairs
    }
    return (
        kind_need(
            f"{id}.types",
            "data_type",
            types,
            OneOf(*pairs),
            reason="cuBLAS multiplies two operands of one type",
            fix="convert the operands to one of these types, or use another engine",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
            when=when,
        ),
        kind_need(
            f"{id}.compute_type",
            "compute_type",
            lambda task: task.op.main.compute_type,
            lambda task: OneOf(*computes[types(task)]),
            reason="that is how cuBLAS sums products of these operands",
            fix="choose one of these compute types, or use another engine",
            status=Status.NOT_SUPPORTED_DATA_TYPE,
            when=lambda task: when(task) and types(task) in computes,
        ),
    )


def gemm_notes(task: Task, knobs: Knobs) -> tuple[NumericalNote, ...]:
    """The numerical notes. cuBLAS multiplies fp32 without tensor cores, because the call asks for strict fp32."""
    is_float = all(t.data_type is DataType.FLOAT for t in task.op.main.inputs().values())
    return () if is_float else (NumericalNote.TENSOR_CORE,)
