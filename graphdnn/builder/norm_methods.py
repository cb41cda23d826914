"""Normalizations: batch, layer, instance, RMS and adaptive layer norm, and the batch-norm building blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphdnn.builder.description import Description
from graphdnn.builder.operation_methods import pointwise
from graphdnn.builder.tensor import Tensor, refuse_given
from graphdnn.enums import (
    BnFinalizeStatsMode,
    NormMode,
    NormPhase,
    PointwiseMode,
)
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    NormBackward,
    NormForward,
)

_PEERS = "statistics over several GPUs are not implemented"


def batchnorm(
    graph: Description,
    input: Tensor,
    scale: Tensor,
    bias: Tensor,
    in_running_mean: Tensor | None = None,
    in_running_var: Tensor | None = None,
    epsilon: Tensor | None = None,
    momentum: Tensor | None = None,
    peer_stats: Sequence[Tensor] = (),
    compute_data_type: Any = None,
    name: str = "",
) -> list[Tensor | None]:
    """Batch normalization in training: ``y = scale * (x - mean) / sqrt(variance + epsilon) + bias`` for each
    channel.

    Mean and biased variance are taken over the batch and the spatial axes. The next running statistic is ``(1 -
    momentum) * previous + momentum * current``, with the unbiased variance. Sources: Ioffe and Szegedy, "Batch
    normalization", 2015; the cuDNN documentation, NORM_FORWARD.

    Args:
        input: x, ``[N, C, ...]``.
        scale: ``[1, C, 1, ...]``.
        bias: ``[1, C, 1, ...]``.
        in_running_mean: ``[1, C, 1, ...]``, or None for no running statistics.
        in_running_var: ``[1, C, 1, ...]``, given together with ``in_running_mean``.
        epsilon: One number by value, for example ``tensor_scalar(1e-5)``.
        momentum: One number by value, given together with ``in_running_mean``.
        peer_stats: Only an empty list. Statistics over several GPUs are not implemented.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [y, mean, inverse deviation, next running mean, next running variance]. The last two are None without
        running statistics.

    Raises:
        BadParam: An argument is missing, an operand belongs to another graph, or the extents do not fit.
        NotSupported: ``peer_stats`` is given.
        NotInitialized: The graph is built and accepts no more operations.
    """
    refuse_given(peer_stats, graph.here, "peer_stats", _PEERS)
    running = {"input_running_mean": in_running_mean, "input_running_var": in_running_var, "momentum": momentum}
    outputs = ["y", "mean", "inv_variance"]
    if in_running_mean is not None:
        outputs += ["output_running_mean", "output_running_var"]
    fields = {"scale": scale, "bias": bias, "epsilon": epsilon, **running}
    found = _norm(graph, NormMode.BATCH_NORM, NormPhase.TRAINING, input, fields, outputs, compute_data_type, name)
    return [*found, *(None,) * (5 - len(found))]


def batchnorm_inference(
    graph: Description, input: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, bias: Tensor,
    compute_data_type: Any = None, name: str = "",
) -> Tensor:  # fmt: skip
    """Batch normalization with given statistics: ``y = scale * (x - mean) * inv_variance + bias`` for each channel.

    The method writes four pointwise operations, as the frontend of cuDNN does, so that they fuse with the operation
    that computes x. Source: the cuDNN documentation, NORM_FORWARD.

    Args:
        input: x, ``[N, C, ...]``.
        mean: ``[1, C, 1, ...]``.
        inv_variance: ``1 / sqrt(variance + epsilon)``, ``[1, C, 1, ...]``.
        scale: ``[1, C, 1, ...]``.
        bias: ``[1, C, 1, ...]``.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        The tensor y.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    operands = input, mean, inv_variance, scale, bias
    for operand in operands:
        graph.require_own(operand)
    with graph.atomic(operands):
        compute = graph.compute_type((input,), compute_data_type, exact=False)

        def step(mode: PointwiseMode, x: Tensor, b: Tensor, label: str) -> Tensor:
            return pointwise(graph, mode, x=x, b=b, compute_data_type=compute, name=label)

        def inside(mode: PointwiseMode, x: Tensor, b: Tensor, label: str) -> Tensor:
            return step(mode, x, b, f"{name}::{label}" if name else "").set_data_type(compute)

        centered = inside(PointwiseMode.SUB, input, mean, "centered")
        normalized = inside(PointwiseMode.MUL, centered, inv_variance, "normalized")
        scaled = inside(PointwiseMode.MUL, normalized, scale, "scaled")
        return step(PointwiseMode.ADD, scaled, bias, name)


def layernorm(
    graph: Description, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None,
    epsilon: Tensor, compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """Layer normalization: ``y = scale * (x - mean) / sqrt(variance + epsilon) + bias`` for each sample.

    Mean and biased variance are taken over the axes where the scale has more than one element. Source: Ba, Kiros
    and Hinton, "Layer normalization", 2016.

    Args:
        norm_forward_phase: TRAINING returns the statistics, INFERENCE does not.
        input: x, ``[N, ..., D]``.
        scale: ``[1, ..., D]``, with the extents of the normalized axes.
        bias: The extents of the scale, or None.
        epsilon: One number by value.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [y, mean, inverse deviation]. The statistics are None in INFERENCE.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _phased(graph, NormMode.LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name)


def adalayernorm(
    graph: Description, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
    epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """Adaptive layer normalization: layer normalization with a scale and a bias of each sample.

    The formula is the one of ``layernorm``; mean and biased variance are taken over the last axis. Source: the
    cuDNN documentation, NORM_FORWARD with ADA_LAYER_NORM.

    Args:
        norm_forward_phase: TRAINING returns the statistics, INFERENCE does not.
        input: x, ``[N, ..., D]``.
        scale: ``[N, 1, ..., D]`` for x ``[N, ..., D]``.
        bias: The extents of the scale, or None.
        epsilon: One number by value.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [y, mean, inverse deviation]. The statistics are None in INFERENCE.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _phased(
        graph, NormMode.ADA_LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
    )


def instancenorm(
    graph: Description, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None,
    epsilon: Tensor, compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """Instance normalization: ``y = scale * (x - mean) / sqrt(variance + epsilon) + bias`` over the spatial axes.

    Each sample and channel has a mean and a biased variance. Source: Ulyanov et al., "Instance normalization",
    2016.

    Args:
        norm_forward_phase: TRAINING returns the statistics, INFERENCE does not.
        input: x, ``[N, C, ...]``.
        scale: ``[1, C, 1, ...]``.
        bias: The extents of the scale, or None.
        epsilon: One number by value.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [y, mean, inverse deviation]. The statistics are None in INFERENCE.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _phased(
        graph, NormMode.INSTANCE_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
    )


def rmsnorm(
    graph: Description, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
    epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """RMS normalization: ``y = scale * x / sqrt(mean(x^2) + epsilon) + bias`` for each sample.

    The mean is taken over the axes where the scale has more than one element. Source: Zhang and Sennrich, "Root
    mean square layer normalization", 2019.

    Args:
        norm_forward_phase: TRAINING returns the statistic, INFERENCE does not.
        input: x, ``[N, ..., D]``.
        scale: ``[1, ..., D]``, with the extents of the normalized axes.
        bias: The extents of the scale, or None.
        epsilon: One number by value.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [y, inverse root mean square]. The statistic is None in INFERENCE.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    y, _, inv = _phased(
        graph, NormMode.RMS_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
    )
    return [y, inv]


def _phased(
    graph: Description, mode: NormMode, phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None,
    epsilon: Tensor | None, kind: Any, name: str,
) -> list[Tensor | None]:  # fmt: skip
    phase = NormPhase.named(phase)
    statistics = ["mean", "inv_variance"] if mode is not NormMode.RMS_NORM else ["inv_variance"]
    outputs = ["y", *(statistics if phase is NormPhase.TRAINING else [])]
    found = dict(zip(outputs, _norm(graph,
        mode, phase, input, {"scale": scale, "bias": bias, "epsilon": epsilon}, outputs, kind, name
    ), strict=True))  # fmt: skip
    return [found.get(port) for port in ("y", "mean", "inv_variance")]


def _norm(
    graph: Description,
    mode: NormMode,
    phase: NormPhase,
    x: Tensor,
    fields: Mapping[str, Any],
    outputs: list[str],
    kind: Any,
    name: str,
) -> list[Tensor]:
    compute = graph.compute_type((x,), kind, exact=False)
    given = {port: tensor for port, tensor in fields.items() if tensor is not None}
    node = {"x": x, "mode": mode, "phase": phase, "math_type": compute, **given}
    return graph.add(NormForward, node, tuple(outputs), name, compute)


def batchnorm_backward(
    graph: Description, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor | None = None,
    inv_variance: Tensor | None = None, peer_stats: Sequence[Tensor] = (), compute_data_type: Any = None,
    name: str = "", epsilon: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    """Gradients of ``batchnorm``: [dx, dscale, dbias].

    With ``xh = (x - mean) * inv_variance`` and ``g = scale * dy``: ``dx = inv_variance * (g - mean(g) - xh *
    mean(g * xh))``, ``dscale = sum(dy * xh)`` and ``dbias = sum(dy)``. Source: the cuDNN documentation,
    NORM_BACKWARD.

    Args:
        grad: The gradient dy, ``[N, C, ...]``.
        input: x, as in the forward operation.
        scale: As in the forward operation.
        mean: The mean that the forward operation returned.
        inv_variance: The inverse deviation that the forward operation returned.
        peer_stats: Only an empty list. Statistics over several GPUs are not implemented.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.
        epsilon: One number by value. It replaces ``mean`` and ``inv_variance``, which are then computed again.

    Returns:
        [dx, dscale, dbias].

    Raises:
        BadParam: An operand is missing or belongs to another graph, or the extents do not fit.
        NotSupported: ``peer_stats`` is given.
        NotInitialized: The graph is built and accepts no more operations.
    """
    refuse_given(peer_stats, graph.here, "peer_stats", _PEERS)
    return _norm_backward(
        graph, NormMode.BATCH_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name, epsilon
    )


def layernorm_backward(
    graph: Description, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor]:  # fmt: skip
    """Gradients of ``layernorm``: [dx, dscale, dbias]. The formula is the one of ``batchnorm_backward``.

    Args:
        grad: The gradient dy, ``[N, C, ...]``.
        input: x, as in the forward operation.
        scale: As in the forward operation.
        mean: The mean that the forward operation returned.
        inv_variance: The inverse deviation that the forward operation returned.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dx, dscale, dbias].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _norm_backward(
        graph, NormMode.LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
    )


def adalayernorm_backward(
    graph: Description, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor]:  # fmt: skip
    """Gradients of ``adalayernorm``: [dx, dscale, dbias]. The formula is the one of ``batchnorm_backward``.

    Args:
        grad: The gradient dy, ``[N, C, ...]``.
        input: x, as in the forward operation.
        scale: As in the forward operation.
        mean: The mean that the forward operation returned.
        inv_variance: The inverse deviation that the forward operation returned.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dx, dscale, dbias].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _norm_backward(
        graph, NormMode.ADA_LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
    )


def instancenorm_backward(
    graph: Description, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor]:  # fmt: skip
    """Gradients of ``instancenorm``: [dx, dscale, dbias]. The formula is the one of ``batchnorm_backward``.

    Args:
        grad: The gradient dy, ``[N, C, ...]``.
        input: x, as in the forward operation.
        scale: As in the forward operation.
        mean: The mean that the forward operation returned.
        inv_variance: The inverse deviation that the forward operation returned.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dx, dscale, dbias].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return _norm_backward(
        graph, NormMode.INSTANCE_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
    )


def rmsnorm_backward(
    graph: Description, grad: Tensor, input: Tensor, scale: Tensor, inv_variance: Tensor, has_dbias: bool = False,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of ``rmsnorm``: [dx, dscale, dbias or None].

    The formula is the one of ``batchnorm_backward`` with a mean of 0 and without the term ``mean(g)``.

    Args:
        grad: The gradient dy, ``[N, C, ...]``.
        input: x, as in the forward operation.
        scale: As in the forward operation.
        inv_variance: The inverse root mean square that the forward operation returned.
        has_dbias: True computes dbias as well.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dx, dscale, dbias or None].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    found: list[Tensor | None] = list(
        _norm_backward(
            graph, NormMode.RMS_NORM, grad, input, scale, None, inv_variance, has_dbias, compute_data_type, name
        )
    )
    return found if has_dbias else [*found, None]


def _norm_backward(
    graph: Description, mode: NormMode, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor | None, inv: Tensor | None,
    dbias: bool, kind: Any, name: str, epsilon: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    compute = graph.compute_type((x,), kind, exact=False)
    fields = {"x": x, "dy": dy, "scale": scale, "mode": mode, "math_type": compute}
    given = (("mean", mean), ("inv_variance", inv), ("epsilon", epsilon))
    fields |= {port: t for port, t in given if t is not None}
    outputs = ("dx", "dscale", "dbias") if dbias else ("dx", "dscale")
    return graph.add(NormBackward, fields, outputs, name, compute)


def bn_finalize(
    graph: Description, sum: Tensor, sq_sum: Tensor, scale: Tensor, bias: Tensor, epsilon: Tensor, accum_count: Tensor,
    momentum: Tensor, in_running_mean: Tensor | None = None, in_running_var: Tensor | None = None,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor | None]:  # fmt: skip
    """Turn the sums of ``genstats`` into the statistics and the linear form of batch normalization.

    With ``mean = sum / n``: ``eq_scale = scale * inv_variance`` and ``eq_bias = bias - mean * eq_scale``, so that
    ``y = eq_scale * x + eq_bias``. Source: the cuDNN documentation, BN_FINALIZE.

    Args:
        sum: The sum of each channel, ``[1, C, 1, ...]``.
        sq_sum: The sum of squares of each channel, ``[1, C, 1, ...]``.
        scale: ``[1, C, 1, ...]``.
        bias: ``[1, C, 1, ...]``.
        epsilon: One number by value.
        accum_count: The number n of summed elements, one integer by value.
        momentum: One number by value.
        in_running_mean: ``[1, C, 1, ...]``, or None for no running statistics.
        in_running_var: ``[1, C, 1, ...]``, given together with ``in_running_mean``.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [eq_scale, eq_bias, mean, inverse deviation, next running mean, next running variance]. The last two are
        None without running statistics.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((), compute_data_type, exact=False)
    fields = {
        "mode": BnFinalizeStatsMode.TRAINING, "math_type": compute, "y_sum": sum, "y_sq_sum": sq_sum,
        "scale": scale, "bias": bias, "epsilon": epsilon, "accumulation_count": accum_count, "momentum": momentum,
    }  # fmt: skip
    outputs = ["eq_scale", "eq_bias", "saved_mean", "saved_inv_std"]
    if in_running_mean is not None:
        fields |= {"previous_running_mean": in_running_mean, "previous_running_var": in_running_var}
        outputs += ["updated_running_mean", "updated_running_var"]
    found = graph.add(BnFinalize, fields, tuple(outputs), name, compute)
    return [*found, *(None,) * (6 - len(found))]


def dbn_weight(
    graph: Description, dy: Tensor, x: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor,
    compute_data_type: Any = None, name: str = "",
) -> list[Tensor]:  # fmt: skip
    """Gradients of the weights of batch normalization: [dscale, dbias, A, B, C] of ``dx = A * dy + B * x + C``.

    Source: the cuDNN documentation, BN_BWD_WEIGHTS.

    Args:
        dy: The gradient, ``[N, C, ...]``.
        x: The input of the forward operation, ``[N, C, ...]``.
        mean: ``[1, C, 1, ...]``.
        inv_variance: ``[1, C, 1, ...]``.
        scale: ``[1, C, 1, ...]``.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dscale, dbias, A, B, C], each ``[1, C, 1, ...]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((x,), compute_data_type, exact=False)
    fields = {"x": x, "dy": dy, "mean": mean, "inv_std": inv_variance, "scale": scale, "math_type": compute}
    outputs = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
    return graph.add(BnBackwardWeights, fields, outputs, name, compute)
