"""Extensions: the builder's methods for operations that the v8 header does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphdnn.builder.description import Description
from graphdnn.builder.operation_methods import convolution_spec
from graphdnn.builder.tensor import Tensor, integers
from graphdnn.enums import ConvolutionMode
from graphdnn.operations import (
    CtcLoss,
    GridSample,
    GridSampleBackward,
    Operation,
    Patches,
    RnnBackwardData,
    RnnBackwardWeights,
    RnnForward,
    RnnSpec,
)


def im2col(
    graph: Description,
    image: Tensor,
    window: Sequence[int],
    padding: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    compute_data_type: Any = None,
    name: str = "",
    pre_padding: Sequence[int] | None = None,
    post_padding: Sequence[int] | None = None,
) -> Tensor:
    """The elements that each position of a convolution reads: ``[C*R*S, N*P*Q]`` of x ``[N, C, H, W]`` and a window
    ``[R, S]``.

    Source: the cuDNN documentation, ``cudnnIm2Col``.

    Args:
        image: x, ``[N, C, H, W]``.
        window: The extents of the filter, one for each spatial axis.
        padding: Zeros on both sides of each spatial axis, in elements. None means 0.
        stride: The step of the filter, in elements. None means 1.
        dilation: The distance between two taps of the filter, in elements. None means 1.
        convolution_mode: ``CROSS_CORRELATION``, or ``CONVOLUTION`` with the filter flipped.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        pre_padding: Zeros before the first element, in place of ``padding``.
        post_padding: Zeros behind the last element, in place of ``padding``.

    Returns:
        The matrix of patches.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
    compute = graph.compute_type((image,), compute_data_type)
    taps = integers(window, graph.here(), "window", "one extent per spatial axis, e.g. [3, 3]")
    fields = {"x": image, "taps": taps, "conv": convolution_spec(graph, image, compute, settings)}
    return graph.add(Patches, fields, ("y",), name, compute)[0]


def grid_sample(
    graph: Description, input: Tensor, grid: Tensor, compute_data_type: Any = None, name: str = ""
) -> Tensor:
    """Bilinear samples: y ``[N, C, P, Q]`` of x ``[N, C, H, W]`` at the positions of a grid ``[N, P, Q, 2]``.

    The positions -1 and 1 are the centres of the first and the last element (``align_corners``). Outside of x
    there are zeros. Source: Jaderberg et al., "Spatial transformer networks", 2015.

    Args:
        input: x, ``[N, C, H, W]``.
        grid: Pairs (x, y), each from -1 to 1.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        The tensor y.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((input, grid), compute_data_type)
    fields = {"x": input, "grid": grid, "arithmetic": compute}
    return graph.add(GridSample, fields, ("y",), name, compute)[0]


def grid_sample_backward(
    graph: Description, loss: Tensor, input: Tensor, grid: Tensor, compute_data_type: Any = None, name: str = ""
) -> list[Tensor]:
    """Gradients of ``grid_sample``: [dx, dgrid].

    Args:
        loss: The gradient dy, ``[N, C, P, Q]``.
        input: x, as in the forward operation.
        grid: As in the forward operation.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [dx, dgrid].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((loss, input, grid), compute_data_type)
    fields = {"x": input, "grid": grid, "dy": loss, "arithmetic": compute}
    return graph.add(GridSampleBackward, fields, ("dx", "dgrid"), name, compute)


def rnn_forward(
    graph: Description,
    rnn: RnnSpec,
    input: Tensor,
    weight: Tensor,
    hx: Tensor | None = None,
    cx: Tensor | None = None,
    training: bool = False,
    seed: Tensor | None = None,
    offset: Tensor | None = None,
    name: str = "",
) -> list[Tensor | None]:
    """A recurrent network over all layers and steps: [y, hy, cy, kept, masks].

    The rows of all steps lie one after another, as many for each step as ``rnn.batch_sizes`` says. ``rnn.matrix``
    and ``rnn.bias`` say where matrices and biases lie among the weights. Source of the formulas: the cuDNN
    documentation, ``cudnnRNNMode_t``.

    Args:
        rnn: The description of the network.
        input: x, ``[rows, input size]``.
        weight: The packed weights, ``[rnn.weight_count]``.
        hx: The first states, ``[layers * directions, sequences, hidden size]``. None means zeros.
        cx: The first cell states of an LSTM, with the extents of ``hx``. None means zeros.
        training: True returns ``kept`` and ``masks``, which the gradients read.
        seed: A tensor ``[1]`` with the seed of the dropout masks.
        offset: A tensor ``[1]`` with the position in the sequence of random numbers.
        name: A label for reports and error messages.

    Returns:
        [y, hy, cy, kept, masks]. y is ``[rows, width]``. A result that the network does not have is None.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    outputs = ["y", "hy", *(["cy"] if rnn.has_cells else [])]
    if training:
        outputs += (["kept"] if rnn.kept_count else []) + (["masks"] if rnn.draws_masks else [])
    fields = {"x": input, "w": weight, "hx": hx, "cx": cx, "seed": seed, "offset": offset}
    found = _recurrent(graph, RnnForward, rnn, fields, outputs, name)
    return [found.get(port) for port in ("y", "hy", "cy", "kept", "masks")]


def rnn_backward_data(
    graph: Description,
    rnn: RnnSpec,
    output: Tensor,
    loss: Tensor,
    weight: Tensor,
    hx: Tensor | None = None,
    cx: Tensor | None = None,
    dhy: Tensor | None = None,
    dcy: Tensor | None = None,
    kept: Tensor | None = None,
    masks: Tensor | None = None,
    name: str = "",
) -> list[Tensor | None]:
    """Gradient of ``rnn_forward`` for the data: [dx, dhx, dcx, kept gradients].

    Args:
        rnn: The description of the network.
        output: y of the forward operation.
        loss: The gradient dy, with the extents of y.
        weight: The packed weights.
        hx: As in the forward operation.
        cx: As in the forward operation.
        dhy: The gradient of the last states. None means zeros.
        dcy: The gradient of the last cell states. None means zeros.
        kept: The values that ``rnn_forward`` returned in training.
        masks: The dropout masks that ``rnn_forward`` returned.
        name: A label for reports and error messages.

    Returns:
        [dx, dhx, dcx, kept gradients]. dcx is None unless the network is an LSTM.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    outputs = ["dx", "dhx", *(["dcx"] if rnn.has_cells else []), "kept_gradients"]
    fields = {"y": output, "dy": loss, "w": weight, "hx": hx, "cx": cx, "dhy": dhy, "dcy": dcy}
    found = _recurrent(graph, RnnBackwardData, rnn, {**fields, "kept": kept, "masks": masks}, outputs, name)
    return [found.get(port) for port in ("dx", "dhx", "dcx", "kept_gradients")]


def rnn_backward_weights(
    graph: Description,
    rnn: RnnSpec,
    input: Tensor,
    output: Tensor,
    kept_gradients: Tensor,
    hx: Tensor | None = None,
    kept: Tensor | None = None,
    masks: Tensor | None = None,
    name: str = "",
) -> Tensor:
    """Gradient of ``rnn_forward`` for the packed weights: dw. Call it after ``rnn_backward_data``.

    Args:
        rnn: The description of the network.
        input: x of the forward operation.
        output: y of the forward operation.
        kept_gradients: The values that ``rnn_backward_data`` returned.
        hx: As in the forward operation.
        kept: The values that ``rnn_forward`` returned in training.
        masks: The dropout masks that ``rnn_forward`` returned.
        name: A label for reports and error messages.

    Returns:
        The tensor dw, ``[rnn.weight_count]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    fields = {"x": input, "y": output, "hx": hx, "kept": kept, "masks": masks, "kept_gradients": kept_gradients}
    return _recurrent(graph, RnnBackwardWeights, rnn, fields, ["dw"], name)["dw"]


def _recurrent(
    graph: Description, cls: type[Operation], rnn: RnnSpec, fields: dict[str, Any], outputs: list[str], name: str
) -> dict[str, Tensor]:
    given = {port: tensor for port, tensor in fields.items() if tensor is not None}
    made = graph.add(cls, {"rnn": rnn, **given}, tuple(outputs), name, rnn.arithmetic)
    return dict(zip(outputs, made, strict=True))


def ctc_loss(
    graph: Description,
    probs: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    input_lengths: Tensor,
    generate_gradients: bool = False,
    compute_data_type: Any = None,
    name: str = "",
) -> list[Tensor | None]:
    """CTC loss of probabilities ``[steps, sequences, classes]`` that a softmax has computed: [costs, gradients or
    None].

    Class 0 is the blank. A label that does not fit into its sequence costs infinity. Source: Graves et al.,
    "Connectionist temporal classification", 2006.

    Args:
        probs: The probabilities.
        labels: ``[sequences, longest label]`` in INT32.
        label_lengths: ``[sequences]`` in INT32.
        input_lengths: The number of steps of each sequence, ``[sequences]`` in INT32.
        generate_gradients: True returns the gradients of the softmax's input as well.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [costs, gradients or None]. The costs are ``[sequences]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((probs,), compute_data_type)
    fields = {
        "probs": probs, "labels": labels, "label_lengths": label_lengths, "input_lengths": input_lengths,
        "arithmetic": compute,
    }  # fmt: skip
    outputs = ("costs", "gradients") if generate_gradients else ("costs",)
    found: list[Tensor | None] = list(graph.add(CtcLoss, fields, outputs, name, compute))
    return found if generate_gradients else [*found, None]
