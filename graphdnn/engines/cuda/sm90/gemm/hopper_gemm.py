"""Engine ``cuda_hopper_gemm``: convolutions on the tensor cores of compute capability 9.0 (hopper_gemm.cu).

| direction | rows      | columns         | k               | rows from        | columns from   |
|-----------|-----------|-----------------|-----------------|------------------|----------------|
| fprop     | pixel     | channel k       | taps, channel c | x, along k       | w, along k     |
| dgrad     | pixel     | channel c       | taps, channel k | dy, along k      | w, across k    |
| wgrad     | channel k | taps, channel c | pixel           | dy, across k     | x, across k    |

Bytes and 32-bit floats have to lie along k: their filters are copied with k innermost for a dgrad, and a wgrad of them
is another engine's. Operands are moved by the copy unit (TMA), which walks through the image tap by tap, so nothing
else is rearranged in memory beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import device_cost, other_seconds
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.epilogue import epilogue_of, text_of_images
from graphdnn.engines.cuda.codegen.index_space import IndexSpace, axis_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.tensor_cores import (
    EXACT_PAIRS,
    FP8_PAIRS,
    OF_EXACT,
    OF_FP8,
    OF_FP8_FAST,
    OF_TF32,
    TF32_PAIRS,
)
from graphdnn.engines.cuda.conv_geometry.convolution_roles import SPATIAL
from graphdnn.engines.cuda.conv_geometry.gemm_problem import GemmProblem, gemm_problem_of, im2col_and_dense
from graphdnn.engines.cuda.simt.implicit_copies import copying_seconds
from graphdnn.engines.cuda.sm90.conv_gemm_shape import depth_of_step, promoted, sizes_of, units_of
from graphdnn.engines.cuda.sm90.epilogue_operands import holds_residual, residual_map, streamed_residual
from graphdnn.engines.cuda.sm90.gemm_fields import Layout, describe_work, taps_of
from graphdnn.engines.cuda.sm90.nchw_result import turned_result
from graphdnn.engines.cuda.sm90.sm90_requirements import hopper_needs
from graphdnn.engines.cuda.sm90.split_k import FEW_SHARES, PARTS_FILES, ROOM, Adding
from graphdnn.engines.cuda.sm90.tensor_maps import (
    CHANNELS_AXIS,
    FILTERS_AXIS,
    MOST_NEIGHBOURS,
    Walk,
    columns_held,
    crosses_groups,
    filter_map,
    for_images,
    image_map,
    maps_of_groups,
    neighbours_of,
    permuted_filter_map,
    walks_of,
)
from graphdnn.engines.cuda.sm90.tile import PANEL
from graphdnn.engines.cuda.sm90.tile_choice import JOINING, PARTS, STAGES, TILE, Choice, choose
from graphdnn.engines.cuda.sm90.tma_operands import (
    Operand,
    are_copied,
    copying_of,
    is_exchanged,
    operands_of_images,
    prepared,
)
from graphdnn.engines.cuda.sm90.wgmma_text import wgmma_ss_text
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType, KnobType, LayoutType
from graphdnn.fusion.fused_graph import FusedOp

_ROWS_OF_A_THREAD = 2  # neighbours
_CHANNELS, _LAST_PIXEL = 2, 5  # axes of the coordinates of images and filters
_UNROLLED = 4  # steps


def _result_space(op: FusedOp, is_turned: bool, of_all_images: bool) -> IndexSpace:
    """The result's coordinates; where pixels are columns, all of an image's are one axis, or those of all images."""
    roles = gemm_problem_of(op).roles
    space = roles.space(roles.output)
    if not is_turned:
        return space
    axes = list(space.axes)
    joined = [*([0] if of_all_images else []), 3, 4, 5]
    # An axis of one element says nothing of where pixels lie.
    innermost = next((axes[j] for j in reversed(joined) if axes[j].size > 1), axes[_LAST_PIXEL])
    pixels = axis_of(prod([axes[j].size for j in joined]), innermost.logical, innermost.multiplier)
    for j in joined:
        axes[j] = axis_of(1, axes[j].logical, axes[j].multiplier)
    axes[_LAST_PIXEL] = pixels
    return IndexSpace(space.extents, tuple(axes))


@memoize_for_images
def _pixels_of_image(op: FusedOp, are_joined: bool) -> int:
    """Of the result; of a line, where they are no single axis."""
    roles = gemm_problem_of(op).roles
    return prod(roles.space(roles.output).sizes[3 if are_joined else _LAST_PIXEL :])


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    turned = turned_result(op)
    if turned is None:
        return _product_kernel(op, device, knobs)
    kernel, steps = _product_kernel(turned.op, device, knobs), LaunchSequence(op, device)
    steps.workspace_offsets[turned.made.uid] = steps.allocate(turned.made.bytes)
    steps.include(kernel)
    steps.moved(turned.made, turned.result)
    return steps.kernel(kernel.name)


def _product_kernel(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product = gemm_problem_of(op)
    roles, p = product.roles, product.roles.problem
    sizes = sizes_of(op)
    choice = choose(sizes, device, knobs)
    tile, layout = choice.tile, Layout.of(sizes, *sizes.sides(choice.tile))
    by_launch = product.is_wgrad and choice.parts > 1 and not choice.in_cluster
    lean = tile.lean if by_launch and layout.tiles <= FEW_SHARES else None
    overlaps = lean is not None
    adding = Adding(layout.tiles * tile.padded, choice.parts, in_cluster=choice.in_cluster, overlaps=overlaps)
    stages = min(choice.stages, tile.stages(device.shared_memory, ROOM)) if overlaps else choice.stages
    is_split, is_turned = choice.parts > 1, sizes.is_turned or tile.is_turned
    steps = LaunchSequence(op, device)
    gathered, plain = prepared(op, steps)
    parameters = Parameters(steps.workspace_offsets)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    across_filter = roles.direction == "dgrad" and not is_exchanged(roles)
    widest = max([ELEMENTS[t.data_type].bytes for t in op.outputs])
    permuted = 0 if product.is_wgrad or across_filter or is_turned else neighbours_of(plain, widest)
    held = permuted or MOST_NEIGHBOURS
    if tile.is_turned:
        held = _ROWS_OF_A_THREAD
    pixels_held, rows_held = sizes.sides(tile)
    copied = (
        PANEL if across_filter else rows_held, PANEL if product.is_wgrad else pixels_held, permuted
    )  # fmt: skip
    images, other = _maps(op, gathered, plain, *copied) if are_copied(op) else _maps_as_they_lie(op, *copied)
    others = [for_images(other, p.n) if product.is_wgrad else other]
    if crosses_groups(product):
        images = [one for whole in images for one in maps_of_groups(whole, CHANNELS_AXIS, p.groups)]
        others = maps_of_groups(other, FILTERS_AXIS, p.groups) if across_filter else others
        parameters.integer("maps_per_group", p.groups)
    parameters.maps("im2col_map", [(gathered.spec, for_images(one, p.n)) for one in images])
    parameters.maps("dense_map", [(plain.spec, one) for one in others])

    is_joined = sizes.may_be_turned
    vector_axis = _LAST_PIXEL if sizes.is_turned else _CHANNELS
    residual = None if is_split or sizes.is_turned else streamed_residual(op, product)
    if residual is not None and not holds_residual(choice, residual):
        residual = None
    if residual is not None:
        parameters.maps("residual", [(residual, residual_map(product, residual, sizes.sides(tile)[0]))])
    joins_pixels = is_turned or is_joined
    space = _result_space, joins_pixels, is_joined
    ending = epilogue_of(steps, parameters, space, vector_axis, held, compute, residual=residual)
    channels_held = PANEL if product.is_wgrad else depth_of_step(product)
    blocks = -(-product.channels // channels_held)
    pitch, units = (0, units_of(product)) if product.is_wgrad else (plain.tap_stride, 0)
    describe_work(parameters, product, sizes, layout, (), blocks, pitch, units, taps_of(op))
    adding.describe(parameters, steps, compute)
    leaves_room = overlaps or (layout.tiles * choice.parts < device.sm_count and not adding.is_launched)
    parameters.integer("trigger_early", int(leaves_room))
    of_image = _pixels_of_image(op, joins_pixels)
    parameters.integer("image_pixels", p.n * of_image if is_joined else of_image)
    if is_joined:
        parameters.integer("flat_pixels", 1)
    pieces = layout.tiles * choice.parts
    blocks = pieces if choice.in_cluster else min(pieces, tile.blocks * device.sm_count)
    if len(product.residues) > 1:
        reached = sum(down for down, (_, depth) in zip(layout.down, sizes.products, strict=True) if depth)
        is_apart = choice.busy > 0 and not is_split
        parameters.integer("mainloop_ctas", choice.busy if is_apart else blocks)
        parameters.integer("mainloop_tiles", reached * layout.across * sizes.groups if is_apart else pieces)

    multiplying, copying = (lean or tile).registers
    across = product.is_wgrad or (across_filter and is_turned), product.is_wgrad or (across_filter and not is_turned)
    name = f"conv_{roles.direction}__hopper_{tile.name}x{stages}{_split(choice)}__{op.name}"

    def write() -> KernelText:
        return kernel_text(
            name,
            [
                *("pdl.cuh", "hopper_pipeline.cuh", "conv_work_tile.cuh", "epilogue_store.cuh", "conv_producer.cuh"),
                "hopper_no_residual.cuh" if residual is None else "hopper_residual.cuh",
                *(*PARTS_FILES, adding.file, "hopper_gemm.cu", *(["split_k_reduce.cu"] if adding.is_launched else [])),
            ],
            parameters=parameters.text,
            functions=[
                *ending.functions,
                wgmma_ss_text(*_operand_types(product, is_turned), tile.bn, *across),
            ],
            constants={
                "TILE_M": tile.bm, "TILE_N": tile.bn, "STAGES": stages,
                "CONSUMER_WARPGROUPS": tile.sharers, "PINGPONG_GROUPS": tile.teams, "LOADED_ROWS": tile.bm,
                "CTAS_PER_SM": (lean or tile).blocks,
                "CONSUMER_REGS": multiplying, "PRODUCER_REGS": copying,
                "WGRAD": product.is_wgrad, "SWAP_AB": is_turned, "FILTER_MN_MAJOR": across_filter,
                "A_MN_MAJOR": across[0], "B_MN_MAJOR": across[1],
                "RESIDUES": len(product.residues), "SPATIAL": p.spatial, "SPLIT_K": is_split,
                **adding.constants,
                "PERMUTE_N": permuted > 0,
                "VEC_N": held if is_turned else columns_held(permuted, ending.width),
                "VEC_WIDTH": ending.width, "UNROLL": _UNROLLED, "PROMOTION_INTERVAL": promoted(product),
                "Element": STORAGE[gathered.spec.data_type], "Accum": compute,
                **({} if residual is None else {"Residual": STORAGE[residual.data_type]}),
            },
        )  # fmt: skip

    text = text_of_images(op, ending, ("gemm", tile, stages, residual is None, *adding.about), write)
    packed = parameters.pack()
    inbox = tile.inbox(choice.parts) if choice.in_cluster else 0
    shared = stages * (tile.stage_bytes + 16) + tile.turn_bytes + inbox
    steps.add(
        Launch(
            text,
            "hopper_gemm",
            (blocks, 1, 1),
            128 * (tile.consumers + 1),
            packed,
            shared,
            starts_early=True,
        )
    )
    if adding.is_launched:
        steps.add(adding.launch(text, packed))
    return steps.kernel(name)


def _split(choice: Choice) -> str:
    """In a kernel's name."""
    return f"_cluster{choice.parts}" if choice.in_cluster else "_split" if choice.parts > 1 else ""


def _maps(
    op: FusedOp, gathered: Operand, plain: Operand, filter_rows: int, pixels: int, neighbours: int
) -> tuple[list[TensorMap], TensorMap]:
    """Of the gathered operand for each residue, and of the other one. ``filter_rows`` and ``pixels`` are those of one
    copy; ``neighbours``: 0 where filters lie in their own order.
    """
    product = gemm_problem_of(op)
    spatial = product.roles.problem.spatial
    images = [image_map(gathered, spatial, walk, product.traversal_stride, pixels) for walk in walks_of(op)]
    if product.is_wgrad:
        still = Walk(*((0,) * SPATIAL,) * 4)
        other = image_map(plain, spatial, still, (1,) * SPATIAL, PANEL)
    elif neighbours:
        other = permuted_filter_map(plain, filter_rows, neighbours)
    else:
        other = filter_map(plain, filter_rows)
    if gathered.spec.data_type is not DataType.FLOAT:
        return images, other
    # What tensor cores would only cut off.
    return [replace(one, is_rounded=True) for one in images], replace(other, is_rounded=True)


@memoize_for_images
def _maps_as_they_lie(op: FusedOp, filter_rows: int, pixels: int, neighbours: int) -> tuple[list[TensorMap], TensorMap]:
    return _maps(op, *operands_of_images(op), filter_rows, pixels, neighbours)


def _operand_types(product: GemmProblem, is_turned: bool) -> tuple[DataType, DataType]:
    """Of rows and of columns."""
    gathered, plain = im2col_and_dense(product.roles)
    pair = gathered.data_type, plain.data_type
    return pair[::-1] if product.is_wgrad or is_turned else pair


def _cost(task: Task, knobs: Knobs) -> Cost:
    turned = turned_result(task.op)
    if turned is not None:
        copying = copying_seconds(turned.result.bytes, task.device)
        return _cost(Task(turned.op, task.device), knobs).plus({"result": copying})
    choice = choose(sizes_of(task.op), task.device, knobs)
    copying = copying_of(task.op, task.device)
    phases = {"copies": copying} if copying else {}
    if choice.summing:
        phases["sum"] = choice.summing
    if choice.idle:
        phases["idle"] = -choice.idle
    return device_cost(task, choice.seconds + choice.idle - choice.summing + other_seconds(task)).plus(phases)


_COMMON: dict[str, Any] = {
    "cost": _cost,
    "generate": generate,
    "knobs": (TILE, STAGES, PARTS, JOINING),
    "frugal": {KnobType.SPLIT_K: 1},
    "layout": LayoutType.PREFERRED_NHWC,
}
ENGINE = cuda_engine(
    id=50,
    name="cuda_hopper_gemm",
    summary="convolutions of 16-bit floats and bytes, channels last, on the tensor cores of compute capability 9.0",
    needs=hopper_needs("cuda_hopper_gemm", EXACT_PAIRS),
    **OF_EXACT,
    **_COMMON,
)
ENGINE_TF32 = cuda_engine(
    id=51,
    name="cuda_hopper_gemm_tf32",
    summary="fp32 convolutions on the same tensor cores, operands rounded to TF32; only where that is allowed",
    needs=hopper_needs("cuda_hopper_gemm_tf32", TF32_PAIRS),
    **OF_TF32,
    **_COMMON,
)
ENGINE_FP8 = cuda_engine(
    id=60,
    name="cuda_hopper_gemm_fp8",
    summary="fp8 convolutions on the same tensor cores, which keep 14 digits of 128 products; only where allowed",
    needs=hopper_needs("cuda_hopper_gemm_fp8", FP8_PAIRS),
    **OF_FP8,
    **_COMMON,
)
ENGINE_FP8_FAST = cuda_engine(
    id=61,
    name="cuda_hopper_gemm_fp8_fast",
    summary="the same where the compute type is FAST_FLOAT_FOR_FP8, which allows it",
    needs=hopper_needs("cuda_hopper_gemm_fp8_fast", FP8_PAIRS, DataType.FAST_FLOAT_FOR_FP8),
    **OF_FP8_FAST,
    **_COMMON,
)
