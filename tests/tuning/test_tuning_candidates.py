"""What the tuner tries, and what it shows while it does."""

from __future__ import annotations

import io
import sys

import pytest
from tuning_records import CONV, CPU, offered

from graphdnn import Graph, HeurMode, NotSupported, fuse
from graphdnn.analysis.certificate import numeric_class
from graphdnn.engines import ENGINES, Knob
from graphdnn.enums import KnobType
from graphdnn.heuristics import EngineConfig, Filters
from graphdnn.heuristics.composed import identity
from graphdnn.tuning.candidates import Candidates, candidates_of
from graphdnn.tuning.progress_bar import Progress

HOPPER = "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu"


def all_of(candidates: Candidates) -> list[EngineConfig]:
    """As if the first one stayed the fastest."""
    return [candidates.first, *iter(lambda: candidates.next([candidates.first]), None)]


def test_candidates_are_different_and_of_one_class() -> None:
    candidates = offered(HOPPER, "h200")
    found = all_of(candidates)
    assert len({identity(c) for c in found}) == len(found) > 20
    assert all(numeric_class(c).can_replace(candidates.own_class) for c in found)
    more = all_of(offered(HOPPER, "h200", any_class=True))
    assert len(more) >= len(found)
    engines = [c.choices[0].engine.name for c in found]
    first_knob = next(i for i, c in enumerate(found) if i and c.choices[0].engine is found[0].choices[0].engine)
    assert len(set(engines[:first_knob])) == first_knob  # other engines come before other knobs


def test_a_knob_of_many_values_is_not_searched_through() -> None:
    assert Knob(KnobType.TILE_SIZE, 0, 8, 2, 0, "").sample == [0, 2, 4, 6, 8]
    found = Knob(KnobType.TILE_ROWS, 0, 1024, 1, 0, "").sample
    assert found[:10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 12]
    assert found[-1] == 1024
    assert len(found) < 30


def test_every_row_of_a_table_is_searched() -> None:
    """A tile at the end of a long table is tried as well, though a long range of numbers is not."""
    assert Knob.row_of(range(60), KnobType.TILE_SIZE, "").sample == list(range(61))
    tiles = [knob for engine in ENGINES for knob in engine.knobs if "number of a tile" in knob.meaning]
    assert max(len(knob.values) for knob in tiles) > 30
    assert all(len(knob.sample) == len(knob.values) for knob in tiles)


def test_modes_and_words() -> None:
    assert len(all_of(offered(CONV, "cpu", HeurMode.A))) == 2
    assert len(all_of(offered(CONV, "cpu", HeurMode.INSTANT))) == 2
    assert [c.name for c in all_of(offered(CONV, "cpu", HeurMode.FALLBACK))] == ["numpy"]
    assert [c.name for c in all_of(offered(CONV, "cpu", without=["blocked"]))] == ["numpy"]
    with pytest.raises(NotSupported) as caught:
        offered(CONV, "cpu", without=["numpy"])
    assert caught.value.rejections[0].rule == "tuning.deselected"


def test_several_kernels_are_changed_one_by_one() -> None:
    g = Graph(io_data_type="float32", intermediate_data_type="float32")
    x, v, w = g.tensor([1, 4, 8, 8]), g.tensor([4, 4, 3, 3]), g.tensor([4, 4, 3, 3])
    g.conv_fprop(g.relu(g.conv_fprop(x, v, padding=[1, 1])), w, padding=[1, 1]).set_output(True)
    fused = fuse(g.build_operation_graph())
    assert len(fused) == 2
    one, candidates = (
        candidates_of(fused, CPU, HeurMode.B, Filters(), None, any_class=False, without=()) for _ in range(2)
    )
    assert {_changes(c, one.first) for c in all_of(one)[1:]} == {1}
    found = [candidates.first]
    while (following := candidates.next(found)) is not None:
        found.append(following)
    assert len(found) == 9 * 9  # all of them, when each one is measured to be fast


def _changes(one: EngineConfig, other: EngineConfig) -> int:
    return sum(a != b for a, b in zip(identity(one), identity(other), strict=True))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shows in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress() as bar:
            bar.show(0.5, "half of it")
            bar.show(0.6, "too soon to be drawn")
        text = stream.getvalue()
        assert ("half of it" in text) is shows
        assert "too soon" not in text
        if shows:
            assert "[############............] half of it" in text
            assert text.endswith("\r")
            assert "\n" not in text
    monkeypatch.setattr(sys, "stderr", None)
    with Progress() as bar:
        bar.show(0.5, "nobody looks")


def test_other_values_of_knobs_have_kernels_of_their_own() -> None:
    """Values that give way, and values that the shape chooses anyway, make no second candidate."""
    found = [config.choices[0] for config in all_of(offered(HOPPER, "h200"))]
    launched = [(c.engine.id, *c.engine.effective_knobs(c.task, c.knobs).items()) for c in found]
    assert len(found) > 1
    assert len(set(launched)) == len(launched)
