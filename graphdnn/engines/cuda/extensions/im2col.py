"""Engine ``cuda_im2col``: the elements that a convolution reads, as a matrix."""

from __future__ import annotations

from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.extensions.extension_requirements import extension_needs
from graphdnn.enums import ConvolutionMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Patches
from graphdnn.operations.im2col import positions

_THREADS = 256
_BLOCKS_PER_SM = 16
_WORD = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}  # by bytes


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, Patches)
    x, y, conv = anchor.x, anchor.y, anchor.conv
    parameters = Parameters()
    parameters.tensor("x", x)
    parameters.tensor("y", y, is_output=True)
    count = prod(y.extents)
    parameters.integer("count", count)
    parameters.integer("columns", y.extents[1])
    for name, values in (
        ("x_stride", x.strides), ("y_stride", y.strides), ("extent", x.extents[2:]), ("taps", anchor.taps),
        ("places", positions(x.extents, anchor.taps, conv)), ("step", conv.filter_strides),
        ("dilation", conv.dilations), ("padding", conv.pre_paddings),
    ):  # fmt: skip
        parameters.integers(name, values)
    size = ELEMENTS[x.data_type].bytes
    flipped = conv.mode is ConvolutionMode.CONVOLUTION
    name = f"patches__b{size}r{conv.spatial_dims}{'f' if flipped else ''}"
    text = kernel_text(
        name,
        ["im2col_matrix.cu"],
        parameters=parameters.text,
        functions=[],
        constants={"THREADS": _THREADS, "RANK": conv.spatial_dims, "FLIPPED": flipped, "Item": _WORD[size]},
    )
    blocks = min(-(-count // _THREADS), _BLOCKS_PER_SM * device.sm_count)
    return DeviceKernel(name, (Launch(text, "im2col_matrix", (blocks, 1, 1), _THREADS, parameters.pack()),))


ENGINE = cuda_engine(
    id=48,
    name="cuda_im2col",
    summary="the matrix of what each tap of a convolution reads",
    needs=extension_needs("cuda_im2col", Patches.tag),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
