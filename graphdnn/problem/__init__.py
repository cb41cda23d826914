"""Problems as one line of text, for the command line: operands, settings, and what follows after ``+``.

    conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3] pad=1 + bias + relu
    conv x=f16[4,2,8,28,28] w=f16[2,16,8,3,3] pad=1 stride=2 spatial=2      (with a group axis)
    dgrad dy=f32[8,64,28,28] w=f32[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2
    wgrad x=f32[8,32,28,28] dy=f32[8,64,28,28] dw=[64,32,3,3] pad=1
    matmul a=f16[8,128,64] b=f16[8,64,256] + bias + gelu
    pool max x=f32[2,8,32,32] window=3 stride=2 pad=1
    reduce add x=f32[8,64,56,56] y=[1,64,1,1]
    norm layer x=f32[32,256]
    pointwise x=f32[8,64,56,56] + mul + tanh
    conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + clip(0,6) -> reduce add [1,64,1,1]

Grammar: an operation, its words, then steps separated by ``+``, and at the end perhaps
``-> reduce operator [extents]``, which reduces the axes of extent 1. An operand is
``name=type[extents]layout``: the type one of f64 f32 f16 bf16 e4m3 e5m2 i8 u8 i16 i32
i64 bool, the layout ``nhwc`` (channels last) or nothing (row-major). Settings are
``name=number`` or ``name=a,b`` per spatial axis: pad, pre, post, stride, dil, window, spatial.
``compute=type`` is the arithmetic, ``out=type`` the type of the final result;
all of them stand before the first ``+``; ``mode=conv`` flips
the filter. Steps: ``bias`` (per channel of every group, or per column after matmul), ``residual``
(same extents, with the first operand's type and layout), ``scale`` (per channel), ``mul`` (as ``residual``),
``clip(low,high)``, and every elementwise mode of one operand, with its parameters in parentheses:
``relu(0,6)``, ``leaky_relu(0.1)``.
"""

from __future__ import annotations

from typing import Any

from graphdnn.analysis.random_operands import random_operands
from graphdnn.builder import Graph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.problem.parser import parse


def random_bindings(graph: OperationGraph | Graph, seed: int = 0, *, extreme: bool = False) -> dict[int, Any]:
    """Random arrays for every bound tensor of a graph.

    Args:
        graph: The graph, described or checked.
        seed: The same seed draws the same numbers.
        extreme: True draws integers from the full range of their type.

    Returns:
        ``{uid: array}`` with arrays in host memory.

    Raises:
        BadParam: The graph is invalid.
    """
    return random_operands(graph.build_operation_graph() if isinstance(graph, Graph) else graph, seed, extreme=extreme)


__all__ = ["parse", "random_bindings"]
