"""Lines of kernel text and the operations of a plan that they belong to."""

from __future__ import annotations

import re

import pytest
from emulator.libraries import host_libraries
from problems import tensor
from random_problems.families import FAMILIES, Case, draw

from graphdnn import build, fuse
from graphdnn.cli.kernel_listing import kernels_json, source_text
from graphdnn.device.profiles import device_spec
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.operations import PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from graphdnn.plan.source_lines import source_lines
from graphdnn.problem import parse

H200 = device_spec("h200")
MARK = re.compile(r"// operation (\d+): (\S+)")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mark_is_an_operation_of_the_plan(family: str) -> None:
    with host_libraries():
        for seed in range(10):
            fused = fuse(draw(Case(family, seed, large=False)).graph)
            for config in [*Ranking(fused, H200)][:6]:
                for choice in config.choices:
                    op, kernel = choice.task.op, choice.engine.compile(choice.task, choice.knobs)
                    assert isinstance(kernel, DeviceKernel)
                    texts = {s.text.name: s.text.text.splitlines() for s in kernel.steps if isinstance(s, Launch)}
                    found = source_lines(op, kernel)
                    marked = {
                        (name, i) for name, lines in texts.items() for i, t in enumerate(lines, 1) if MARK.search(t)
                    }
                    assert {(line.kernel, line.line) for line in found} == marked
                    for line in found:
                        mark = MARK.search(texts[line.kernel][line.line - 1])
                        assert mark is not None
                        assert mark[2] == line.operation.tag
                        uids = {uid for uid in (*line.reads, *line.writes) if uid is not None}
                        if line.number is not None:
                            here = op.operations[line.number]
                            assert here.tag == line.operation.tag
                            assert uids <= {t.uid for t in here.tensors().values()}
                        else:
                            assert None in line.writes, "a copy is in scratch memory"


def chain(*uids: int) -> OperationGraph:
    """x + b -> v, relu(v) -> y, sum of y -> s."""
    x, b, v, y, s = uids
    full, small = (64, 48), (1, 48)
    made = [tensor(x, full), tensor(b, small), tensor(v, full), tensor(y, full), tensor(s, small)]
    virtual = made[2].model_copy(update={"is_virtual": True})
    return OperationGraph.of([
        PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.ADD, math_type="f32"), x=made[0], b=made[1], y=virtual),
        PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.RELU_FWD, math_type="f32"), x=virtual, y=made[3]),
        Reduction(spec=ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32"), x=made[3], y=made[4]),
    ])  # fmt: skip


def test_graphs_with_other_uids_share_text_and_not_its_meaning() -> None:
    first, second = (build(chain(*uids), "h200") for uids in ((1, 2, 3, 4, 5), (19, 18, 17, 16, 15)))
    ours, theirs = (plan.source_lines for plan in (first, second))
    assert [(m.kernel, m.line, m.number) for k in ours for m in k] == [
        (m.kernel, m.line, m.number) for k in theirs for m in k
    ]
    renamed = dict(zip((1, 2, 3, 4, 5), (19, 18, 17, 16, 15), strict=True))
    for mine, other in zip((m for k in ours for m in k), (m for k in theirs for m in k), strict=True):
        assert tuple(None if uid is None else renamed[uid] for uid in mine.reads) == other.reads
        assert tuple(None if uid is None else renamed[uid] for uid in mine.writes) == other.writes


def test_an_exit_keeps_its_number_in_the_plan() -> None:
    """Its text counts from 0, being a kernel of its own."""
    text = "conv x=f32[2,8,9,9] w=f32[4,8,3,3] pad=1 + relu -> reduce add [1,4,1,1]"
    config = Ranking(fuse(parse(text).build_operation_graph()), H200).best
    (choice,) = [c for c in config.choices if c.task.op.exit is not None]
    op, last = choice.task.op, choice.task.op.exit
    marks = [m for m in source_lines(op, choice.engine.compile(choice.task, choice.knobs)) if m.operation is last]
    assert marks
    assert {m.number for m in marks} == {len(op.operations) - 1} != {0}
    assert re.search(rf"// operation 0: {last.tag}   = \[{len(op.operations) - 1}\] ", source_text(config))


def test_source_shows_what_a_line_means() -> None:
    plan = build(parse("conv x=f16[2,8,9,9] w=f16[4,8,3,3] pad=1 + bias + relu").build_operation_graph(), "h200")
    text = source_text(plan.config)
    for mark in (line for kernel in plan.source_lines for line in kernel if line.number is not None):
        assert str(mark.operation.label()) in text
    assert re.search(r"// operation 1: pointwise   = \[1\] add: uid \d+ \w+, bias \(uid \d+\) \w+ -> uid \d+ \w+", text)
    (entry,) = kernels_json(plan.config, source=True)
    lines = entry["source_lines"]
    assert [line["number"] for line in lines if line["number"] is not None][:3] == [0, 1, 2]
    assert all(line["kernel"] in entry["source"] for line in lines)
    assert "source_lines" not in kernels_json(plan.config, source=False)[0]


def test_a_copy_is_named_as_one() -> None:
    """Packed bits become bytes in scratch memory, by a launch whose text numbers the copy alone."""
    op = fuse(chain(1, 2, 3, 4, 5)).operations[0]
    steps = LaunchSequence(op, H200)
    steps.relayout(tensor(1, (64, 48), DataType.BOOLEAN))
    (mark,) = source_lines(op, steps.kernel("copies"))
    assert (mark.number, mark.reads, mark.writes) == (None, (1,), (None,))
    assert str(mark) == "pointwise, added by the engine: uid 1 -> scratch memory"
    assert mark.to_json()["writes"] == [None]


def test_a_host_plan_has_no_lines() -> None:
    plan = build(chain(1, 2, 3, 4, 5), "cpu")
    assert all(lines == () for lines in plan.source_lines)
