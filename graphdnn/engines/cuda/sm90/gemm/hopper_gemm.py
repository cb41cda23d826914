"""Engine ``cuda_hopper_gemm``: convolutions on the tensor cores of compute capability 9.0 (hopper_gemm.cu).

| direction | rows (M)  | columns (N)     | K               | A            | B           |
|-----------|-----------|-----------------|-----------------|--------------|-------------|
| fprop     | pixel     | channel k       | taps, channel c | x, K-major   | w, K-major  |
| dgrad     | pixel     | channel c       | taps, channel k | dy, K-major  | w, MN-major |
| wgrad     | channel k | taps, channel c | pixel           | dy, MN-major | x, MN-major |

wgmma reads bytes and 32-bit floats only K-major. A dgrad of these types copies its filter to K-major first, and another
engine serves their wgrad. TMA loads the image tap by tap in im2col mode, so nothing else is rearranged in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import batch_invariant_text, epilogue_of
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import (
    EXACT_OPTIONS,
    EXACT_PAIRS,
    FP8_FAST_OPTIONS,
    FP8_OPTIONS,
    FP8_PAIRS,
    TF32_OPTIONS,
    TF32_PAIRS,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.conv_gemm_shape import gemm_shape_of, promotion_interval_of, tap_blocks_of, tile_k_of
from graphdnn.engines.cuda.sm90.epilogue_operands import fits_residual, residual_map, tma_residual
from graphdnn.engines.cuda.sm90.gemm_fields import TileGrid, describe_work_tiles, tap_fields_of, work_tile_variants
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.nchw_result import channels_last_result
from graphdnn.engines.cuda.sm90.sm90_requirements import hopper_needs
from graphdnn.engines.cuda.sm90.split_k import MAX_OVERLAPPED_TILES, OVERLAP_BYTES, SplitKReduction
from graphdnn.engines.cuda.sm90.tensor_maps import (
    CHANNELS_AXIS,
    FILTERS_AXIS,
    MAX_VEC_N,
    Im2colBox,
    crosses_groups,
    filter_map,
    group_maps,
    im2col_boxes_of,
    im2col_map,
    permuted_filter_map,
    permuted_vec_n,
    vec_n_of,
    with_images,
)
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, Tile
from graphdnn.engines.cuda.sm90.tile_choice import (
    SPLIT_K_REDUCTION,
    SPLITS,
    STAGES,
    TILE,
    Choice,
    choose,
    effective_knobs,
)
from graphdnn.engines.cuda.sm90.tma_operands import (
    Operand,
    copy_seconds_of,
    has_copies,
    is_filter_transposed,
    operands_of_images,
    prepared,
)
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

_ROW_PAIR = 2  # channels that a thread stores together, if rows are channels
_CHANNELS, _LAST_PIXEL = 2, 5  # axes of an image or filter: channels, and the innermost spatial axis
_UNROLL = 4  # K tiles


def _result_space(op: FusedOp, swap_ab: bool, of_all_images: bool) -> IndexSpace:
    """The result's axes. With ``swap_ab``, the pixels of an image are one axis, or the pixels of ``of_all_images``."""
    roles = gemm_problem_of(op).roles
    space = roles.space(roles.output)
    if not swap_ab:
        return space
    axes = list(space.axes)
    flattened = [*([0] if of_all_images else []), 3, 4, 5]
    # An axis of one element has no stride.
    innermost = next((axes[j] for j in reversed(flattened) if axes[j].size > 1), axes[_LAST_PIXEL])
    pixels = axis_of(prod([axes[j].size for j in flattened]), innermost.logical, innermost.multiplier)
    for j in flattened:
        axes[j] = axis_of(1, axes[j].logical, axes[j].multiplier)
    axes[_LAST_PIXEL] = pixels
    return IndexSpace(space.extents, tuple(axes))


@memoize_for_images
def _pixels_per_image(op: FusedOp, is_flat: bool) -> int:
    """Pixels of an image of the result; pixels of a row, if the image's pixels are not one axis."""
    roles = gemm_problem_of(op).roles
    return prod(roles.space(roles.output).sizes[3 if is_flat else _LAST_PIXEL :])


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    transposed = channels_last_result(op)
    if transposed is None:
        return _gemm_kernel(op, device, knobs)
    kernel, steps = _gemm_kernel(transposed.op, device, knobs), LaunchSequence(op, device)
    steps.workspace_offsets[transposed.nhwc_result.uid] = steps.allocate(transposed.nhwc_result.bytes)
    steps.include(kernel)
    steps.copy_into(transposed.nhwc_result, transposed.result)
    return steps.kernel(kernel.name)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The tile, pipeline and split-K of one kernel."""

    gemm: GemmProblem
    shape: GemmShape
    choice: Choice
    grid: TileGrid
    reduction: SplitKReduction
    half_sm_tile: Tile | None  # the tile with half of the registers, if the reduction overlaps the main kernel
    stages: int

    @classmethod
    def of(cls, op: FusedOp, device: DeviceSpec, knobs: Knobs) -> _Kernel:
        gemm, shape = gemm_problem_of(op), gemm_shape_of(op)
        choice = choose(shape, device, knobs)
        tile, grid = choice.tile, TileGrid.of(shape, *shape.gemm_extents(choice.tile))
        is_reduced_by_launch = gemm.is_wgrad and choice.splits > 1 and not choice.in_cluster
        half_sm_tile = tile.half_sm_tile if is_reduced_by_launch and grid.tiles <= MAX_OVERLAPPED_TILES else None
        overlaps = half_sm_tile is not None
        reduction = SplitKReduction(
            grid.tiles * tile.padded_results, choice.splits, in_cluster=choice.in_cluster, overlaps=overlaps
        )
        stages = min(choice.stages, tile.stages(device.shared_memory, OVERLAP_BYTES)) if overlaps else choice.stages
        return cls(gemm, shape, choice, grid, reduction, half_sm_tile, stages)

    @property
    def tile(self) -> Tile:
        return self.choice.tile

    @property
    def is_split(self) -> bool:
        return self.choice.splits > 1

    @property
    def swap_ab(self) -> bool:
        return self.shape.swap_ab or self.tile.swap_ab

    @property
    def filter_mn_major(self) -> bool:
        roles = self.gemm.roles
        return roles.direction == "dgrad" and not is_filter_transposed(roles)

    @property
    def mn_major(self) -> tuple[bool, bool]:
        """Whether A and B are MN-major."""
        is_wgrad, filter_mn_major, swap_ab = self.gemm.is_wgrad, self.filter_mn_major, self.swap_ab
        return is_wgrad or (filter_mn_major and swap_ab), is_wgrad or (filter_mn_major and not swap_ab)

    @property
    def work_items(self) -> int:
        """Tiles with K tiles, for each split."""
        return self.grid.tiles * self.choice.splits

    def ctas(self, device: DeviceSpec) -> int:
        """CTAs of the launch: persistent, unless a cluster has the splits of a tile."""
        return (
            self.work_items if self.choice.in_cluster else min(self.work_items, self.tile.ctas_per_sm * device.sm_count)
        )

    def permuted_n(self, op: FusedOp, dense: Operand) -> int:
        """Contiguous columns of a thread, if TMA permutes the rows of the filter; 0 otherwise."""
        if self.gemm.is_wgrad or self.filter_mn_major or self.swap_ab:
            return 0
        return permuted_vec_n(dense, max([ELEMENTS[t.data_type].bytes for t in op.outputs]))

    @property
    def shared_bytes(self) -> int:
        tile, choice = self.tile, self.choice
        dsmem_bytes = tile.dsmem_bytes(choice.splits) if choice.in_cluster else 0
        return self.stages * (tile.stage_bytes + 16) + tile.order_barrier_bytes + dsmem_bytes


def _gemm_kernel(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    kernel = _Kernel.of(op, device, knobs)
    gemm, tile, reduction = kernel.gemm, kernel.tile, kernel.reduction
    steps = LaunchSequence(op, device)
    im2col, dense = prepared(op, steps)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[gemm.roles.op.compute_type]
    permuted_n = kernel.permuted_n(op, dense)
    vec_n = _ROW_PAIR if tile.swap_ab else permuted_n or MAX_VEC_N
    _describe_operands(op, kernel, parameters, im2col, dense, permuted_n)
    residual = _describe_residual(op, kernel, parameters)
    is_flat = kernel.shape.may_swap_ab
    vector_axis = _LAST_PIXEL if kernel.shape.swap_ab else _CHANNELS
    space = _result_space, kernel.swap_ab or is_flat, is_flat
    epilogue = epilogue_of(steps, parameters, space, vector_axis, vec_n, compute, residual=residual)
    _describe_tiles(op, kernel, parameters, dense)
    reduction.describe(parameters, steps, compute)
    _describe_schedule(op, kernel, parameters, device)
    name = f"conv_{gemm.roles.direction}__hopper_{tile.name}x{kernel.stages}{_split(kernel.choice)}__{op.name}"

    def write() -> KernelText:
        vec_widths = {
            "PERMUTE_N": permuted_n > 0,
            "VEC_N": vec_n if kernel.swap_ab else vec_n_of(permuted_n, epilogue.width),
            "VEC_WIDTH": epilogue.width,
        }
        types = {"Element": STORAGE[im2col.spec.data_type], "Accum": compute}
        return kernel_text(
            name,
            ["hopper_gemm.cu", *(["split_k_reduce.cu"] if reduction.is_launched else [])],
            variants={
                **work_tile_variants(parameters),
                "IM2COL_PRODUCER": True,
                "RESIDUAL_TILE": residual is not None,
                "SPLIT_K_IN_CLUSTER": reduction.in_cluster,
            },
            parameters=parameters.text,
            functions=[
                *epilogue.functions,
                wgmma_ss_text(*_operand_types(gemm, kernel.swap_ab), tile.bn, *kernel.mn_major),
            ],
            constants={
                **_constants(kernel),
                **vec_widths,
                **types,
                **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
            },
        )

    text = batch_invariant_text(
        op, epilogue, ("gemm", tile, kernel.stages, residual is None, *reduction.text_key), write
    )
    packed, grid, threads = parameters.pack(), (kernel.ctas(device), 1, 1), 128 * (tile.consumers + 1)
    steps.add(Launch(text, "hopper_gemm", grid, threads, packed, kernel.shared_bytes, starts_early=True))
    if reduction.is_launched:
        steps.add(reduction.launch(text, packed))
    return steps.kernel(name)


def _describe_operands(
    op: FusedOp, kernel: _Kernel, parameters: Parameters, im2col: Operand, dense: Operand, permuted_n: int
) -> None:
    """Adds the tensor maps of both operands."""
    gemm, p = kernel.gemm, kernel.gemm.roles.problem
    tile_pixels, tile_rows = kernel.shape.gemm_extents(kernel.tile)
    box = (
        SLAB_ROWS if kernel.filter_mn_major else tile_rows, SLAB_ROWS if gemm.is_wgrad else tile_pixels, permuted_n
    )  # fmt: skip
    images, dense_map = _maps(op, im2col, dense, *box) if has_copies(op) else _original_maps(op, *box)
    dense_maps = [with_images(dense_map, p.n) if gemm.is_wgrad else dense_map]
    if crosses_groups(gemm):
        images = [one for whole in images for one in group_maps(whole, CHANNELS_AXIS, p.groups)]
        dense_maps = group_maps(dense_map, FILTERS_AXIS, p.groups) if kernel.filter_mn_major else dense_maps
        parameters.integer("maps_per_group", p.groups)
    parameters.maps("im2col_map", [(im2col.spec, with_images(one, p.n)) for one in images])
    parameters.maps("dense_map", [(dense.spec, one) for one in dense_maps])


def _describe_residual(op: FusedOp, kernel: _Kernel, parameters: Parameters) -> TensorSpec | None:
    """Adds the tensor map of the residual that TMA loads, and returns the residual; None without such a residual."""
    shape = kernel.shape
    residual = None if kernel.is_split or shape.swap_ab else tma_residual(op, kernel.gemm)
    if residual is None or not fits_residual(kernel.choice, residual):
        return None
    tile_pixels, _ = shape.gemm_extents(kernel.tile)
    parameters.maps("residual", [(residual, residual_map(kernel.gemm, residual, tile_pixels))])
    return residual


def _describe_tiles(op: FusedOp, kernel: _Kernel, parameters: Parameters, dense: Operand) -> None:
    """Adds the fields of conv_work_tile.cuh."""
    gemm = kernel.gemm
    blocks = -(-gemm.channels // (SLAB_ROWS if gemm.is_wgrad else tile_k_of(gemm)))
    tap_stride, tap_blocks = (0, tap_blocks_of(gemm)) if gemm.is_wgrad else (dense.tap_stride, 0)
    fields = tap_fields_of(op)
    describe_work_tiles(parameters, gemm, kernel.shape, kernel.grid, (), blocks, tap_stride, tap_blocks, fields)


def _describe_schedule(op: FusedOp, kernel: _Kernel, parameters: Parameters, device: DeviceSpec) -> None:
    """Adds the start of the next launch, the pixels of an image, and the CTAs with and without K tiles."""
    gemm, shape, grid, reduction = kernel.gemm, kernel.shape, kernel.grid, kernel.reduction
    triggers_early = reduction.overlaps or (kernel.work_items < device.sm_count and not reduction.is_launched)
    parameters.integer("trigger_early", int(triggers_early))
    is_flat = shape.may_swap_ab
    image_pixels = _pixels_per_image(op, kernel.swap_ab or is_flat)
    parameters.integer("image_pixels", gemm.roles.problem.n * image_pixels if is_flat else image_pixels)
    if is_flat:
        parameters.integer("flat_pixels", 1)
    if len(gemm.residues) == 1:
        return
    reached = sum(tiles_m for tiles_m, (_, k_tiles) in zip(grid.tiles_m, shape.gemms, strict=True) if k_tiles)
    mainloop_ctas, mainloop_tiles = kernel.ctas(device), kernel.work_items
    if kernel.choice.mainloop_ctas > 0 and not kernel.is_split:
        mainloop_ctas, mainloop_tiles = kernel.choice.mainloop_ctas, reached * grid.tiles_n * shape.groups
    parameters.integer("mainloop_ctas", mainloop_ctas)
    parameters.integer("mainloop_tiles", mainloop_tiles)


def _constants(kernel: _Kernel) -> dict[str, int | bool | str]:
    """The constants of hopper_gemm.cu that depend on the tile and the GEMM."""
    gemm, tile, running_tile = kernel.gemm, kernel.tile, kernel.half_sm_tile or kernel.tile
    consumer_regs, producer_regs = running_tile.registers
    return {
        "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": kernel.stages,
        "CONSUMER_WARPGROUPS": tile.tile_consumers, "PINGPONG_GROUPS": tile.pingpong_groups,
        "LOADED_ROWS": tile.bm,
        "CTAS_PER_SM": running_tile.ctas_per_sm,
        "CONSUMER_REGS": consumer_regs, "PRODUCER_REGS": producer_regs,
        "WGRAD": gemm.is_wgrad, "SWAP_AB": kernel.swap_ab, "FILTER_MN_MAJOR": kernel.filter_mn_major,
        "A_MN_MAJOR": kernel.mn_major[0], "B_MN_MAJOR": kernel.mn_major[1],
        "RESIDUES": len(gemm.residues), "SPATIAL": gemm.roles.problem.spatial, "SPLIT_K": kernel.is_split,
        **kernel.reduction.constants,
        "UNROLL": _UNROLL, "PROMOTION_INTERVAL": promotion_interval_of(gemm),
    }  # fmt: skip


def _split(choice: Choice) -> str:
    """The part of a kernel's name that says how K is split."""
    return f"_cluster{choice.splits}" if choice.in_cluster else "_split" if choice.splits > 1 else ""


def _maps(
    op: FusedOp, im2col: Operand, dense: Operand, filter_rows: int, pixels: int, vec_n: int
) -> tuple[list[TensorMap], TensorMap]:
    """Tensor maps: of the im2col operand for each residue, and of the dense operand.

    ``filter_rows`` and ``pixels`` are the extents of one TMA load. ``vec_n``: contiguous columns of a thread, if the
    filter's rows are permuted; 0 otherwise.
    """
    gemm = gemm_problem_of(op)
    spatial = gemm.roles.problem.spatial
    images = [im2col_map(im2col, spatial, box, gemm.traversal_stride, pixels) for box in im2col_boxes_of(op)]
    if gemm.is_wgrad:
        no_window = Im2colBox(*((0,) * SPATIAL,) * 4)
        dense_map = im2col_map(dense, spatial, no_window, (1,) * SPATIAL, SLAB_ROWS)
    elif vec_n:
        dense_map = permuted_filter_map(dense, filter_rows, vec_n)
    else:
        dense_map = filter_map(dense, filter_rows)
    if im2col.spec.data_type is not DataType.FLOAT:
        return images, dense_map
    # TMA rounds to TF32; tensor cores would truncate.
    return [replace(one, is_rounded=True) for one in images], replace(dense_map, is_rounded=True)


@memoize_for_images
def _original_maps(op: FusedOp, filter_rows: int, pixels: int, vec_n: int) -> tuple[list[TensorMap], TensorMap]:
    return _maps(op, *operands_of_images(op), filter_rows, pixels, vec_n)


def _operand_types(gemm: GemmProblem, swap_ab: bool) -> tuple[DataType, DataType]:
    """Types of A and B."""
    im2col, dense = im2col_and_dense(gemm.roles)
    pair = im2col.data_type, dense.data_type
    return pair[::-1] if gemm.is_wgrad or swap_ab else pair


def _cost(task: Task, knobs: Knobs) -> Cost:
    transposed = channels_last_result(task.op)
    if transposed is not None:
        copying = copying_seconds(transposed.result.bytes, task.device)
        return _cost(Task(transposed.op, task.device), knobs).plus({"result": copying})
    choice = choose(gemm_shape_of(task.op), task.device, knobs)
    copying = copy_seconds_of(task.op, task.device)
    phases = {"copies": copying} if copying else {}
    if choice.split_reduction_seconds:
        phases["sum"] = choice.split_reduction_seconds
    if choice.idle:
        phases["idle"] = -choice.idle
    return device_cost(task, choice.seconds + choice.idle - choice.split_reduction_seconds + other_seconds(task)).plus(
        phases
    )


def _effective(task: Task, knobs: Knobs) -> Knobs:
    """The knob values of the kernel that is launched."""
    transposed = channels_last_result(task.op)
    op = task.op if transposed is None else transposed.op
    return effective_knobs(choose(gemm_shape_of(op), task.device, knobs))


_COMMON: dict[str, Any] = {
    "effective": _effective,
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE, STAGES, SPLITS, SPLIT_K_REDUCTION),
    "frugal": {KnobType.SPLIT_K: 1},
    "layout": LayoutType.PREFERRED_NHWC,
}
ENGINE = cuda_engine(
    id=50,
    name="cuda_hopper_gemm",
    summary="convolutions of 16-bit floats and bytes, channels last, on the tensor cores of compute capability 9.0",
    needs=hopper_needs("cuda_hopper_gemm", EXACT_PAIRS),
    **EXACT_OPTIONS,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=51,
    name="cuda_hopper_gemm_tf32",
    summary="fp32 convolutions on the same tensor cores, operands rounded to TF32; only if TF32 is allowed",
    needs=hopper_needs("cuda_hopper_gemm_tf32", TF32_PAIRS),
    **TF32_OPTIONS,
    **_COMMON,
)
ENGINE_FP8 = cuda_engine(
    id=60,
    name="cuda_hopper_gemm_fp8",
    summary="fp8 convolutions on the same tensor cores, which keep 14 bits of sums of 128 products; only if allowed",
    needs=hopper_needs("cuda_hopper_gemm_fp8", FP8_PAIRS),
    **FP8_OPTIONS,
    **_COMMON,
)
ENGINE_FP8_FAST = cuda_engine(
    id=61,
    name="cuda_hopper_gemm_fp8_fast",
    summary="the same for the compute type FAST_FLOAT_FOR_FP8, which allows 14 bits",
    needs=hopper_needs("cuda_hopper_gemm_fp8_fast", FP8_PAIRS, (DataType.FAST_FLOAT_FOR_FP8,)),
    **FP8_FAST_OPTIONS,
    **_COMMON,
)
