"""A fix says that another engine serves an operation only if another engine does."""

from __future__ import annotations

import pytest

from graphdnn import DeviceSpec, Graph, NotSupported, rank
from graphdnn.cli import main
from graphdnn.device.profiles import device_spec
from graphdnn.engines import engines_of
from graphdnn.errors import NO_ENGINE, NOTHING_TO_DO
from graphdnn.fusion import fuse
from graphdnn.heuristics import Ranking
from graphdnn.problem import parse

UNSERVED = "conv x=i8[2147483656,4,8,8]nhwc w=i8[4,4,3,3]nhwc"  # more images than a kernel counts
SERVED = "conv x=i8[8,4,8,8]nhwc w=i8[4,4,3,3]nhwc"
H200 = device_spec("h200")


def ranked(text: str, device: DeviceSpec = H200) -> Ranking:
    return rank(parse(text).build_operation_graph(), device)


def test_the_error_of_an_unserved_graph_names_no_other_engine() -> None:
    with pytest.raises(NotSupported) as caught:
        _ = ranked(UNSERVED).best
    fixes = [rejection.fix for rejection in caught.value.rejections]
    assert not [fix for fix in fixes if fix.startswith(NOTHING_TO_DO) or "serves other" in fix]
    replaced = [r for r in caught.value.rejections if r.fix.startswith(NO_ENGINE)]
    assert replaced
    assert all(f"give {r.attribute} an expected value" in r.fix for r in replaced)
    assert any("divide the longest axis" in fix for fix in fixes), "other fixes stay"
    assert NOTHING_TO_DO not in str(caught.value)
    assert not [entry for entry in caught.value.ledger if entry.is_final and entry.kind != "edge"]


def test_a_served_graph_keeps_the_fixes_of_its_engines() -> None:
    ranking = ranked(SERVED)
    assert ranking.best
    fixes = [r.fix for declined in ranking.declined for r in declined.rejections]
    assert [fix for fix in fixes if fix.startswith(NOTHING_TO_DO)]
    assert not [fix for fix in fixes if fix.startswith(NO_ENGINE)]


def test_each_operation_of_a_graph_is_looked_at_alone() -> None:
    """An engine serves the convolution, and none of these engines serves the pooling."""
    graph = Graph(io_data_type="float32")
    y = graph.conv_fprop(graph.tensor([2, 8, 9, 9]), graph.tensor([8, 8, 5, 5]))
    graph.resample(y, window=2, stride=2, mode="maxpool")[0].set_output(True)
    fused = fuse(graph.build_operation_graph())
    engines = [e for e in engines_of("cuda") if e.name in ("cuda_implicit_gemm", "cuda_winograd")]
    declined = Ranking(fused, H200, engines=engines).declined
    fixes = {(d.operation.index, d.engine.name): {r.fix.split(":")[0] for r in d.rejections} for d in declined}
    assert fixes == {
        (0, "cuda_winograd"): {NOTHING_TO_DO},
        (1, "cuda_implicit_gemm"): {NO_ENGINE},
        (1, "cuda_winograd"): {NO_ENGINE},
    }


def test_explain_says_that_no_engine_serves(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", UNSERVED, "--device", "h200"])
    text = capsys.readouterr().out
    assert "no engine serves it; an engine does if all its requirements hold" in text
    assert "others serve it" not in text
    main(["explain", SERVED, "--device", "h200"])
    assert "nothing to do about these, others serve it" in capsys.readouterr().out
