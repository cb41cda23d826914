"""Recurrent networks: a stack of LSTM layers over all steps, inference and training, beside cuDNN through PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from gpu.fills import Fill, Normal, Uniform
from gpu.problem import Case, Group, Peer, Problem, Tensors
from graphdnn import DataType, OperationGraph, TensorSpec, packed_strides
from graphdnn.operations import Cell, RnnBackwardData, RnnBackwardWeights, RnnForward, RnnSpec

STEPS, BATCH, HIDDEN, LAYERS = 128, 64, 512, 2
# States are rounded to fp16 at every step, by graphdnn and by cuDNN, and the definition rounds nothing.
BOUND, GRADIENT_BOUND = 4e-3, 1e-2
FILLS: dict[str, Fill] = {"x": Normal(), "dy": Normal(), "w": Uniform(-(HIDDEN**-0.5), HIDDEN**-0.5)}


def network(steps: int = STEPS, batch: int = BATCH, hidden: int = HIDDEN, layers: int = LAYERS) -> RnnSpec:
    sizes = (batch,) * steps
    return RnnSpec(cell=Cell.LSTM, input_size=hidden, hidden_size=hidden, layers=layers, batch_sizes=sizes)


class _Tensors:
    """Tensors of a graph by name; the same name gives the same tensor."""

    def __init__(self, rnn: RnnSpec) -> None:
        self._rows, self._weights, self._states = (rnn.rows, rnn.hidden_size), (rnn.weight_count,), rnn.states
        self._kept = {"kept": (rnn.kept_count,), "kept_gradients": (rnn.gradient_count,)}
        self._uids, self._made = count(1), dict[str, TensorSpec]()

    def __call__(self, *names: str) -> dict[str, TensorSpec]:
        return {name: self._made.setdefault(name, self._spec(name)) for name in names}

    def _spec(self, name: str) -> TensorSpec:
        uid, inner = next(self._uids), name in self._kept
        dims = self._kept.get(
            name, self._weights if "w" in name else self._states if name in ("hy", "cy") else self._rows
        )
        kind = DataType.FLOAT if inner else DataType.HALF
        return TensorSpec(
            uid=uid, data_type=kind, dims=dims, strides=packed_strides(dims), name=name, is_virtual=inner
        )  # fmt: skip


def inference(rnn: RnnSpec) -> Problem:
    t, gives = _Tensors(rnn), ("y", "hy", "cy")

    def prepare(torch: Any, values: Tensors) -> Callable[[], Any]:
        module, x = _module(torch, rnn, values["w"]), _sequence(rnn, values["x"])

        def run() -> tuple[Any, ...]:
            with torch.no_grad():
                y, (h, c) = module(x)
            return y, h, c

        return run

    return Problem(
        graph=OperationGraph.of([RnnForward(rnn=rnn, **t("x", "w", *gives))]),
        fills={name: FILLS[name] for name in ("x", "w")}, flops=2 * rnn.macs,
        formula=lambda torch, values: dict(zip(gives, prepare(torch, values)(), strict=True)),
        peers=(Peer("LSTM", prepare, gives),), bounds=dict.fromkeys(gives, BOUND),
    )  # fmt: skip


def training(rnn: RnnSpec) -> Problem:
    """Forward, the gradient of the input, the gradient of the weights."""
    t = _Tensors(rnn)
    graph = OperationGraph.of([
        RnnForward(rnn=rnn, **t("x", "w", "y", "kept")),
        RnnBackwardData(rnn=rnn, **t("y", "dy", "w", "kept", "dx", "kept_gradients")),
        RnnBackwardWeights(rnn=rnn, **t("x", "y", "kept", "kept_gradients", "dw")),
    ])  # fmt: skip

    def step(torch: Any, values: Tensors) -> Callable[[], tuple[Any, ...]]:
        module, x = _module(torch, rnn, values["w"]), _sequence(rnn, values["x"]).detach().requires_grad_()
        dy, parameters = _sequence(rnn, values["dy"]), _in_order(rnn, module)

        def run() -> tuple[Any, ...]:
            y, _ = module(x)
            return y.detach(), *torch.autograd.grad(y, (x, *parameters), dy)

        return run

    def formula(torch: Any, values: Tensors) -> Tensors:
        y, dx, *rest = step(torch, values)()
        return {"y": y, "dx": dx, "dw": torch.cat([g.reshape(-1) for g in rest])}

    return Problem(
        graph=graph, fills=FILLS, flops=6 * rnn.macs, formula=formula, peers=(Peer("LSTM", step, ("y", "dx")),),
        bounds={"y": BOUND, "dx": GRADIENT_BOUND, "dw": GRADIENT_BOUND},
    )  # fmt: skip


def _sequence(rnn: RnnSpec, rows: Any) -> Any:
    return rows.reshape(len(rnn.batch_sizes), rnn.batch_sizes[0], -1)


def _module(torch: Any, rnn: RnnSpec, w: Any) -> Any:
    """PyTorch's network with the packed weights."""
    made = torch.nn.LSTM(rnn.input_size, rnn.hidden_size, rnn.layers, device=w.device, dtype=w.dtype)
    parameters = _in_order(rnn, made)
    with torch.no_grad():
        for parameter, values in zip(parameters, w.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(values.view_as(parameter))
    made.flatten_parameters()
    return made


def _in_order(rnn: RnnSpec, module: Any) -> list[Any]:
    """As they are packed: the matrices of every layer, then the biases; gates in PyTorch's order."""
    names = [
        f"{kind}_{side}_l{layer}" for kind in ("weight", "bias") for layer in range(rnn.layers) for side in ("ih", "hh")
    ]
    return [getattr(module, name) for name in names]


RECURRENT = Group(
    "rnn",
    f"LSTM, {STEPS} steps of {BATCH}, hidden size {HIDDEN}, {LAYERS} layers",
    tuple(
        Case(f"lstm_{name}_f16", lambda describe=describe: describe(network()), quick=name == "inference")
        for name, describe in (("inference", inference), ("training", training))
    ),
    by_default=False,
)
