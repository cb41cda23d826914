"""Extensions: the builder's methods for operations that the v8 header does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphdnn.builder.norm_methods import Normalizations
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


class Extensions(Normalizations):
    """Recurrent networks are described once, by a ``graphdnn.RnnSpec``; the arithmetic is the network's."""

    def im2col(
        self,
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
        """What each position of a convolution reads: ``[C*R*S, N*P*Q]`` of x ``[N, C, H, W]``, window ``[R, S]``."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        compute = self._compute_type((image,), compute_data_type)
        taps = integers(window, self._here(), "window", "one extent per spatial axis, e.g. [3, 3]")
        fields = {"x": image, "taps": taps, "conv": self._positions(image, compute, settings)}
        return self._add(Patches, fields, ("y",), name, compute)[0]

    def grid_sample(self, input: Tensor, grid: Tensor, compute_data_type: Any = None, name: str = "") -> Tensor:
        """y ``[N, C, P, Q]``: x ``[N, C, H, W]`` at the positions (x, y) of a grid ``[N, P, Q, 2]``, bilinear.

        Positions run from -1 to 1 with the ends on the centres of the outermost elements (``align_corners``); outside
        of x there are zeros.
        """
        compute = self._compute_type((input, grid), compute_data_type)
        fields = {"x": input, "grid": grid, "arithmetic": compute}
        return self._add(GridSample, fields, ("y",), name, compute)[0]

    def grid_sample_backward(
        self, loss: Tensor, input: Tensor, grid: Tensor, compute_data_type: Any = None, name: str = ""
    ) -> list[Tensor]:
        """[dx, dgrid]."""
        compute = self._compute_type((loss, input, grid), compute_data_type)
        fields = {"x": input, "grid": grid, "dy": loss, "arithmetic": compute}
        return self._add(GridSampleBackward, fields, ("dx", "dgrid"), name, compute)

    def rnn_forward(
        self,
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
        """[y, hy, cy, kept, masks] of x ``[rows, input size]`` and packed weights; y is ``[rows, width]``.

        The rows of all steps lie one after another, as many for each step as ``rnn.batch_sizes`` says. ``hx``, ``cx``
        and the last states are ``[layers * directions, sequences, hidden size]``, without hx and cx zeros; cx and cy
        are LSTM's. Where matrices and biases lie among the weights, ``rnn.matrix`` and ``rnn.bias`` say. ``training``
        gives ``kept`` and ``masks``, which the gradients read: masks where there is dropout between layers, drawn
        from ``seed`` and ``offset``, two integers as tensors ``[1]``.
        """
        outputs = ["y", "hy", *(["cy"] if rnn.has_cells else [])]
        if training:
            outputs += (["kept"] if rnn.kept_count else []) + (["masks"] if rnn.draws_masks else [])
        fields = {"x": input, "w": weight, "hx": hx, "cx": cx, "seed": seed, "offset": offset}
        found = self._recurrent(RnnForward, rnn, fields, outputs, name)
        return [found.get(port) for port in ("y", "hy", "cy", "kept", "masks")]

    def rnn_backward_data(
        self,
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
        """[dx, dhx, dcx, kept gradients], with what the forward pass kept; left out, dhy and dcy are zeros."""
        outputs = ["dx", "dhx", *(["dcx"] if rnn.has_cells else []), "kept_gradients"]
        fields = {"y": output, "dy": loss, "w": weight, "hx": hx, "cx": cx, "dhy": dhy, "dcy": dcy}
        found = self._recurrent(RnnBackwardData, rnn, {**fields, "kept": kept, "masks": masks}, outputs, name)
        return [found.get(port) for port in ("dx", "dhx", "dcx", "kept_gradients")]

    def rnn_backward_weights(
        self,
        rnn: RnnSpec,
        input: Tensor,
        output: Tensor,
        kept_gradients: Tensor,
        hx: Tensor | None = None,
        kept: Tensor | None = None,
        masks: Tensor | None = None,
        name: str = "",
    ) -> Tensor:
        """dw, the gradient of the packed weights, after ``rnn_backward_data``."""
        fields = {"x": input, "y": output, "hx": hx, "kept": kept, "masks": masks, "kept_gradients": kept_gradients}
        return self._recurrent(RnnBackwardWeights, rnn, fields, ["dw"], name)["dw"]

    def _recurrent(
        self, cls: type[Operation], rnn: RnnSpec, fields: dict[str, Any], outputs: list[str], name: str
    ) -> dict[str, Tensor]:
        given = {port: tensor for port, tensor in fields.items() if tensor is not None}
        made = self._add(cls, {"rnn": rnn, **given}, tuple(outputs), name, rnn.arithmetic)
        return dict(zip(outputs, made, strict=True))

    def ctc_loss(
        self,
        probs: Tensor,
        labels: Tensor,
        label_lengths: Tensor,
        input_lengths: Tensor,
        generate_gradients: bool = False,
        compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor | None]:
        """[costs, gradients or None] of probabilities ``[steps, sequences, classes]`` behind a softmax.

        ``labels`` are ``[sequences, longest label]``, lengths ``[sequences]``, all INT32; class 0 is the blank. Costs
        are one number for each sequence, infinity where the label does not fit; gradients are those of what was
        before the softmax.
        """
        compute = self._compute_type((probs,), compute_data_type)
        fields = {
            "probs": probs, "labels": labels, "label_lengths": label_lengths, "input_lengths": input_lengths,
            "arithmetic": compute,
        }  # fmt: skip
        outputs = ("costs", "gradients") if generate_gradients else ("costs",)
        found: list[Tensor | None] = list(self._add(CtcLoss, fields, outputs, name, compute))
        return found if generate_gradients else [*found, None]
