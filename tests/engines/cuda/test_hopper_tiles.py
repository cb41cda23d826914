"""Tiles of the products on compute capability 9.0: what would hang or not fit, without a device."""

from __future__ import annotations

import pytest

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task, engines_of
from graphdnn.engines.cuda.sm90.gemm_shape import Sizes
from graphdnn.engines.cuda.sm90.split_k import Adding
from graphdnn.engines.cuda.sm90.tile import PANEL, TILES, Tile
from graphdnn.engines.cuda.sm90.tile_choice import PARTS, STAGES, TILE, choose
from graphdnn.fusion import fuse
from graphdnn.problem import parse

H200 = device_spec("h200")


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_registers_taken_are_there(tile: Tile) -> None:
    """``setmaxnreg`` takes from what the block began with; asking for more waits for ever."""
    multiplying, copying = tile.registers
    assert multiplying % 8 == 0
    assert copying % 8 == 0
    assert tile.consumers * multiplying + copying <= (tile.consumers + 1) * tile.registers_at_start
    sums = tile.bm // (64 * tile.consumers) * tile.bn // 2
    assert sums + 24 <= multiplying, "sums, and what addresses need"


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_rings_fit_side_by_side(tile: Tile) -> None:
    stages = tile.stages(H200.shared_memory)
    assert stages >= 2
    assert tile.blocks * (stages * (tile.stage_bytes + 16) + 1024) <= H200.shared_memory


def test_a_choice_keeps_to_the_knobs_that_serve() -> None:
    sizes = Sizes(
        products=((50176, 18),),
        columns=128,
        groups=1,
        column_unit=1,
        result_bytes=2,
        may_be_turned=True,
        may_take_turns=True,
    )
    free = choose(sizes, H200, {TILE.type: 0, STAGES.type: 0, PARTS.type: 0})
    for number, tile in enumerate(TILES, 1):
        if tile.shares:
            continue
        parts = 3 if tile.may_be_split else 1
        chosen = choose(sizes, H200, {TILE.type: number, STAGES.type: 2, PARTS.type: parts})
        assert (chosen.tile, chosen.stages, chosen.parts) == (tile, 2, parts)
        rows, columns = (tile.bn, tile.bm) if tile.is_turned else (tile.bm, tile.bn)
        assert sizes.tiles(tile) == -(-50176 // rows) * -(-128 // columns)
        assert free.seconds <= choose(sizes, H200, {TILE.type: number, STAGES.type: 0, PARTS.type: 0}).seconds
    narrow = sizes._replace(column_unit=64)
    odd = next(i for i, tile in enumerate(TILES, 1) if tile.bn % 64)
    assert choose(narrow, H200, {TILE.type: odd, STAGES.type: 0, PARTS.type: 0}).tile.bn % 64 == 0


@pytest.mark.parametrize("number", [i for i, tile in enumerate(TILES, 1) if tile.shares])
def test_panels_are_shared_by_filter_gradients_alone(number: int) -> None:
    """Where tiles end within a panel, its neighbours have the rest: a whole number of panels and of tiles."""
    tile, asked = TILES[number - 1], {TILE.type: number, STAGES.type: 0, PARTS.type: 1}
    sharers = PANEL // (tile.bn % PANEL)
    panels = sharers * (tile.bn // PANEL) + 1
    assert sharers * tile.bn == panels * PANEL
    sizes = Sizes(
        products=((512, 49),), columns=3 * panels * PANEL, groups=1, column_unit=PANEL, result_bytes=2, is_across=True
    )
    assert not choose(sizes, H200, asked).tile.shares
    shared = sizes._replace(may_share=True)
    assert choose(shared, H200, asked).tile == tile
    assert shared.tiles(tile) == -(-512 // tile.bm) * 3 * sharers


def test_shared_panels_fill_the_device() -> None:
    """Nine taps of 512 channels, 512 rows: four tiles of 144 columns have two taps each and a quarter of the ninth."""
    asked = {TILE.type: 0, STAGES.type: 0, PARTS.type: 0}
    sizes = Sizes(products=((512, 49),), columns=4608, groups=1, column_unit=PANEL, result_bytes=2, is_across=True)
    assert sizes.tiles(choose(sizes, H200, asked).tile) < 128
    chosen = choose(sizes._replace(may_share=True), H200, asked)
    assert (chosen.tile.name, chosen.parts) == ("128x144s", 1)
    assert sizes.tiles(chosen.tile) == 128


@pytest.mark.parametrize("size", [4, 8])
def test_all_parts_are_added(size: int) -> None:
    """Each share of the parts in some rounds, by blocks that divide the sums."""
    for sums in (64 * 32, 64 * 64, 576 * 256, 2304 * 256):
        for parts in range(2, 129):
            adding = Adding(sums, parts, size)
            found = adding.constants
            warps = found["SLICES"] * found["UNITS_PER_CTA"]
            assert 2 * size <= size * found["LOADS_IN_FLIGHT"] <= 32
            assert 4 <= warps <= 8
            assert found["SLICES"] * 8 // found["UNIT_ROWS"] <= parts
            assert sums % (32 * found["UNIT_ROWS"] * found["UNITS_PER_CTA"]) == 0
    assert Adding(64 * 32, 1).constants == {}


def test_turned_tiles_fill_the_device() -> None:
    """512 channels of 64 images of 7x7: tiles of 128 channels and 96 pixels are as many as there are multiprocessors."""
    asked = {TILE.type: 0, STAGES.type: 0, PARTS.type: 0}
    sizes = Sizes(products=((3136, 72),), columns=512, groups=1, column_unit=1, result_bytes=2)
    turned = sizes._replace(may_be_turned=True)
    assert not choose(sizes, H200, asked).tile.is_turned
    chosen = choose(turned, H200, asked)
    assert chosen.tile.is_turned
    assert turned.tiles(chosen.tile) == H200.sm_count
    assert not choose(turned, H200, asked | {TILE.type: TILES.index(chosen.tile) + 1, PARTS.type: 2}).tile.is_turned


def test_tiles_without_steps_have_blocks_of_their_own() -> None:
    """One tap, stride 2: three of four residues are zeros to store, beside products that do not fill the device."""
    sizes = Sizes(
        products=((1568, 32), (1568, 0), (1568, 0), (1568, 0)), columns=1024, groups=1, column_unit=1, result_bytes=2
    )
    number = next(i for i, tile in enumerate(TILES, 1) if tile.name == "128x128")
    asked = {TILE.type: number, STAGES.type: 0, PARTS.type: 0}
    chosen = choose(sizes, H200, asked)
    assert chosen.busy == -(-1568 // 128) * (1024 // 128) < H200.sm_count
    assert choose(sizes._replace(products=sizes.products[:1]), H200, asked).busy == 0
    full = choose(
        sizes._replace(products=tuple((132 * 128, depth) for _, depth in sizes.products), columns=128), H200, asked
    )
    assert full.busy == 0, "no block is left over"


@pytest.mark.parametrize(
    "text", ["conv x=f16[1,64,6,6]nhwc w=f16[64,64,3,3]nhwc", "conv x=i16[1,64,6,6]nhwc w=i16[64,64,3,3]nhwc"]
)
def test_a_ring_has_two_stages(text: str) -> None:
    """With a single one, kernels would wait for ever: what is asked for is taken as two."""
    plan = parse(text)
    task = Task(fuse(plan.build_operation_graph()).operations[0], H200)
    engine = next(e for e in engines_of("cuda") if e.serves(task))
    one, two = (engine.compile(task, engine.settings({STAGES.type: n})) for n in (1, 2))
    assert one.source == two.source
    assert "STAGES = 2" in (one.source or "")


def test_a_product_without_steps_has_a_tile() -> None:
    """A data gradient of pixels that no tap reaches."""
    free = {TILE.type: 0, STAGES.type: 0, PARTS.type: 0}
    for products in (((640, 0),), ((640, 0), (320, 0)), ((640, 9), (320, 0))):
        sizes = Sizes(products=products, columns=64, groups=1, column_unit=1, result_bytes=2)
        assert choose(sizes, H200, free).seconds < 1e-3
