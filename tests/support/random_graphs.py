"""Random graphs of many operations of every kind, by the builder: ``many_operations(seed)``.

Values are read several times, some are seen outside, and types, layouts and extents are drawn; what nothing reads is an
output. Draws that cannot be (a slice of what is too small) are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdnn import Graph, NormPhase, OperationGraph, PaddingMode, ReductionOperator, ResampleMode
from graphdnn.builder import Tensor

FEWEST, MOST = 4, 17  # steps; some are several operations
ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh", "swish", "elu", "softplus", "gelu_approx_tanh", "erf")
FUNCTIONS = (
    "exp", "sin", "cos", "abs", "neg", "sqrt", "rsqrt", "log", "reciprocal", "floor", "ceil", "tan",
)  # fmt: skip
OF_TWO = ("add", "sub", "mul", "max", "min", "div", "add_square", "atan2")
POOLS = (ResampleMode.MAXPOOL, ResampleMode.AVGPOOL_INCLUDE_PADDING, ResampleMode.AVGPOOL_EXCLUDE_PADDING)
REDUCTIONS = (
    ReductionOperator.ADD, ReductionOperator.AVG, ReductionOperator.MAX, ReductionOperator.MIN, ReductionOperator.MUL,
    ReductionOperator.NORM1, ReductionOperator.NORM2, ReductionOperator.AMAX,
)  # fmt: skip


class Drawing:
    """One graph on its way. A step takes a value and makes another, or None where it cannot."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([901, seed])
        kind = self.of("f32", "f32", "f16", "bf16", "f64")
        compute = "f64" if kind == "f64" else "f32"
        between = self.of("f32", kind) if kind != "f64" else kind
        self.graph = Graph("many", io_data_type=kind, intermediate_data_type=between, compute_data_type=compute)
        self.is_one_type, self.is_channels_last, self.read = between == kind, self.chance(0.5), set[int]()
        first = [int(self.of(1, 2, 3)), int(self.of(3, 4, 8, 12, 16)), *(int(n) for n in self.rng.integers(4, 13, 2))]
        self.values = [self.image(first)]

    def of(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def image(self, dims: list[int]) -> Tensor:
        if not self.is_channels_last:
            return self.graph.tensor(dims)
        _, c, h, w = dims
        return self.graph.tensor(dims, [c * h * w, 1, w * c, c])

    def per_channel(self, x: Tensor) -> Tensor:
        return self.graph.tensor([1, x.get_dim()[1], 1, 1])

    def per_element(self, x: Tensor) -> Tensor:
        return self.graph.tensor([1, *x.get_dim()[1:]])

    def epsilon(self) -> Tensor:
        return self.graph.tensor_scalar(1e-3)

    def known(self, x: Tensor, like: Callable[[list[int]], list[int]]) -> Tensor | None:
        """A value that is there, other than ``x`` and with some of its extents."""
        found = [v for v in self.values if v is not x and like(list(v.get_dim())) == like(list(x.get_dim()))]
        if not found:
            return None
        self.read.add(id(value := self.of(*found)))
        return value

    def conv(self, x: Tensor) -> Tensor:
        c, size = x.get_dim()[1], self.of(1, 3)
        filters = self.image([int(self.of(c, 4, 9)), c, size, size])
        return self.graph.conv_fprop(x, filters, padding=[size // 2] * 2, stride=[int(self.of(1, 1, 2))] * 2)

    def depthwise(self, x: Tensor) -> Tensor:
        return self.graph.conv_fprop(x, self.image([x.get_dim()[1], 1, 3, 3]), padding=[1, 1])

    def dgrad(self, x: Tensor) -> Tensor:
        n, c, h, w = x.get_dim()
        return self.graph.conv_dgrad(x, self.image([c, 5, 3, 3]), padding=[1, 1]).set_dim([n, 5, h, w])

    def channel(self, x: Tensor) -> Tensor:
        return getattr(self.graph, self.of("bias", "scale"))(x, self.per_channel(x))  # type: ignore[no-any-return]

    def function(self, x: Tensor) -> Tensor:
        return getattr(self.graph, self.of(*ACTIVATIONS, *FUNCTIONS))(x)  # type: ignore[no-any-return]

    def of_two(self, x: Tensor) -> Tensor:
        other = self.known(x, list) if self.chance(0.6) else self.of(self.image(list(x.get_dim())), self.per_channel(x))
        scalar = self.graph.tensor_scalar(float(self.rng.standard_normal()))
        return getattr(self.graph, self.of(*OF_TWO))(x, scalar if other is None else other)  # type: ignore[no-any-return]

    def selected(self, x: Tensor) -> Tensor:
        mask = self.graph.cmp_gt(x, self.graph.tensor_scalar(0.1))
        return self.graph.binary_select(x, self.image(list(x.get_dim())), mask)

    def pool(self, x: Tensor) -> Tensor:
        mode = self.of(*POOLS)
        outside = (PaddingMode.ZERO_PAD, PaddingMode.EDGE_VAL_PAD)
        if mode is ResampleMode.MAXPOOL:
            outside = (*outside, PaddingMode.NEG_INF_PAD)  # type: ignore[assignment]
        y, _ = self.graph.resample(
            x, mode, window=[2, 3], stride=[1, int(self.of(1, 2))], pre_padding=[0, 1], post_padding=[1, 1],
            padding_mode=self.of(*outside),
        )  # fmt: skip
        return y

    def interpolated(self, x: Tensor) -> Tensor | None:
        if min(x.get_dim()[2:]) < 2:
            return None
        mode = self.of(ResampleMode.NEAREST, ResampleMode.BILINEAR)
        return self.graph.resample(x, mode, window=[2, 2], stride=[2, 2])[0]

    def reduced(self, x: Tensor) -> Tensor:
        kept = [d if self.chance(0.5) else 1 for d in x.get_dim()]
        y = self.graph.reduction(x, self.of(*REDUCTIONS)).set_dim(kept)
        return y if self.chance(0.3) else getattr(self.graph, self.of("sub", "mul", "add"))(x, y)

    def normed(self, x: Tensor) -> Tensor:
        graph, phase, each = self.graph, NormPhase.INFERENCE, self.per_element
        norms: tuple[Callable[[], Any], ...] = (
            lambda: graph.layernorm(phase, x, each(x), each(x), self.epsilon())[0],
            lambda: graph.instancenorm(phase, x, self.per_channel(x), self.per_channel(x), self.epsilon())[0],
            lambda: graph.rmsnorm(phase, x, each(x), None, self.epsilon())[0],
            lambda: graph.batchnorm_inference(x, *(self.per_channel(x) for _ in range(4))),
        )
        return self.of(*norms)()  # type: ignore[no-any-return]

    def batchnorm(self, x: Tensor) -> Tensor:
        y, mean, inverse, *_ = self.graph.batchnorm(x, self.per_channel(x), self.per_channel(x), epsilon=self.epsilon())
        for statistic in (mean, inverse):
            statistic.set_output(True)
        return y

    def softmax(self, x: Tensor) -> Tensor:
        graph, (n, _, h, w) = self.graph, x.get_dim()
        most = graph.reduction(x, ReductionOperator.MAX).set_dim([n, 1, h, w])
        powers = graph.exp(graph.sub(x, most))
        return graph.div(powers, graph.reduction(powers, ReductionOperator.ADD).set_dim([n, 1, h, w]))

    def product(self, x: Tensor) -> Tensor:
        n, c, _, w = x.get_dim()
        return self.graph.matmul(x, self.graph.tensor([n, c, w, int(self.of(3, 8, 17))]))

    def turned(self, x: Tensor) -> Tensor:
        return self.graph.transpose(x, [0, 1, 3, 2])

    def cut(self, x: Tensor) -> Tensor | None:
        dims = x.get_dim()
        if min(dims[2:]) < 4:
            return None
        inner = [slice(1, d, int(self.of(1, 2))) for d in dims[2:]]
        return self.graph.slice(x, [slice(0, d) for d in dims[:2]] + inner)

    def joined(self, x: Tensor) -> Tensor | None:
        """Of one type: data movement does not convert element types."""
        other = self.known(x, lambda dims: [dims[0], *dims[2:]]) if self.is_one_type else None
        return None if other is None else self.graph.concatenate([x, other], 1)


STEPS: tuple[Callable[[Drawing, Tensor], Tensor | None], ...] = (
    Drawing.conv, Drawing.conv, Drawing.depthwise, Drawing.dgrad, Drawing.channel, Drawing.channel, Drawing.function,
    Drawing.function, Drawing.function, Drawing.of_two, Drawing.of_two, Drawing.selected, Drawing.pool,
    Drawing.interpolated, Drawing.reduced, Drawing.normed, Drawing.normed, Drawing.batchnorm, Drawing.softmax,
    Drawing.product, Drawing.turned, Drawing.cut, Drawing.joined,
)  # fmt: skip


def many_operations(seed: int) -> OperationGraph:
    drawing = Drawing(seed)
    for _ in range(int(drawing.rng.integers(FEWEST, MOST + 1))):
        x = drawing.values[-1] if drawing.chance(0.7) else drawing.of(*drawing.values)
        y = drawing.of(*STEPS)(drawing, x)
        if y is None:
            continue
        drawing.read.add(id(x))
        drawing.values.append(y.set_output(drawing.chance(0.15)))
    for value in drawing.values[1:]:
        if id(value) not in drawing.read:
            value.set_output(True)
    return drawing.graph.build_operation_graph()
