"""Engines ``cuda_grid_sample`` and ``cuda_grid_sample_backward``: images at the positions of a grid, and gradients.

No kernel scatters: tiles of pixels gather the gradient of the image and visit positions in one order, so sums have one
order. An earlier launch computes bounding boxes of the grid's pieces, and tiles skip pieces outside. If a grid is
irregular, every tile visits every piece, and the time grows with their product.
"""

from __future__ import annotations

from math import gcd, prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import device_cost, memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.index_space import INT_MAX
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch, early
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.extensions.extension_requirements import extension_needs
from graphdnn.engines.cuda.reduction.row_threads import power_above
from graphdnn.engines.engine import Cost, Knobs, Task
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import GridSample, GridSampleBackward
from graphdnn.tensors import TensorSpec, channels_last_strides, stride_order

_THREADS = 256
_BLOCKS_PER_SM = 16
_TILE_ROWS, _TILE_COLUMNS = 8, 32  # pixels of a CTA
_CHANNELS = 8  # of a thread
_IMAGE_BLOCKS = 2  # CTAs of a multiprocessor, which leave enough registers
_SHARED_CHANNELS = 64  # channels of the lanes that share a pixel; each lane has as many sums
_LEAST_TURNED, _NARROW = 2**20, 4  # elements, and bytes of an element
_VEC_BYTES = 16  # bytes of an access to contiguous channels
_SLICES = 8  # threads that share the channels of a position
_WARP = 32
_PIECE_ROWS, _PIECE_COLUMNS = 4, 8  # positions of a warp
_PIECE = {"PIECE_ROWS": _PIECE_ROWS, "PIECE_COLUMNS": _PIECE_COLUMNS}
_BOX = 16  # bytes of a piece's bounding box
_LOOK = 0.5  # operations of a thread for each position that its tile visits
_AXES = ("AT_N", "AT_C", "AT_ROW", "AT_COLUMN")


def _store(name: str, spec: TensorSpec) -> str:
    """The function that rounds weighted neighbours to the type of the tensor."""
    kind = STORAGE[spec.data_type]
    return (
        "template <int V> __device__ __forceinline__ void store("
        "const Params& p, long long at, const Compute (&value)[V]) {\n"
        f"    {kind} some[V];\n    #pragma unroll\n"
        f"    for (int e = 0; e < V; ++e) some[e] = narrow<{kind}>(value[e]);\n"
        f"    store<V>(p.{name} + at, Packed(), some);\n}}\n"
    )


def _vec_width(*images: TensorSpec) -> int:
    """Channels of one access to each image; 1 if they are not contiguous in all images."""
    most = min(_VEC_BYTES // ELEMENTS[t.data_type].bytes for t in images)
    apart = [stride for t in images for axis, stride in enumerate(t.strides) if axis != 1 and t.extents[axis] > 1]
    is_packed = all(t.strides[1] == 1 and t.byte_alignment >= _VEC_BYTES for t in images)
    return most if is_packed and gcd(images[0].extents[1], *apart) % most == 0 else 1


def _counted(*specs: TensorSpec) -> str:
    """The type of offsets into all tensors."""
    return "int" if all(t.span <= INT_MAX for t in specs) else "long long"


def _described(op: GridSample | GridSampleBackward, inputs: tuple[str, ...], output: str) -> Parameters:
    """Adds addresses, strides and the image's size."""
    parameters = Parameters()
    for name in (*inputs, output):
        spec = getattr(op, name)
        parameters.tensor(name, spec, is_output=name == output)
        parameters.integers(f"{name}_stride", spec.strides)
    height, width = op.x.extents[2:]
    for field, value in (("height", height), ("width", width), ("channels", op.x.extents[1])):
        parameters.integer(field, value)
    for field, value in (("rows", op.grid.extents[1]), ("columns", op.grid.extents[2])):
        parameters.integer(field, value)
    parameters.number("half_height", (height - 1) / 2)
    parameters.number("half_width", (width - 1) / 2)
    return parameters


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, GridSample)
    y = anchor.y
    order = stride_order(y.dims, y.strides)
    parameters = _described(anchor, ("x", "grid"), "y")
    vec_width = _vec_width(anchor.x, y)
    channels = vec_width if vec_width > 1 else _CHANNELS
    groups = -(-y.extents[1] // channels)
    sizes = [groups if axis == 1 else y.extents[axis] for axis in order]
    count = prod(sizes)
    parameters.integer("count", count)
    parameters.integer("apart", groups)
    parameters.integers("size", sizes)
    parameters.integers("magic", [magic(size) for size in sizes])
    name = f"grid_sample__{''.join(map(str, order))}"
    text = kernel_text(
        name,
        ["grid_sample.cu"],
        parameters=parameters.text,
        functions=[_store("y", y)],
        constants={
            "THREADS": _THREADS,
            "CHANNELS": channels,
            "VEC_WIDTH": vec_width,
            "Compute": COMPUTE_TYPE[anchor.compute_type],
            "Index": _counted(anchor.x, y),
            "Count": count_type(count),
            **{field: order.index(axis) for axis, field in enumerate(_AXES)},
        },
    )
    return DeviceKernel(
        name, (Launch(text, "grid_sample", (_blocks(count, device), 1, 1), _THREADS, parameters.pack()),)
    )


def generate_backward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, GridSampleBackward)
    if not _is_worth_turning(anchor):
        return _gathered(anchor, device)
    steps = LaunchSequence(op, device)
    x, dy = (steps.relayout(t, channels_last_strides(t.extents)) for t in (anchor.x, anchor.dy))
    dx = x.model_copy(update={"uid": steps.new_uid(), "data_type": anchor.dx.data_type})
    steps.workspace_offsets[dx.uid] = steps.allocate(dx.bytes)
    steps.include(_gathered(anchor.model_copy(update={"x": x, "dy": dy, "dx": dx}), device))
    steps.copy_into(dx, anchor.dx)
    return steps.kernel("grid_sample_bwd__turned")


def _gathered(anchor: GridSampleBackward, device: DeviceSpec) -> DeviceKernel:
    launches = (_boxes(anchor), _image(anchor), _grid(anchor))
    scratch = anchor.x.extents[0] * prod(_pieces(anchor)) * _BOX
    return DeviceKernel("grid_sample_bwd", tuple(early(launch, device) for launch in launches), scratch)


def _is_worth_turning(op: GridSampleBackward) -> bool:
    """Whether large images of narrow elements have channels that a transpose would make contiguous."""
    images = (op.x, op.dy, op.dx)
    if op.x.elements < _LEAST_TURNED or any(_vec_width(t) > 1 or ELEMENTS[t.data_type].bytes > _NARROW for t in images):
        return False
    return all(op.x.extents[1] % (_VEC_BYTES // ELEMENTS[t.data_type].bytes) == 0 for t in images)


def _channels_of_image(op: GridSampleBackward) -> int:
    """Channels of a CTA: of a thread, or of the lanes that share a pixel. A double accumulator takes two registers."""
    is_double, vec_width = op.compute_type is DataType.DOUBLE, _vec_width(op.dy, op.dx)
    if vec_width == 1:
        return _CHANNELS if is_double else 2 * _CHANNELS
    most = _SHARED_CHANNELS // (2 if is_double else 1)
    return min(most, vec_width * power_above(op.x.extents[1] // vec_width))


def _pieces(op: GridSampleBackward) -> tuple[int, int]:
    """Pieces of an image's grid, in rows and columns."""
    return -(-op.grid.extents[1] // _PIECE_ROWS), -(-op.grid.extents[2] // _PIECE_COLUMNS)


def _add_pieces(parameters: Parameters, op: GridSampleBackward) -> None:
    down, across = _pieces(op)
    parameters.integer("pieces", down * across)
    parameters.integer("pieces_across", across)
    parameters.workspace_pointer("boxes", "void", 0)


def _boxes(op: GridSampleBackward) -> Launch:
    """The launch that computes the bounding boxes of pieces."""
    parameters = Parameters()
    parameters.tensor("grid", op.grid)
    parameters.integers("grid_stride", op.grid.strides)
    n, _, height, width = op.x.extents
    rows, columns = op.grid.extents[1:3]
    for field, value in (("images", n), ("height", height), ("width", width), ("rows", rows), ("columns", columns)):
        parameters.integer(field, value)
    parameters.number("half_height", (height - 1) / 2)
    parameters.number("half_width", (width - 1) / 2)
    _add_pieces(parameters, op)
    text = kernel_text(
        "grid_sample_boxes",
        ["grid_sample_boxes.cu"],
        parameters=parameters.text,
        functions=(),
        constants={"THREADS": _THREADS, **_PIECE, "Compute": COMPUTE_TYPE[op.compute_type]},
    )
    warps = n * prod(_pieces(op))
    return Launch(text, "grid_sample_boxes", (-(-warps * _WARP // _THREADS), 1, 1), _THREADS, parameters.pack())


def _image(op: GridSampleBackward) -> Launch:
    parameters = _described(op, ("grid", "dy"), "dx")
    n, c, height, width = op.x.extents
    across, down, groups = -(-width // _TILE_COLUMNS), -(-height // _TILE_ROWS), -(-c // _channels_of_image(op))
    for field, value in (("tiles_across", across), ("tiles_down", down), ("groups", groups)):
        parameters.integer(field, value)
    _add_pieces(parameters, op)
    vec_width = _vec_width(op.dy, op.dx)
    text = kernel_text(
        "grid_sample_image",
        ["grid_sample_image.cu"],
        variants={"VECTOR_CHANNELS": vec_width > 1},
        parameters=parameters.text,
        functions=[_store("dx", op.dx)],
        constants={
            "THREADS": _TILE_ROWS * _TILE_COLUMNS,
            "TILE_ROWS": _TILE_ROWS,
            "TILE_COLUMNS": _TILE_COLUMNS,
            "CHANNELS": _channels_of_image(op),
            "VEC_WIDTH": vec_width,
            **_PIECE,
            "BLOCKS": _IMAGE_BLOCKS,
            "Element": STORAGE[op.dy.data_type],
            "Compute": COMPUTE_TYPE[op.compute_type],
            "Index": _counted(op.dy, op.dx),
        },
    )
    blocks = across * down * groups * n
    return Launch(text, "grid_sample_image", (blocks, 1, 1), _TILE_ROWS * _TILE_COLUMNS, parameters.pack())


def _grid(op: GridSampleBackward) -> Launch:
    parameters = _described(op, ("x", "grid", "dy"), "dgrid")
    count = prod(op.grid.extents[:3])
    _, rows, columns, _ = op.grid.extents
    parameters.table({"count": count, "magic_rows": magic(rows), "magic_columns": magic(columns)})
    text = kernel_text(
        "grid_sample_grid",
        ["grid_sample_grid.cu"],
        parameters=parameters.text,
        functions=[_store("dgrid", op.dgrid)],
        constants={
            "THREADS": _THREADS,
            "SLICES": _SLICES,
            "VEC_WIDTH": _vec_width(op.x, op.dy),
            "Compute": COMPUTE_TYPE[op.compute_type],
            "Count": count_type(count),
            "Index": _counted(op.x, op.dy),
        },
    )
    return Launch(text, "grid_sample_grid", (-(-count * _SLICES // _THREADS), 1, 1), _THREADS, parameters.pack())


def _blocks(count: int, device: DeviceSpec) -> int:
    return min(-(-count // _THREADS), _BLOCKS_PER_SM * device.sm_count)


def _backward_cost(task: Task, knobs: Knobs) -> Cost:
    """Cost: each tile of pixels visits each position, once for each group of channels."""
    op = task.op.anchor
    assert isinstance(op, GridSampleBackward)
    n, c, height, width = op.x.extents
    tiles = -(-height // _TILE_ROWS) * -(-width // _TILE_COLUMNS) * -(-c // _channels_of_image(op))
    looks = n * tiles * prod(op.grid.extents[1:3]) * _LOOK
    return device_cost(task, looks / task.device.compute_rate(op.compute_type), launches=2)


ENGINE = cuda_engine(
    id=46,
    name="cuda_grid_sample",
    summary="images at the positions of a grid, a thread for several channels of each",
    needs=extension_needs("cuda_grid_sample", GridSample.tag),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
BACKWARD = cuda_engine(
    id=47,
    name="cuda_grid_sample_backward",
    summary="gradients of images and grids, gathered in one order",
    needs=extension_needs("cuda_grid_sample_backward", GridSampleBackward.tag),
    cost=_backward_cost,
    generate=lambda op, device, knobs: generate_backward(op, device),
    is_general=True,
)
