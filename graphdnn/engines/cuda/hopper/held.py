"""Engine ``cuda_hopper_held``: forward convolutions whose filters stay in shared memory (hopper_held.cu).

| direction | rows  | columns   | k               | rows from  | columns from |
|-----------|-------|-----------|-----------------|------------|--------------|
| fprop     | pixel | channel k | taps, channel c | x, along k | w, along k   |

``cuda_hopper_gemm`` copies filters again for every tile, and its warpgroups wait for the same stages. Here only pixels
are copied, at any stride, warpgroups go their own ways, and what the epilogue reads for a channel is read once.
"""

from __future__ import annotations

from graphdnn.device import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.generator.cost import device_cost, other_seconds
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.generator.program import Program, width_for
from graphdnn.engines.cuda.generator.source import kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.generator.tensor_cores import OF_EXACT
from graphdnn.engines.cuda.hopper.fields import Layout, describe_work, last_slices
from graphdnn.engines.cuda.hopper.flat import flat_space
from graphdnn.engines.cuda.hopper.gemm import sizes_of
from graphdnn.engines.cuda.hopper.held_needs import NEEDS
from graphdnn.engines.cuda.hopper.held_shape import shape_of
from graphdnn.engines.cuda.hopper.held_tiles import TILE, choose
from graphdnn.engines.cuda.hopper.maps import filter_map, image_map, is_permutable, permuted_filter_map, walk_of
from graphdnn.engines.cuda.hopper.operands import operands
from graphdnn.engines.cuda.hopper.product import product_text
from graphdnn.engines.cuda.hopper.tiles import PANEL, ROW
from graphdnn.engines.cuda.simt.implicit_product import product_of
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import LayoutType
from graphdnn.fusion.fused import FusedOp

_COLUMNS_OF_A_THREAD = 8
_CHANNELS = 2  # axis of a result's coordinates
_FILES = ("next_launch.cuh", "hopper_pipeline.cuh", "hopper_work.cuh", "hopper_leave.cuh", "hopper_held.cu")


def generate(op: FusedOp, device: DeviceSpec, knobs: Knobs) -> DeviceKernel:
    product, sizes, shape = product_of(op), sizes_of(op), shape_of(op)
    roles, choice = product.roles, choose(shape, device, knobs)
    assert choice is not None, "a rule asks for filters that fit"
    tile = choice.tile
    steps = Steps(op, device)
    image, filter = (operand.prepared(steps) for operand in operands(roles))
    parameters = Parameters(steps.places)
    compute = COMPUTE_TYPE[roles.op.compute_type]

    (walk,) = (walk_of(product, residue) for residue in product.residues)
    pixels = image_map(image, roles.problem.spatial, walk, product.pixel_step, PANEL)
    parameters.maps("gathered", [(image.spec, pixels)])
    is_permuted = is_permutable(filter)
    widest = max(ELEMENTS[t.data_type].bytes for t in op.outputs)
    held = _COLUMNS_OF_A_THREAD // 2 if is_permuted and widest > 2 else _COLUMNS_OF_A_THREAD
    columns = permuted_filter_map(filter, tile.bn, held) if is_permuted else filter_map(filter, tile.bn)
    parameters.maps("plain", [(filter.spec, columns)])

    out_space = roles.space(roles.output)
    if sizes.may_be_turned:
        out_space = flat_space(out_space, is_plane=False)
    width = min(width_for(out_space, steps.epilogue_tensors(), _CHANNELS), held)
    body = Program(op, parameters, out_space, "t", width=width, vector_axis=_CHANNELS, keeps=True, condition="is_there")
    steps.finish(body, "acc", compute)
    layout = Layout.of(sizes, PANEL, tile.bn)
    blocks = -(-product.channels * image.size // ROW)
    describe_work(parameters, product, sizes, layout, [walk], blocks, filter.tap_stride)
    parameters.integer("parts", 1)
    parameters.integer("image_pixels", 1)
    if sizes.may_be_turned:
        parameters.integer("joined", 1)

    multiplying, copying = tile.registers
    name = f"conv_fprop__held_{tile.name}x{choice.stages}__{op.name}"
    text = kernel_text(
        name,
        _FILES,
        parameters=parameters.text,
        functions=[
            body.keeping(),
            body.function("epilogue", f"const Kept& kept, const {compute} (&acc)[{width}], bool is_there"),
            product_text(image.spec.data_type, filter.spec.data_type, tile.bn, False, False),
        ],
        constants={
            "BM": PANEL * tile.consumers, "BN": tile.bn, "CONSUMERS": tile.consumers, "STAGES": choice.stages,
            "MULTIPLYING_REGISTERS": multiplying, "COPYING_REGISTERS": copying,
            "LAST_SLICES": last_slices(product),
            "WGRAD": False, "TURNED": False, "ACROSS_FILTER": False, "PERMUTED": is_permuted, "NEIGHBOURS": held,
            "WIDTH": width, "RESIDUES": 1, "SPATIAL": roles.problem.spatial, "SPLIT": False,
            "Element": STORAGE[image.spec.data_type], "Accumulator": compute,
        },
    )  # fmt: skip
    grid = (min(layout.down[0], device.sm_count // layout.across) * layout.across, 1, 1)
    shared = tile.shared_bytes(shape.depth, choice.stages)
    steps.add(Launch(text, "hopper_held", grid, tile.threads, parameters.pack(), shared, starts_early=True))
    return steps.kernel(name)


def _cost(task: Task, knobs: Knobs) -> Cost:
    choice = choose(shape_of(task.op), task.device, knobs)
    assert choice is not None, "a rule asks for filters that fit"
    copying = sum(o.copying_seconds(task.device) for o in operands(product_of(task.op).roles))
    cost = device_cost(task, choice.seconds + other_seconds(task))
    return cost.plus({"copies": copying} if copying else {})


ENGINE = cuda_engine(
    id=94,
    name="cuda_hopper_held",
    summary="forward convolutions of 16-bit floats and bytes, channels last, whose filters stay in shared memory",
    needs=NEEDS,
    cost=_cost,
    generate=generate,
    knobs=(TILE,),
    layout=LayoutType.PREFERRED_NHWC,
    **OF_EXACT,
)
