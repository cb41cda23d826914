"""Patterns: a kernel in the field's words, ``conv+bias+relu``, held against what was fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphdnn.enums import NormMode, PointwiseMode, ResampleMode
from graphdnn.errors import BadParam
from graphdnn.fusion import FusedGraph, FusedOp
from graphdnn.fusion.patterns.attention import attention_of
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    GenStats,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleForward,
)
from graphdnn.rules import Rule

WORD = Rule(
    id="lock.pattern.word",
    expected="words like {known}, a pointwise mode, or the name of an operation of the graph",
    reason="no operation of the graph could be called that",
    fix="write the kernel's operations in order, joined by +: conv+bias+relu",
)

Is = Callable[[Operation], bool]


def _mode(*modes: PointwiseMode) -> Is:
    return lambda op: isinstance(op, PointwiseOperation) and op.spec.mode in modes


def _kind(*kinds: type[Operation]) -> Is:
    return lambda op: isinstance(op, kinds)


def _norm(*modes: NormMode) -> Is:
    return lambda op: isinstance(op, (NormForward, NormBackward)) and op.mode in modes


def _pool(*modes: ResampleMode) -> Is:
    return lambda op: isinstance(op, ResampleForward) and op.spec.mode in modes


def _both(first: Is, second: Is) -> Is:
    return lambda op: first(op) and second(op)


def _broadcasts(op: Operation) -> bool:
    """One operand is repeated along an axis: a bias, a scale."""
    inputs = list(op.inputs().values())
    return len(inputs) == 2 and inputs[0].extents != inputs[1].extents


def _is_clipped(op: Operation) -> bool:
    return isinstance(op, PointwiseOperation) and op.spec.relu_upper_clip < float("inf")


_M, _R = PointwiseMode, ResampleMode
WORDS: Mapping[str, Is] = {
    "conv": _kind(ConvForward), "dgrad": _kind(ConvBackwardData), "wgrad": _kind(ConvBackwardFilter),
    "convolution": _kind(ConvolutionOperation), "matmul": _kind(Matmul), "gemm": _kind(Matmul),
    "bias": _both(_mode(_M.ADD), _broadcasts),
    "residual": _both(_mode(_M.ADD), lambda op: not _broadcasts(op)),
    "scale": _both(_mode(_M.MUL), _broadcasts), "add": _mode(_M.ADD), "mul": _mode(_M.MUL),
    "relu": _mode(_M.RELU_FWD), "clip": _both(_mode(_M.RELU_FWD), _is_clipped),
    "gelu": _mode(_M.GELU_FWD, _M.GELU_APPROX_TANH_FWD), "silu": _mode(_M.SWISH_FWD), "swish": _mode(_M.SWISH_FWD),
    "sigmoid": _mode(_M.SIGMOID_FWD), "tanh": _mode(_M.TANH_FWD), "elu": _mode(_M.ELU_FWD),
    "pool": _kind(ResampleForward), "maxpool": _pool(_R.MAXPOOL),
    "avgpool": _pool(_R.AVGPOOL_EXCLUDE_PADDING, _R.AVGPOOL_INCLUDE_PADDING),
    "reduce": _kind(Reduction), "sum": _kind(Reduction), "norm": _kind(NormForward, NormBackward),
    "batchnorm": _norm(NormMode.BATCH_NORM), "layernorm": _norm(NormMode.LAYER_NORM),
    "rmsnorm": _norm(NormMode.RMS_NORM), "instancenorm": _norm(NormMode.INSTANCE_NORM),
    "genstats": _kind(GenStats), "bn_finalize": _kind(BnFinalize), "bn_weights": _kind(BnBackwardWeights),
}  # fmt: skip
_SOFTMAX = "softmax"


@dataclass(frozen=True, slots=True)
class _Softmax:
    """The operations of a softmax, taken as one."""


def kernels_like(fused: FusedGraph, pattern: str, *, exact: bool = False) -> list[FusedOp]:
    """The kernels that hold the pattern's operations one after another; ``exact``: and no others.

    Raises ``BadParam`` for a word that nothing in the graph could be called.
    """
    words = [word.strip() for word in pattern.split("+")]
    for word in words:
        if not _is_known(word, fused):
            known = ", ".join((*WORDS, _SOFTMAX))
            raise BadParam(WORD.reject("assert_fused", "pattern", word or "nothing", known=known))
    return [op for op in fused if _holds(_steps(op), words, exact)]


def _is_known(word: str, fused: FusedGraph) -> bool:
    modes = {mode.name.lower() for mode in PointwiseMode}
    named = {op.name for op in fused.graph.operations} | {op.tag for op in fused.graph.operations}
    if not word:
        return False
    return word in WORDS or word == _SOFTMAX or bool({word, f"{word}_fwd", f"{word}_bwd"} & modes) or word in named


def _steps(kernel: FusedOp) -> list[Operation | _Softmax]:
    """The operations in order, those of a softmax as one."""
    operations: list[Operation | _Softmax] = list(kernel.operations)
    found = attention_of(kernel.operations) if kernel.rule == "attention" else None
    if found is not None:
        places = {id(op): place for place, op in enumerate(kernel.operations)}
        return [*operations[: places[id(found.maximum)]], _Softmax(), *operations[places[id(found.quotient)] + 1 :]]
    if kernel.rule != "softmax":
        return operations
    first = next(i for i, op in enumerate(kernel.operations) if isinstance(op, Reduction) or _mode(_M.EXP)(op))
    ends = [i for i, op in enumerate(kernel.operations) if _mode(_M.DIV)(op) or (_mode(_M.SUB)(op) and i > first + 1)]
    last = max(ends, default=len(operations) - 1)
    return [*operations[:first], _Softmax(), *operations[last + 1 :]]


def _holds(steps: Sequence[Operation | _Softmax], words: Sequence[str], exact: bool) -> bool:
    starts = range(len(steps) - len(words) + 1)
    if exact and len(steps) != len(words):
        return False
    return any(all(_is(steps[start + i], word) for i, word in enumerate(words)) for start in starts)


def _is(step: Operation | _Softmax, word: str) -> bool:
    if isinstance(step, _Softmax):
        return word == _SOFTMAX
    if word in WORDS:
        return WORDS[word](step)
    mode = step.spec.mode.name.lower() if isinstance(step, PointwiseOperation) else ""
    return word in (step.name, step.tag) or mode in (word, f"{word}_fwd", f"{word}_bwd")


def described(fused: FusedGraph) -> str:
    """What was fused and what was not, as a failing test shows it."""
    lines = ["fused:", *(f"  [{op.index}] {' + '.join(step.label() for step in op.operations)}" for op in fused)]
    if fused.stopped_by:
        lines.append("not fused:")
    for stop in fused.stopped_by:
        lines += [f"  {stop.subject}: {stop.actual}, required {stop.required} [{stop.rule}]", f"    why: {stop.reason}",
                  f"    fix: {stop.fix}"]  # fmt: skip
    return "\n".join(lines)
