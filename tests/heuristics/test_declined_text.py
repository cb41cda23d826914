"""Engines that declined as text: a screen with the first reason of each engine, or every reason of every engine."""

from __future__ import annotations

import re

import pytest

from graphdnn import Graph, rank
from graphdnn.fusion import fuse
from graphdnn.heuristics import Ranking
from graphdnn.problem import parse

CONVOLUTION = "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1"
SCREEN = 50  # lines


def ranked(text: str, device: str = "h200") -> Ranking:
    return rank(parse(text).build_operation_graph(), device)


@pytest.mark.parametrize("device", ["h200", "a100", "rtx4090"])
@pytest.mark.parametrize("text", [CONVOLUTION, f"{CONVOLUTION} + bias + relu", "matmul a=f16[8,64,64] b=f16[8,64,64]"])
def test_a_kernel_takes_a_screen(text: str, device: str) -> None:
    ranking = ranked(text, device)
    lines = f"{ranking.fused}\n\n{ranking}".splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 120


def test_every_engine_for_the_operation_is_named_once_and_the_others_are_counted() -> None:
    ranking = ranked(CONVOLUTION)
    _, declined = str(ranking).split("declined conv_fprop")
    mine = [d for d in ranking.declined if d.engine.is_for("conv")]
    assert sorted(re.findall(r"\bcuda_\w+(?=,|$)", declined, re.M)) == sorted(d.engine.name for d in mine)
    assert f"{len(ranking.declined) - len(mine)} engines for other kinds of operation" in declined
    joined = " ".join(declined.split())
    assert all(d.rejections[0].reason in joined for d in mine)


def test_engines_with_one_reason_share_a_line() -> None:
    ranking = ranked(CONVOLUTION)
    reasons = {d.rejections[0].reason for d in ranking.declined if d.engine.is_for("conv")}
    _, declined = str(ranking).split("declined conv_fprop")
    assert len(re.findall(r"^  \S", declined, re.M)) == len(reasons) + 1


def test_each_kernel_of_a_graph_has_its_reasons() -> None:
    graph = Graph(io_data_type="float16", device="h200")
    y = graph.conv_fprop(graph.tensor([2, 8, 9, 9]), graph.tensor([8, 8, 3, 3]), padding=1)
    graph.resample(graph.relu(y), window=2, stride=2, mode="maxpool")[0].set_output(True)
    fused = fuse(graph.build_operation_graph())
    headings = re.findall(r"^declined (\S+) \(", graph.explain(), re.M)
    assert len(fused) > 1
    assert headings == [op.name for op in fused]


def test_an_argument_lists_every_reason_of_every_engine() -> None:
    graph = Graph(io_data_type="float16", device="h200")
    x, w = graph.tensor([8, 64, 56, 56]), graph.tensor([64, 64, 3, 3])
    graph.conv_fprop(x, w, padding=1).set_output(True)
    ranking = graph.ranking
    every = [r for d in ranking.declined for r in d.rejections]
    text = graph.explain(every_reason=True)
    assert all(r.rule in text and r.fix in text for r in every)
    assert len({r.rule for r in every}) > 50
    assert "every_reason=True" in graph.explain()
