"""The launches of the input transform and of the filter transform."""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.winograd.winograd_layout import Panels, Winograd
from graphdnn.fusion.fused_graph import FusedOp

_THREADS = 256
_TILES = 32  # image tiles of a CTA
_OUTER = 64  # output channels of a CTA
_TRANSPOSED_CHANNELS = {2: 16, 4: 8}  # by m: the most channels that fit into 48 KiB of shared memory


def image_fields(w: Winograd, parameters: Parameters) -> None:
    """Add the strides, the padding and the channels of the image."""
    strides = w.roles.space(w.image).strides(w.image)
    for name, stride in zip("nchw", (strides[0], strides[2], strides[4], strides[5]), strict=True):
        parameters.integer(f"image_{name}", stride)
    parameters.integers("pre", w.pre)
    parameters.integer("channels", w.inner)
    parameters.integer("padded_channels", w.padded_inner)


def transform_image(op: FusedOp, w: Winograd, panels: Panels, steps: LaunchSequence, offset: int) -> None:
    """Add the launch of the input transform; ``offset``: bytes from the workspace's start to its result."""
    parameters = Parameters(steps.workspace_offsets)
    space = w.roles.space(w.image)
    if op.prologue:
        program = Program(op, parameters, space, "x")
        program.apply(op.prologue)
        program.copy_widened_to("value", w.image, "float")
        prologue = program.function("prologue", "float (&value)[1]")
        parameters.null_pointer("image", f"const {STORAGE[w.image.data_type]}")
    else:
        prologue = "__device__ __forceinline__ void prologue(const Params&, const int (&)[6], float (&)[1]) {}\n"
        parameters.tensor("image", w.image)
    image_fields(w, parameters)
    parameters.integers("image_size", w.image_size)
    parameters.integer("tiles", w.tiles)
    parameters.integer("tiles_p", w.grid[0])
    parameters.integer("tiles_q", w.grid[1])
    parameters.workspace_pointer("v", "float", offset)
    parameters.integer("v_block", panels.block)
    parameters.integer("v_c", panels.channel)
    parameters.integer("v_xi", panels.component)
    turned = w.image_channels_last
    channels = _TRANSPOSED_CHANNELS[w.algorithm.m] if turned else _THREADS // _TILES
    chain = "".join(f"__{step.label().split(' ')[0]}" for step in op.prologue)
    name = f"winograd_input__m{w.algorithm.m}{'_turned' if turned else ''}{chain}"
    text = kernel_text(
        name,
        ["winograd_input.cu"],
        variants=w.algorithm.variants,
        parameters=parameters.text,
        functions=[prologue],
        constants={
            "THREADS": _THREADS,
            "CHANNELS": channels,
            "TRANSPOSE_IN_SMEM": turned,
            "PROLOGUE": bool(op.prologue),
            "BLOCK_TILES": panels.width,
            "Image": STORAGE[w.image.data_type],
        },
    )
    grid = (panels.padded // _TILES, -(-w.padded_inner // channels), 1)
    steps.add(Launch(text, "winograd_input", grid, _THREADS, parameters.pack()))


def transform_filter(w: Winograd, panels: Panels, steps: LaunchSequence, offset: int) -> None:
    spec = w.roles.op.roles[1]
    parameters = Parameters(steps.workspace_offsets)
    parameters.tensor("filter", spec)
    for name, stride in zip(("outer", "inner", "r", "s"), w.filter_strides, strict=True):
        parameters.integer(f"filter_{name}", stride)
    parameters.integer("outer", w.outer)
    parameters.integer("inner", w.inner)
    parameters.integer("padded_inner", w.padded_inner)
    parameters.workspace_pointer("u", "float", offset)
    parameters.integer("u_block", panels.block)
    parameters.integer("u_c", panels.channel)
    parameters.integer("u_xi", panels.component)
    text = kernel_text(
        f"winograd_filter__m{w.algorithm.m}",
        ["winograd_filter.cu"],
        variants=w.algorithm.variants,
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _THREADS,
            "BLOCK_OUTER": panels.width,
            "FLIP": w.flip,
            "Filter": STORAGE[spec.data_type],
        },
    )
    grid = (panels.padded // _OUTER, -(-w.padded_inner // (_THREADS // _OUTER)), 1)
    steps.add(Launch(text, "winograd_filter", grid, _THREADS, parameters.pack()))
