"""Fusion: which operations become one kernel, which do not, and that fusing changes no number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from legal_problems import CHANNEL, IMAGE, operation, pointwise, reduction, tensor

from graphdnn import OperationGraph, build, fuse
from graphdnn.enums import PointwiseMode, ReductionOperator
from graphdnn.errors import NotSupported
from graphdnn.fusion import FUSION_RULES, FusedGraph
from graphdnn.operations import EXTENSIONS, OPERATIONS, Operation

M = PointwiseMode


def image(uid: int, **fields: Any) -> Any:
    return tensor(uid, IMAGE, **fields)


def virtual(uid: int, dims: tuple[int, ...] = IMAGE, data_type: str = "f32") -> Any:
    return tensor(uid, dims, data_type, is_virtual=True)


def conv(y: Any, x: Any, w: int = 100) -> Operation:
    return operation("conv_fprop", x=x, w=tensor(w, (4, 4, 1, 1)), y=y)


def binary(mode: PointwiseMode, x: Any, b: Any, y: Any) -> Operation:
    return operation("pointwise", x=x, b=b, y=y, spec=pointwise(mode))


def unary(mode: PointwiseMode, x: Any, y: Any) -> Operation:
    return operation("pointwise", x=x, b=..., y=y, spec=pointwise(mode))


def fused(*operations: Operation) -> FusedGraph:
    return fuse(OperationGraph.of(operations))


def names(graph: FusedGraph) -> list[str]:
    return [op.name for op in graph]


def test_conv_bias_relu_is_one_kernel() -> None:
    graph = fused(
        conv(virtual(10), image(1)),
        binary(M.ADD, virtual(10), tensor(2, CHANNEL), virtual(11)),
        unary(M.RELU_FWD, virtual(11), image(3)),
    )
    assert names(graph) == ["conv_fprop+add+relu_fwd"]
    assert graph.stopped_by == ()
    (op,) = graph
    assert [t.uid for t in op.internal] == [10, 11]
    assert [t.uid for t in op.outputs] == [3]
    assert {t.uid for t in op.inputs} == {1, 2, 100}


def test_residual_scale_and_a_dag_with_two_outputs() -> None:
    """act(conv * s + b + z), and the value before the activation is written too."""
    graph = fused(
        conv(virtual(10), image(1)),
        binary(M.MUL, virtual(10), tensor(2, CHANNEL), virtual(11)),
        binary(M.ADD, virtual(11), image(3), image(4)),
        unary(M.SIGMOID_FWD, image(4), virtual(12)),
        binary(M.MUL, image(4), virtual(12), image(5)),
    )
    assert names(graph) == ["conv_fprop+mul+add+sigmoid_fwd+mul"]
    assert {t.uid for t in graph.operations[0].outputs} == {4, 5}


def test_order_of_the_list_does_not_matter() -> None:
    parts = [
        conv(virtual(10), image(1)),
        binary(M.ADD, virtual(10), tensor(2, CHANNEL), virtual(11)),
        unary(M.RELU_FWD, virtual(11), image(3)),
    ]
    assert names(fused(*reversed(parts))) == names(fused(*parts))


@pytest.mark.parametrize("exit", ["reduction", "genstats"])
def test_exit(exit: str) -> None:
    end = {
        "reduction": lambda: operation("reduction", x=virtual(10), y=tensor(4, CHANNEL)),
        "genstats": lambda: operation("genstats", x=virtual(10), sum=tensor(4, CHANNEL), sqsum=tensor(5, CHANNEL)),
    }[exit]()
    graph = fused(conv(virtual(10), image(1)), end)
    assert names(graph) == [f"conv_fprop+{exit}"]
    assert graph.operations[0].exit is not None


def test_scale_bias_relu_conv_genstats() -> None:
    """The batch-norm training pattern: prologue, convolution, statistics; y stays in memory."""
    graph = fused(
        binary(M.MUL, image(1), tensor(2, CHANNEL), virtual(10)),
        binary(M.ADD, virtual(10), tensor(3, CHANNEL), virtual(11)),
        unary(M.RELU_FWD, virtual(11), virtual(12)),
        conv(image(4), virtual(12)),
        operation("genstats", x=image(4), sum=tensor(5, CHANNEL), sqsum=tensor(6, CHANNEL)),
    )
    assert names(graph) == ["mul+add+relu_fwd+conv_fprop+genstats"]
    (op,) = graph
    assert [o.label() for o in op.prologue] == ["mul", "add", "relu_fwd"]


def test_matmul_takes_a_prologue_on_both_sides() -> None:
    a, b = virtual(10, (2, 3, 4)), virtual(11, (2, 4, 5))
    graph = fused(
        operation("pointwise", x=tensor(1, (2, 3, 4), "i8"), b=..., y=a, spec=pointwise(M.IDENTITY)),
        operation("pointwise", x=tensor(2, (2, 4, 5), "i8"), b=..., y=b, spec=pointwise(M.IDENTITY)),
        operation("matmul", a=a, b=b, c=virtual(12, (2, 3, 5))),
        operation("pointwise", x=virtual(12, (2, 3, 5)), b=..., y=tensor(3, (2, 3, 5)), spec=pointwise(M.GELU_FWD)),
    )
    assert names(graph) == ["identity+identity+matmul+gelu_fwd"]


def test_pointwise_chain_without_anchor() -> None:
    graph = fused(
        unary(M.EXP, image(1), virtual(10)),
        binary(M.ADD, virtual(10), tensor(2, CHANNEL), image(3)),
    )
    assert names(graph) == ["exp+add"]
    assert graph.operations[0].anchor is None


def test_pointwise_branches_that_meet_are_one_kernel() -> None:
    """As an optimizer writes them: averages of a gradient and of its square, each a result, and what is made of both."""
    graph = fused(
        binary(M.MUL, image(1), tensor(50, (1, 1, 1, 1)), virtual(10)),
        binary(M.MUL, image(2), tensor(51, (1, 1, 1, 1)), virtual(11)),
        binary(M.ADD, virtual(10), virtual(11), image(12)),
        binary(M.MUL, image(2), image(2), virtual(13)),
        binary(M.ADD, image(3), virtual(13), image(14)),
        unary(M.SQRT, image(14), virtual(15)),
        binary(M.DIV, image(12), virtual(15), image(16)),
    )
    assert names(graph) == ["mul+mul+add+mul+add+sqrt+div"]
    assert [t.uid for t in graph.operations[0].outputs] == [12, 14, 16]
    assert not graph.stopped_by


@pytest.mark.parametrize("late", [False, True], ids=["before", "behind"])
def test_a_branch_joins_the_kernel_of_the_anchor_that_it_meets(late: bool) -> None:
    """A residual with a factor of its own, listed before the convolution and behind it."""
    branch = binary(M.MUL, image(1), tensor(50, (1, 1, 1, 1)), virtual(10))
    anchor = conv(virtual(11), image(2))
    last = binary(M.ADD, virtual(11), virtual(10), image(12))
    graph = fused(*((anchor, branch, last) if late else (branch, anchor, last)))
    assert names(graph) == ["conv_fprop+mul+add"]
    assert not graph.stopped_by


def test_a_branch_beside_a_softmax_stays_apart() -> None:
    graph = fused(
        unary(M.EXP, image(30), virtual(31)),
        *softmax(image(1), virtual(9)),
        binary(M.MUL, virtual(9), virtual(31), image(32)),
    )
    assert len(graph) == 2


def test_branches_of_other_extents_and_those_that_a_kernel_between_waits_for_stay_apart() -> None:
    narrow = fused(
        binary(M.MUL, tensor(1, CHANNEL), tensor(2, CHANNEL), virtual(10, CHANNEL)),
        unary(M.EXP, image(3), virtual(11)),
        binary(M.ADD, virtual(11), virtual(10, CHANNEL), image(12)),
    )
    assert names(narrow) == ["mul", "exp+add"]
    assert [stop.rule for stop in narrow.stopped_by] == ["fuse.epilogue.extents"]
    around = fused(
        unary(M.EXP, image(1), image(10)),
        conv(virtual(11), image(10)),
        operation("reduction", x=virtual(11), y=virtual(12, CHANNEL)),
        binary(M.MUL, image(3), virtual(12, CHANNEL), virtual(13)),
        binary(M.ADD, image(10), virtual(13), image(14)),
    )
    assert names(around) == ["exp", "conv_fprop+reduction", "mul+add"]
    assert ("fuse.cycle", 10) in {(stop.rule, stop.tensor.uid) for stop in around.stopped_by}


ROW = (2, 4, 6, 1)


def softmax(
    x: Any, y: Any, *, logarithm: bool = False, maximum: bool = True, total: Any = None, powers: Any = None
) -> list[Operation]:
    """Over the last axis, through the uids 20 to 25."""
    total, powers = total or virtual(24, ROW), powers or virtual(23)
    exponent = virtual(22) if maximum else x
    operations = []
    if maximum:
        operations = [
            operation("reduction", x=x, y=virtual(21, ROW), spec=reduction(ReductionOperator.MAX)),
            binary(M.SUB, x, virtual(21, ROW), exponent),
        ]
    operations += [unary(M.EXP, exponent, powers), operation("reduction", x=powers, y=total)]
    if logarithm:
        return [*operations, unary(M.LOG, total, virtual(25, ROW)), binary(M.SUB, exponent, virtual(25, ROW), y)]
    return [*operations, binary(M.DIV, powers, total, y)]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "reduction+sub+exp+reduction+div"),
        ({"logarithm": True}, "reduction+sub+exp+reduction+log+sub"),
        ({"maximum": False}, "exp+reduction+div"),
        ({"maximum": False, "logarithm": True}, "exp+reduction+log+sub"),
    ],
)
def test_softmax_is_one_kernel(fields: dict[str, bool], name: str) -> None:
    graph = fused(*softmax(image(1), image(2), **fields))
    assert names(graph) == [name]
    (op,) = graph
    assert op.rule == "softmax"
    assert op.anchor is not None
    assert op.anchor.tag == "reduction"
    assert graph.stopped_by == ()
    assert [t.uid for t in op.inputs] == [1]
    assert [t.uid for t in op.outputs] == [2]


def test_softmax_takes_what_is_before_and_after_it_and_gives_out_its_sums() -> None:
    graph = fused(
        binary(M.MUL, image(1), tensor(3, CHANNEL), virtual(10)),
        *softmax(virtual(10), virtual(11), total=tensor(4, ROW)),
        binary(M.ADD, virtual(11), image(5), image(2)),
    )
    (op,) = graph
    assert [step.label() for step in op.prologue] == ["mul"]
    assert {t.uid for t in op.inputs} == {1, 3, 5}
    assert {t.uid for t in op.outputs} == {2, 4}


def test_softmax_keeps_the_logarithm_of_the_sum_that_backward_needs() -> None:
    (op,) = fused(
        *softmax(image(1), image(2)),
        unary(M.LOG, virtual(24, ROW), virtual(30, ROW)),
        binary(M.ADD, virtual(21, ROW), virtual(30, ROW), tensor(31, ROW)),
    )
    assert {t.uid for t in op.outputs} == {2, 31}


def test_sums_of_powers_are_one_kernel_without_a_softmax() -> None:
    """As a cross-entropy asks for them; without the maximum one reduction has nothing to share."""
    steps = softmax(image(1), image(2), logarithm=True, total=tensor(24, ROW))[:-2]
    assert [op.rule for op in fused(*steps)] == ["softmax"]
    steps = softmax(image(1), image(2), logarithm=True, maximum=False, total=tensor(24, ROW))[:-2]
    assert [op.rule for op in fused(*steps)] == ["reduction"]


def test_softmax_of_a_convolution_and_a_second_reader_of_its_operand() -> None:
    graph = fused(
        conv(virtual(10), image(1)),
        unary(M.RELU_FWD, virtual(10), virtual(11)),
        *softmax(virtual(11), image(2)),
        binary(M.ADD, virtual(11), image(2), image(3)),
    )
    assert names(graph) == ["conv_fprop+relu_fwd", "reduction+sub+exp+reduction+div+add"]
    assert [t.uid for t in graph.materialized] == [11]


def test_prologue_of_a_softmax_with_another_reader_stays_apart() -> None:
    graph = fused(
        unary(M.RELU_FWD, image(1), virtual(10)), *softmax(virtual(10), image(2)), conv(image(3), virtual(10))
    )
    assert len(graph) == 3
    assert "fuse.prologue.consumers" in {stop.rule for stop in graph.stopped_by}


def gradient(y: Any, dy: Any, dx: Any, *, product: Any = None, swapped: bool = False) -> list[Operation]:
    product = product or virtual(21)
    factors = (dy, y) if swapped else (y, dy)
    return [
        binary(M.MUL, *factors, product),
        operation("reduction", x=product, y=virtual(22, ROW)),
        binary(M.SUB, dy, virtual(22, ROW), virtual(23)),
        binary(M.MUL, *((virtual(23), y) if swapped else (y, virtual(23))), dx),
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_gradient_of_a_softmax_is_one_kernel_with_what_is_around_it(swapped: bool) -> None:
    graph = fused(
        unary(M.RELU_FWD, image(2), virtual(10)),
        *gradient(image(1), virtual(10), virtual(11), swapped=swapped),
        binary(M.ADD, virtual(11), image(3), image(4)),
    )
    assert names(graph) == ["relu_fwd+mul+reduction+sub+mul+add"]
    (op,) = graph
    assert op.rule == "softmax_backward"


def test_gradient_of_a_log_softmax_and_a_circle_that_it_must_not_make() -> None:
    total = operation("reduction", x=image(2), y=virtual(22, ROW))
    rest = [
        unary(M.EXP, image(1), virtual(23)),
        binary(M.MUL, virtual(23), virtual(22, ROW), virtual(24)),
        binary(M.SUB, image(2), virtual(24), image(3)),
    ]
    assert names(fused(total, *rest)) == ["reduction+exp+mul+sub"]
    waiting = [conv(image(4), image(1)), unary(M.EXP, image(4), virtual(23)), *rest[1:]]
    beside = binary(M.ADD, image(2), virtual(22, ROW), image(1))  # the image that is convolved waits for the sum
    graph = fused(total, beside, *waiting)
    assert "softmax_backward" not in {op.rule for op in graph}


def test_gradient_whose_products_are_kept_stays_apart() -> None:
    graph = fused(*gradient(image(1), image(2), image(3), product=image(4)))
    assert [op.rule for op in graph] == ["pointwise", "reduction", "pointwise"]
    assert "fuse.softmax.virtual" in {stop.rule for stop in graph.stopped_by}


def test_what_is_nearly_a_softmax_is_three_passes_with_reasons() -> None:
    """A power that is kept in memory: each reduction ends a kernel, and every cut edge says why."""
    graph = fused(*softmax(image(1), image(2), powers=image(3)))
    assert len(graph) > 1
    cut = {(stop.tensor.uid, stop.rule) for stop in graph.stopped_by}
    assert (3, "fuse.softmax.virtual") in cut
    assert (21, "fuse.epilogue.extents") in cut
    assert (24, "fuse.epilogue.extents") in cut
    assert {t.uid for t in graph.materialized} >= {21, 24}


def test_two_convolutions_are_two_kernels_and_share_memory() -> None:
    graph = fused(conv(virtual(10), image(1)), conv(image(2), virtual(10), w=101))
    assert names(graph) == ["conv_fprop", "conv_fprop"]
    assert [t.uid for t in graph.materialized] == [10]
    (stop,) = graph.stopped_by
    assert stop.rule == "fuse.consumer.kind"
    assert stop.subject == "conv_fprop -> conv_fprop through uid 10"
    assert stop.reason
    assert stop.fix


def test_residual_of_two_branches_joins_the_later_one() -> None:
    graph = fused(
        conv(virtual(10), image(1)),
        conv(virtual(11), image(2), w=101),
        binary(M.ADD, virtual(10), virtual(11), image(3)),
    )
    assert len(graph) == 2
    assert [len(op.operations) for op in graph] == [1, 2]
    assert [stop.rule for stop in graph.stopped_by] == ["fuse.operand.elsewhere"]


def test_kernels_never_wait_for_each_other_in_a_circle() -> None:
    """p reads a value of kernel G and one of kernel H that G already waits for: it must not join H."""
    graph = fused(
        conv(virtual(10), image(1)),
        unary(M.RELU_FWD, virtual(10), virtual(11)),
        conv(virtual(12), image(2), w=101),
        unary(M.RELU_FWD, virtual(12), virtual(13)),
        binary(M.ADD, virtual(11), virtual(13), image(3)),
        binary(M.SUB, virtual(13), virtual(11), image(4)),
        binary(M.MUL, virtual(10), virtual(12), image(5)),
    )
    position = {t.uid: op.index for op in graph for t in op.outputs}
    for op in graph:
        for t in op.inputs:
            assert position.get(t.uid, -1) < op.index


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_partitioned_and_ordered(seed: int) -> None:
    """Every operation in exactly one kernel, kernels in order, every cut edge with exactly one reason; same numbers."""
    graph = _random_graph(np.random.default_rng(seed))
    result = fuse(graph)
    members = [id(op) for kernel in result for op in kernel.operations]
    assert sorted(members) == sorted(id(op) for op in graph.operations)
    written: set[int] = set()
    for kernel in result:
        for t in kernel.inputs:
            assert t.uid not in graph.producer or t.uid in written
        written |= {t.uid for t in kernel.outputs}
    kernel_of = {id(op): kernel.index for kernel in result for op in kernel.operations}
    cut = {
        (t.uid, graph.operations[c].label())
        for p, c, t in graph.edges()
        if kernel_of[id(graph.operations[p])] != kernel_of[id(graph.operations[c])]
    }
    assert {(stop.tensor.uid, stop.consumer) for stop in result.stopped_by} == cut
    _same_numbers_when_nothing_is_fused(graph, seed)


def _random_graph(rng: np.random.Generator) -> OperationGraph:
    values, operations, uid = [image(1)], [], 10
    for _ in range(rng.integers(2, 13)):
        kind = rng.choice(["unary", "binary", "conv", "reduce"])
        x = values[rng.integers(len(values))]
        out = image(uid, is_virtual=bool(rng.random() < 0.6), data_type=["f32", "f16"][rng.integers(2)])
        if kind == "unary":
            operations.append(unary(M.TANH_FWD, x, out))
        elif kind == "binary":
            operations.append(binary(M.ADD, x, values[rng.integers(len(values))], out))
        elif kind == "conv":
            operations.append(conv(out, x, w=uid + 500))
        else:
            total = virtual(uid + 1000, CHANNEL)
            operations += [operation("reduction", x=x, y=total), binary(M.MUL, x, total, out)]
        values.append(out)
        uid += 1
    read = {t.uid for op in operations for t in op.inputs().values()}
    ends = [v for v in values if v.uid not in read and v.is_virtual]
    operations += [unary(M.TANH_FWD, end, image(end.uid + 2000, data_type=end.data_type)) for end in ends]
    return OperationGraph.of(operations)


def _same_numbers_when_nothing_is_fused(graph: OperationGraph, seed: int) -> None:
    """Running the operations one graph each, through arrays of the virtual tensors' types, gives equal bits."""
    rng = np.random.default_rng(seed)
    arrays: dict[int, Any] = {}
    for t in graph.tensors.values():
        dtype = np.float16 if t.data_type.name == "HALF" else np.float32
        arrays[t.uid] = (rng.standard_normal(t.dims) * 0.5).astype(dtype)
    plan = build(graph)
    once = {t.uid: arrays[t.uid].copy() for t in graph.bound}
    plan.execute(once, plan.new_workspace())
    for op in graph.operations:
        alone = op.model_copy(
            update={p: t.model_copy(update={"is_virtual": False}) for p, t in op.tensors().items() if t.is_virtual}
        )
        single = build(OperationGraph.of([alone]))
        single.execute({t.uid: arrays[t.uid] for t in op.tensors().values()}, single.new_workspace())
    for t in graph.outputs:
        np.testing.assert_array_equal(once[t.uid], arrays[t.uid])


def test_virtual_type_is_a_rounding_point() -> None:
    """conv -> HALF virtual -> add: the sum is rounded to half inside the kernel."""
    x, w = np.full((1, 1, 1, 1), 1.0, np.float32), np.full((1, 1, 1, 1), 1.0009765625 / 2 + 2**-13, np.float32)
    for kind, dtype in (("f32", np.float32), ("f16", np.float16)):
        middle = virtual(10, (1, 1, 1, 1), kind)
        graph = OperationGraph.of(
            [
                operation("conv_fprop", x=tensor(1, (1, 1, 1, 1)), w=tensor(2, (1, 1, 1, 1)), y=middle),
                unary(M.IDENTITY, middle, tensor(3, (1, 1, 1, 1))),
            ]
        )
        y = np.zeros_like(x)
        plan = build(graph)
        plan.execute({1: x, 2: w, 3: y}, plan.new_workspace())
        assert y.item() == float(w.astype(dtype).item())


def test_virtual_results_have_an_address_for_each_element() -> None:
    """One that a kernel ends with lies in memory by its strides: elements that share an address would be lost there."""
    crowded = tensor(10, IMAGE, is_virtual=True, strides=(1,) * len(IMAGE))
    with pytest.raises(NotSupported, match=r"pointwise\.output\.overlap"):
        unary(M.RELU_FWD, image(1), crowded)


def test_every_operation_has_one_rule() -> None:
    anchors = [cls for rule in FUSION_RULES for cls in rule.anchors]
    assert len(anchors) == len(set(anchors))
    assert {*anchors, OPERATIONS["pointwise"]} == {*OPERATIONS.values(), *EXTENSIONS.values()}
    assert all(rule.drawing for rule in FUSION_RULES)


def test_report_prints_and_serialises() -> None:
    graph = fused(conv(virtual(10), image(1)), conv(image(2), virtual(10), w=101))
    text = str(graph)
    for part in ("2 operations in 2 fused operations", "fuse.consumer.kind", "  fix  ", "uid 10"):
        assert part in text
    data = json.loads(json.dumps(graph.to_json()))
    assert data["stopped_by"][0]["rule"] == "fuse.consumer.kind"
    assert data["materialized"] == [10]
