"""Normalizations: batch, layer, instance, RMS and adaptive layer norm, and the batch-norm building blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphdnn.builder.operation_methods import Operations
from graphdnn.builder.tensor import Tensor, refuse_given
from graphdnn.enums import (
    BnFinalizeStatsMode,
    NormMode,
    NormPhase,
)
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    NormBackward,
    NormForward,
)

_PEERS = "statistics over several GPUs are not implemented"


class Normalizations(Operations):
    """Statistics come back with the result where the phase computes them."""

    def batchnorm(
        self,
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
        """[y, mean, inverse variance, next running mean, next running variance], the last two None when not updated."""
        refuse_given(peer_stats, self._here, "peer_stats", _PEERS)
        running = {"input_running_mean": in_running_mean, "input_running_var": in_running_var, "momentum": momentum}
        outputs = ["y", "mean", "inv_variance"]
        if in_running_mean is not None:
            outputs += ["output_running_mean", "output_running_var"]
        fields = {"scale": scale, "bias": bias, "epsilon": epsilon, **running}
        found = self._norm(NormMode.BATCH_NORM, NormPhase.TRAINING, input, fields, outputs, compute_data_type, name)
        return [*found, *(None,) * (5 - len(found))]

    def batchnorm_inference(
        self, input: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, bias: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> Tensor:  # fmt: skip
        """y from given statistics."""
        fields = {"mean": mean, "inv_variance": inv_variance, "scale": scale, "bias": bias}
        return self._norm(NormMode.BATCH_NORM, NormPhase.INFERENCE, input, fields, ["y"], compute_data_type, name)[0]

    def layernorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None, epsilon: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance]; the statistics are None in INFERENCE."""
        return self._phased(
            NormMode.LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def adalayernorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
        epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance] with scale and bias per sample."""
        return self._phased(
            NormMode.ADA_LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def instancenorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None, epsilon: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance] over the spatial axes."""
        return self._phased(
            NormMode.INSTANCE_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def rmsnorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
        epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, inverse root mean square]."""
        y, _, inv = self._phased(
            NormMode.RMS_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )
        return [y, inv]

    def _phased(
        self, mode: NormMode, phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None,
        epsilon: Tensor | None, kind: Any, name: str,
    ) -> list[Tensor | None]:  # fmt: skip
        phase = NormPhase.named(phase)
        statistics = ["mean", "inv_variance"] if mode is not NormMode.RMS_NORM else ["inv_variance"]
        outputs = ["y", *(statistics if phase is NormPhase.TRAINING else [])]
        found = dict(zip(outputs, self._norm(
            mode, phase, input, {"scale": scale, "bias": bias, "epsilon": epsilon}, outputs, kind, name
        ), strict=True))  # fmt: skip
        return [found.get(port) for port in ("y", "mean", "inv_variance")]

    def _norm(
        self,
        mode: NormMode,
        phase: NormPhase,
        x: Tensor,
        fields: Mapping[str, Any],
        outputs: list[str],
        kind: Any,
        name: str,
    ) -> list[Tensor]:
        compute = self._compute_type((x,), kind, exact=False)
        given = {port: tensor for port, tensor in fields.items() if tensor is not None}
        node = {"x": x, "mode": mode, "phase": phase, "math_type": compute, **given}
        return self._add(NormForward, node, tuple(outputs), name, compute)

    def batchnorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor | None = None,
        inv_variance: Tensor | None = None, peer_stats: Sequence[Tensor] = (), compute_data_type: Any = None,
        name: str = "", epsilon: Tensor | None = None,
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias], with the statistics of the forward pass; computed again if epsilon is given instead."""
        refuse_given(peer_stats, self._here, "peer_stats", _PEERS)
        return self._norm_backward(
            NormMode.BATCH_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name, epsilon
        )

    def layernorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def adalayernorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.ADA_LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def instancenorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.INSTANCE_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def rmsnorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, inv_variance: Tensor, has_dbias: bool = False,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[dx, dscale, dbias or None]."""
        found: list[Tensor | None] = list(
            self._norm_backward(
                NormMode.RMS_NORM, grad, input, scale, None, inv_variance, has_dbias, compute_data_type, name
            )
        )
        return found if has_dbias else [*found, None]

    def _norm_backward(
        self, mode: NormMode, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor | None, inv: Tensor | None,
        dbias: bool, kind: Any, name: str, epsilon: Tensor | None = None,
    ) -> list[Tensor]:  # fmt: skip
        compute = self._compute_type((x,), kind, exact=False)
        fields = {"x": x, "dy": dy, "scale": scale, "mode": mode, "math_type": compute}
        given = (("mean", mean), ("inv_variance", inv), ("epsilon", epsilon))
        fields |= {port: t for port, t in given if t is not None}
        outputs = ("dx", "dscale", "dbias") if dbias else ("dx", "dscale")
        return self._add(NormBackward, fields, outputs, name, compute)

    def bn_finalize(
        self, sum: Tensor, sq_sum: Tensor, scale: Tensor, bias: Tensor, epsilon: Tensor, accum_count: Tensor,
        momentum: Tensor, in_running_mean: Tensor | None = None, in_running_var: Tensor | None = None,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[eq scale, eq bias, mean, inverse std, next running mean, next running variance] (the last two optional)."""
        compute = self._compute_type((), compute_data_type, exact=False)
        fields = {
            "mode": BnFinalizeStatsMode.TRAINING, "math_type": compute, "y_sum": sum, "y_sq_sum": sq_sum,
            "scale": scale, "bias": bias, "epsilon": epsilon, "accumulation_count": accum_count, "momentum": momentum,
        }  # fmt: skip
        outputs = ["eq_scale", "eq_bias", "saved_mean", "saved_inv_std"]
        if in_running_mean is not None:
            fields |= {"previous_running_mean": in_running_mean, "previous_running_var": in_running_var}
            outputs += ["updated_running_mean", "updated_running_var"]
        found = self._add(BnFinalize, fields, tuple(outputs), name, compute)
        return [*found, *(None,) * (6 - len(found))]

    def dbn_weight(
        self, dy: Tensor, x: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dscale, dbias, A, B, C] of dx = A*dy + B*x + C."""
        compute = self._compute_type((x,), compute_data_type, exact=False)
        fields = {"x": x, "dy": dy, "mean": mean, "inv_std": inv_variance, "scale": scale, "math_type": compute}
        outputs = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
        return self._add(BnBackwardWeights, fields, outputs, name, compute)
