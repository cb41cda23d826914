"""The epilogue of a kernel with a Winograd output transform."""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.winograd.winograd_layout import Winograd
from graphdnn.fusion.fused_graph import FusedOp


def output_epilogue(
    op: FusedOp, w: Winograd, steps: LaunchSequence, parameters: Parameters, most: int
) -> tuple[str, int]:
    """The epilogue's text and its vector width: at most ``most`` channels, or the columns of a tile."""
    space = w.roles.space(w.roles.output)
    axis = 2 if w.channels_last else 5
    width = min(width_for(space, steps.epilogue_tensors(), axis), most if w.channels_last else w.algorithm.m)
    body = Program(op, parameters, space, "t", width=width, vector_axis=axis)
    steps.write_epilogue(body, "acc", "float")
    parameters.integers("size", w.result_size)
    parameters.integer("tiles", w.tiles)
    parameters.integer("tiles_p", w.grid[0])
    parameters.integer("tiles_q", w.grid[1])
    parameters.integer("outer", w.outer)
    return body.function("epilogue", f"const float (&acc)[{width}]"), width
