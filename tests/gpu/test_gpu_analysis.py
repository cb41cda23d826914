"""What plans say of themselves, on the GPU: values inside kernels, error bounds, and texts put in place of kernels' own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from random_problems.families import Case, draw
from test_certificate import KINDS, PROVED, drawn_data

from graphdnn import build, fuse
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.device_selection import device_spec
from graphdnn.enums import NumericalNote
from graphdnn.heuristics import Filters, Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.problem import parse

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs
TEXTS = (
    "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu",
    "conv x=f32[2,32,14,14] w=f32[32,32,3,3] pad=1 + bias + gelu",
    "conv x=i8[2,64,14,14]nhwc w=i8[64,64,3,3]nhwc pad=1 + relu",
    "matmul a=f16[4,128,512] b=f16[4,512,256] + bias + gelu",
    "norm batch x=f16[8,64,28,28]nhwc + relu",
    "pointwise x=f32[64,1024] + relu + tanh",
)


@pytest.mark.parametrize("text", TEXTS)
def test_seeing_changes_no_number(text: str) -> None:
    graph = parse(text).build_operation_graph()
    plan = build(graph, "cuda")
    data = random_operands(graph)
    for bindings in (data, plan.to_device(data)):
        trace = plan.trace(bindings)
        assert trace.ok, trace.first_difference
        assert trace.has_same_bits, trace.notes
    print(f"{plan.name}: {len(trace)} values, {', '.join(trace.notes) or 'as in the plan'}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", PROVED)
def test_no_error_is_larger_than_its_bound(family: str, kind: str) -> None:
    for seed in range(6):
        graph = draw(Case(family, seed, large=True)).graph
        found = build(graph, "cuda").certificate(drawn_data(graph, kind, seed))
        assert found.holds, f"{family}:{seed} {kind}: {found}"


@pytest.mark.parametrize("text", TEXTS)
def test_bounds_of_every_engine(text: str) -> None:
    graph = parse(text).build_operation_graph()
    allowed = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
    for config in Ranking(fuse(graph), device_spec("cuda"), filters=allowed):
        for kind in ("normal", "positive", "cancelling"):
            data = drawn_data(graph, kind, 1)
            blended(graph, data)
            found = ExecutionPlan(config).certificate(data)
            assert found.holds, f"{config.name} {kind}: {found}"
            closest = max((o.closest or 0.0 for o in found.outputs), default=0.0)
            print(f"{config.name} {kind}: {closest:.3g} of the bound")


def test_another_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, text = tmp_path / "mine.cu", TEXTS[-1]
    assert main(["kernel", text, "--device", "cuda", "-o", str(mine)]) == Exit.OK
    capsys.readouterr()
    own = mine.read_text()
    for source, code in ((own + "// mine\n", Exit.OK), (own.replace("tanhf(", "expf("), Exit.CHECK_FAILED)):
        mine.write_text(source)
        assert main(["kernel", text, "--device", "cuda", "--replace", str(mine), "--verify"]) == code
        assert re.search(r"time +\S+ .?s +\S+ .?s", capsys.readouterr().out)
    assert main(["kernel", text, "--device", "cuda", "--replace", str(mine), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["this"]["device_times_us"]
