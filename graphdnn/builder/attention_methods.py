"""Attention: the builder's ``sdpa``, which writes the operations that the frontend's name stands for."""

from __future__ import annotations

from math import inf
from typing import Any

from graphdnn.builder.description import Description
from graphdnn.builder.operation_methods import matmul, pointwise, reduction, transpose
from graphdnn.builder.tensor import Tensor, integers, refuse_given
from graphdnn.enums import DataType, ReductionOperator
from graphdnn.enums import PointwiseMode as M
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

OPERANDS = Rule(
    id="builder.sdpa",
    expected="q [..., rows, depth], k [..., keys, depth] and v [..., keys, columns], of one rank of 3 or more",
    reason="the extents of scores, masks and sums follow from the extents of q, k and v",
    fix="pass tensors with extents; set_dim sets the extents of a result",
)
MASKS = Rule(
    id="builder.sdpa.masks",
    expected="seq_len_kv for a padding mask, and a window of at least one key",
    reason="seq_len_kv says which keys are padding; a row without a key has no result",
    fix="pass seq_len_kv, [batch, 1, ..., 1] in INT32, with use_padding_mask, and 1 or more as sliding_window_length",
)
_LEAST_RANK = 3
_INDEX = DataType.INT32
_APART = "no operation here computes it in the kernel"
_LENGTHS = "rows of padding are computed like all others, and are for the caller to ignore"


def sdpa(
    graph: Description,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_scale: Tensor | float | None = None,
    bias: Tensor | None = None,
    use_padding_mask: bool = False,
    seq_len_kv: Tensor | None = None,
    use_causal_mask: bool = False,
    use_causal_mask_bottom_right: bool = False,
    sliding_window_length: int | None = None,
    generate_stats: bool = False,
    compute_data_type: Any = None,
    name: str = "",
    *,
    seq_len_q: Tensor | None = None,
    block_mask: Tensor | None = None,
    use_alibi_mask: bool = False,
    dropout: Any = None,
    paged_attention_k_table: Tensor | None = None,
    paged_attention_v_table: Tensor | None = None,
) -> list[Tensor | None]:
    """Scaled dot-product attention: ``softmax(q k^T * attn_scale + bias) v``.

    The softmax is computed in FLOAT, or in DOUBLE if the arithmetic is DOUBLE. A row that sees no key is NaN.
    Source: Vaswani et al., "Attention is all you need", 2017.

    Args:
        q: ``[..., rows, depth]``.
        k: ``[..., keys, depth]``. It may have fewer heads than q; each head then serves several consecutive heads
            of q.
        v: ``[..., keys, columns]``, with as many heads as k.
        attn_scale: A factor of the scores: a number, or a tensor with one element. None means 1.
        bias: A tensor that broadcasts to the scores ``[..., rows, keys]``.
        use_padding_mask: True needs ``seq_len_kv``.
        seq_len_kv: The number of keys of each sequence, ``[batch, 1, ..., 1]`` in INT32.
        use_causal_mask: True lets a row see the keys up to its own index.
        use_causal_mask_bottom_right: True counts that index from the last key.
        sliding_window_length: A row sees only so many keys, the last ones that the other masks let it see.
        generate_stats: True returns the logarithms of the rows' sums as well.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        seq_len_q: Only None.
        block_mask: Only None.
        use_alibi_mask: Only False. Write the mask as a bias.
        dropout: Only None.
        paged_attention_k_table: Only None.
        paged_attention_v_table: Only None.

    Returns:
        [o, statistics or None]. o is ``[..., rows, columns]``, and the statistics are ``[..., rows, 1]``.

    Raises:
        BadParam: Extents do not fit, a mask is incomplete, or an operand belongs to another graph.
        NotSupported: An argument is given that is not implemented.
        NotInitialized: The graph is built and accepts no more operations.
    """
    refused = {
        "block_mask": (block_mask, _APART), "dropout": (dropout, _APART),
        "use_alibi_mask": (use_alibi_mask or None, "write it as a bias"), "seq_len_q": (seq_len_q, _LENGTHS),
        "paged_attention_k_table": (paged_attention_k_table, _APART),
        "paged_attention_v_table": (paged_attention_v_table, _APART),
    }  # fmt: skip
    for argument, (value, reason) in refused.items():
        refuse_given(value, graph.here, argument, reason)
    if use_padding_mask and seq_len_kv is None:
        raise BadParam(MASKS.reject(graph.here(), "seq_len_kv", None))
    if sliding_window_length is not None:
        (reach,) = integers([sliding_window_length], graph.here(), "sliding_window_length", "e.g. 128")
        if reach < 1:
            raise BadParam(MASKS.reject(graph.here(), "sliding_window_length", reach))
    for operand in (q, k, v):
        graph.require_own(operand)
    extents = [t.dim or () for t in (q, k, v)]
    rank = len(extents[0])
    if rank < _LEAST_RANK or any(len(e) != rank for e in extents):
        raise BadParam(OPERANDS.reject(graph.here(), "q, k, v", extents))
    with graph.atomic((q, k, v)):
        compute = graph.compute_type((q, k, v), compute_data_type)
        inside = DataType.DOUBLE if compute is DataType.DOUBLE else DataType.FLOAT  # of scores, powers and sums
        of_rows = [*map(max, *(e[:-2] for e in extents[:2])), extents[0][-2], 1]

        def step(mode: M, x: Tensor, b: Tensor | None = None, **operands: Any) -> Tensor:
            return pointwise(graph, mode, x=x, b=b, compute_data_type=compute, **operands).set_data_type(inside)

        def named(what: str) -> str:
            return f"{name}::{what}" if name else ""

        turned = transpose(graph, k, [*range(rank - 2), rank - 1, rank - 2], name=named("k"))
        x = matmul(graph, q, turned, compute_data_type=compute, name=named("scores")).set_data_type(inside)
        if attn_scale is not None:
            scale = attn_scale if isinstance(attn_scale, Tensor) else graph.tensor_scalar(attn_scale, inside)
            x = step(M.MUL, x, scale)
        if bias is not None:
            x = step(M.ADD, x, bias)
        rows, keys = rank - 2, rank - 1  # axes of scores
        moved = extents[1][-2] - extents[0][-2] if use_causal_mask_bottom_right else 0
        masks = [] if seq_len_kv is None else [_compared(graph, M.CMP_LT, _index(graph, x, keys), seq_len_kv)]
        if sliding_window_length is not None:
            reached = _index(graph, x, keys, sliding_window_length)
            masks.append(_compared(graph, M.CMP_GT, reached, _index(graph, x, rows, moved)))
        if use_causal_mask or use_causal_mask_bottom_right:
            masks.append(_compared(graph, M.CMP_GE, _index(graph, x, rows, moved), _index(graph, x, keys)))
        for mask in masks:
            x = step(M.BINARY_SELECT, x, graph.tensor_scalar(-inf), t=mask)
        most = reduction(graph, x, ReductionOperator.MAX, compute).set_dim(of_rows).set_data_type(inside)
        powers = step(M.EXP, step(M.SUB, x, most))
        total = reduction(graph, powers, ReductionOperator.ADD, compute).set_dim(of_rows).set_data_type(inside)
        p = step(M.DIV, powers, total, name=named("probabilities"))
        p.set_data_type(v.data_type or (graph.natural_type(v) if v.is_virtual else graph.io_type))
        o = matmul(graph, p, v, compute_data_type=compute, name=name)
        return [o, step(M.ADD, most, step(M.LOG, total), name=named("stats")) if generate_stats else None]


def _index(graph: Description, scores: Tensor, axis: int, by: int = 0) -> Tensor:
    """Of each score along an axis, and so much more."""
    found = pointwise(graph, M.GEN_INDEX, x=scores, axis=axis, compute_data_type=_INDEX).set_data_type(_INDEX)
    if not by:
        return found
    moved = pointwise(graph, M.ADD, x=found, b=graph.tensor_scalar(by, _INDEX), compute_data_type=_INDEX)
    return moved.set_data_type(_INDEX)


def _compared(graph: Description, mode: M, x: Tensor, b: Tensor) -> Tensor:
    return pointwise(graph, mode, x=x, b=b, compute_data_type=_INDEX).set_data_type(DataType.BOOLEAN)
