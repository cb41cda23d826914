"""Attention: the builder's ``sdpa``, which writes the operations that the frontend's name stands for."""

from __future__ import annotations

from math import inf
from typing import Any

from graphdnn.builder.extensions import Extensions
from graphdnn.builder.tensor import Tensor, refuse_given
from graphdnn.enums import DataType, ReductionOperator
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

OPERANDS = Rule(
    id="builder.sdpa",
    expected="q [..., rows, depth], k [..., keys, depth] and v [..., keys, columns], with extents, of one rank of 3 or more",
    reason="the extents of scores, masks and sums follow from these",
    fix="hand in tensors with extents; those of results of other operations can be set with set_dim",
)
_LEAST_RANK = 3
_APART = "no operation here computes it in the kernel"
_LENGTHS = "rows of padding are computed like all others, and are for the caller to ignore"


class Attention(Extensions):
    """Arguments have the names of cuDNN's frontend; what is not offered is refused."""

    def sdpa(
        self,
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
        """[o, statistics or None]: softmax(q k^T * attn_scale + bias) v, statistics the logarithms of rows' sums.

        q is ``[..., rows, depth]``, k ``[..., keys, depth]``, v ``[..., keys, columns]``; heads of k and v may be fewer,
        each for several consecutive ones of q. ``seq_len_kv``, ``[batch, 1, ..., 1]`` in INT32, says how many keys there
        are. A row sees the keys up to its own index, or, bottom right, to that counted from the last key;
        ``sliding_window_length``: the last so many of those. A row that sees none is NaN.
        """
        refused = {
            "block_mask": (block_mask, _APART), "dropout": (dropout, _APART),
            "use_alibi_mask": (use_alibi_mask or None, "write it as a bias"), "seq_len_q": (seq_len_q, _LENGTHS),
            "paged_attention_k_table": (paged_attention_k_table, _APART),
            "paged_attention_v_table": (paged_attention_v_table, _APART),
        }  # fmt: skip
        for argument, (value, reason) in refused.items():
            refuse_given(value, self._here, argument, reason)
        if use_padding_mask and seq_len_kv is None:
            raise BadParam(OPERANDS.reject(self._here(), "seq_len_kv", None))
        ranks = {len(t.dim or ()) for t in (q, k, v)}
        if len(ranks) != 1 or min(ranks) < _LEAST_RANK:
            raise BadParam(OPERANDS.reject(self._here(), "q, k, v", tuple(t.dim for t in (q, k, v))))
        compute = self._compute_type((q, k, v), compute_data_type)
        rank, rows, keys = len(q.dim), q.dim[-2], k.dim[-2]

        def made(result: Tensor, kind: DataType = DataType.FLOAT) -> Tensor:
            return result.set_data_type(kind)

        def named(what: str) -> str:
            return f"{name}::{what}" if name else ""

        turned = self.transpose(k, [*range(rank - 2), rank - 1, rank - 2], name=named("k"))
        x = made(self.matmul(q, turned, compute_data_type=compute, name=named("scores")))
        extents = [*(max(a, b) for a, b in zip(q.dim[:-2], k.dim[:-2], strict=True)), rows, keys]
        if attn_scale is not None:
            factor = attn_scale if isinstance(attn_scale, Tensor) else self.tensor_scalar(attn_scale, DataType.FLOAT)
            x = made(self.mul(x, factor, compute_data_type=compute))
        if bias is not None:
            x = made(self.add(x, bias, compute_data_type=compute))
        masks = []
        if seq_len_kv is not None:
            masks.append(self.cmp_lt(self._index(x, rank - 1), seq_len_kv, compute_data_type=DataType.INT32))
        is_causal = use_causal_mask or use_causal_mask_bottom_right
        if is_causal or sliding_window_length is not None:
            row = self._index(x, rank - 2, keys - rows if use_causal_mask_bottom_right else 0)
            if sliding_window_length is not None:
                reached = self._index(x, rank - 1, sliding_window_length)
                masks.append(self.cmp_gt(reached, row, compute_data_type=DataType.INT32))
            if is_causal:
                masks.append(self.cmp_ge(row, self._index(x, rank - 1), compute_data_type=DataType.INT32))
        for mask in masks:
            hidden = self.tensor_scalar(-inf, DataType.FLOAT)
            x = made(self.binary_select(x, hidden, made(mask, DataType.BOOLEAN), compute_data_type=compute))
        of_rows = [*extents[:-1], 1]
        most = made(self.reduction(x, ReductionOperator.MAX, compute).set_dim(of_rows))
        powers = made(self.exp(made(self.sub(x, most, compute_data_type=compute)), compute_data_type=compute))
        total = made(self.reduction(powers, ReductionOperator.ADD, compute).set_dim(of_rows))
        kind = v.data_type or (self.natural_type(v) if v.is_virtual else self._io)
        p = self.div(powers, total, compute_data_type=compute, name=named("probabilities"))
        if kind is not None:
            made(p, kind)
        o = self.matmul(p, v, compute_data_type=compute, name=name)
        if not generate_stats:
            return [o, None]
        logarithm = made(self.log(total, compute_data_type=compute))
        return [o, made(self.add(most, logarithm, compute_data_type=compute, name=named("stats")))]

    def _index(self, scores: Tensor, axis: int, by: int = 0) -> Tensor:
        """Of each score along an axis, and so much more."""
        found = self.gen_index(scores, axis=axis, compute_data_type=DataType.INT32).set_data_type(DataType.INT32)
        if not by:
            return found
        moved = self.add(found, self.tensor_scalar(by, DataType.INT32), compute_data_type=DataType.INT32)
        return moved.set_data_type(DataType.INT32)
