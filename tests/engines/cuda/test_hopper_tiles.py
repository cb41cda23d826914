"""Tiles of the products on compute capability 9.0: what would hang or not fit, without a device."""

from __future__ import annotations

import pytest

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Task, engines_of
from graphdnn.engines.cuda.sm90.gemm_shape import GemmShape
from graphdnn.engines.cuda.sm90.split_k import SplitKReduction
from graphdnn.engines.cuda.sm90.tile import SLAB_ROWS, TILES, Tile
from graphdnn.engines.cuda.sm90.tile_choice import SPLITS, STAGES, TILE, choose
from graphdnn.fusion import fuse
from graphdnn.problem import parse

H200 = device_spec("h200")


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_the_kernel_has_tiles_of_these_extents(tile: Tile) -> None:
    assert tile.bm in (64, 128, 192, 256), "Tile.consumers and Tile.registers say nothing of other rows"
    multiple = 16 if tile.shares_tail else 32
    assert tile.bn % multiple == 0, f"the columns are a multiple of {multiple}: see static_assert in hopper_gemm.cu"
    assert tile.bn <= 256, "one wgmma has at most 256 columns"


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_registers_taken_are_there(tile: Tile) -> None:
    """``setmaxnreg`` takes from what the CTA began with; asking for more waits for ever."""
    consumer, producer = tile.registers
    assert consumer % 8 == 0
    assert producer % 8 == 0
    assert tile.consumers * consumer + producer <= (tile.consumers + 1) * tile.launch_registers
    assert tile.accumulators + 24 <= consumer, "a consumer thread has no registers for accumulators and addresses"


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_rings_fit_side_by_side(tile: Tile) -> None:
    stages = tile.stages(H200.shared_memory)
    assert stages >= 2, f"two stages of {tile.stage_bytes} bytes do not fit into shared memory"
    assert tile.ctas_per_sm * (stages * (tile.stage_bytes + 16) + 1024) <= H200.shared_memory


def test_a_choice_keeps_to_the_knobs_that_serve() -> None:
    sizes = GemmShape(
        gemms=((50176, 18),),
        columns=128,
        groups=1,
        column_multiple=1,
        result_bytes=2,
        may_swap_ab=True,
        may_pingpong=True,
    )
    free = choose(sizes, H200, {TILE.type: 0, STAGES.type: 0, SPLITS.type: 0})
    for number, tile in enumerate(TILES, 1):
        if tile.shares_tail:
            continue
        parts = 3 if tile.may_split_k else 1
        chosen = choose(sizes, H200, {TILE.type: number, STAGES.type: 2, SPLITS.type: parts})
        assert (chosen.tile, chosen.stages, chosen.splits) == (tile, 2, parts)
        rows, columns = (tile.bn, tile.bm) if tile.swap_ab else (tile.bm, tile.bn)
        assert sizes.tiles(tile) == -(-50176 // rows) * -(-128 // columns)
        assert free.seconds <= choose(sizes, H200, {TILE.type: number, STAGES.type: 0, SPLITS.type: 0}).seconds
    narrow = sizes._replace(column_multiple=64)
    odd = next(i for i, tile in enumerate(TILES, 1) if tile.bn % 64)
    assert choose(narrow, H200, {TILE.type: odd, STAGES.type: 0, SPLITS.type: 0}).tile.bn % 64 == 0


@pytest.mark.parametrize("number", [i for i, tile in enumerate(TILES, 1) if tile.shares_tail])
def test_panels_are_shared_by_filter_gradients_alone(number: int) -> None:
    """Where tiles end within a panel, its neighbours have the rest: a whole number of panels and of tiles."""
    tile, requested = TILES[number - 1], {TILE.type: number, STAGES.type: 0, SPLITS.type: 1}
    tile_consumers = SLAB_ROWS // (tile.bn % SLAB_ROWS)
    panels = tile_consumers * (tile.bn // SLAB_ROWS) + 1
    assert tile_consumers * tile.bn == panels * SLAB_ROWS
    sizes = GemmShape(
        gemms=((512, 49),),
        columns=3 * panels * SLAB_ROWS,
        groups=1,
        column_multiple=SLAB_ROWS,
        result_bytes=2,
        is_mn_major=True,
    )
    assert not choose(sizes, H200, requested).tile.shares_tail
    shared = sizes._replace(may_share_tail=True)
    assert choose(shared, H200, requested).tile == tile
    assert shared.tiles(tile) == -(-512 // tile.bm) * 3 * tile_consumers


def test_shared_panels_fill_the_device() -> None:
    """Nine taps of 512 channels, 512 rows: four tiles of 144 columns have two taps each and a quarter of the ninth."""
    requested = {TILE.type: 0, STAGES.type: 0, SPLITS.type: 0}
    sizes = GemmShape(
        gemms=((512, 49),), columns=4608, groups=1, column_multiple=SLAB_ROWS, result_bytes=2, is_mn_major=True
    )
    assert sizes.tiles(choose(sizes, H200, requested).tile) < 128
    chosen = choose(sizes._replace(may_share_tail=True), H200, requested)
    assert (chosen.tile.name, chosen.splits) == ("128x144s", 1)
    assert sizes.tiles(chosen.tile) == 128


@pytest.mark.parametrize("size", [4, 8])
def test_all_parts_are_added(size: int) -> None:
    """Each share of the parts in some rounds, by blocks that divide the sums."""
    for sums in (64 * 32, 64 * 64, 576 * 256, 2304 * 256):
        for parts in range(2, 129):
            adding = SplitKReduction(sums, parts, size)
            found = adding.constants
            warps = found["SLICES"] * found["UNITS_PER_CTA"]
            assert 2 * size <= size * found["LOADS_IN_FLIGHT"] <= 32
            assert 4 <= warps <= 8
            assert found["SLICES"] * 8 // found["UNIT_ROWS"] <= parts
            assert sums % (32 * found["UNIT_ROWS"] * found["UNITS_PER_CTA"]) == 0
    assert SplitKReduction(64 * 32, 1).constants == {}


def test_turned_tiles_fill_the_device() -> None:
    """512 channels of 64 images of 7x7: tiles of 128 channels and 96 pixels are as many as there are multiprocessors."""
    requested = {TILE.type: 0, STAGES.type: 0, SPLITS.type: 0}
    sizes = GemmShape(gemms=((3136, 72),), columns=512, groups=1, column_multiple=1, result_bytes=2)
    turned = sizes._replace(may_swap_ab=True)
    assert not choose(sizes, H200, requested).tile.swap_ab
    chosen = choose(turned, H200, requested)
    assert chosen.tile.swap_ab
    assert turned.tiles(chosen.tile) == H200.sm_count
    assert not choose(turned, H200, requested | {TILE.type: TILES.index(chosen.tile) + 1, SPLITS.type: 2}).tile.swap_ab


def test_tiles_without_steps_have_blocks_of_their_own() -> None:
    """One tap, stride 2: three of four residues are zeros to store, beside products that do not fill the device."""
    sizes = GemmShape(
        gemms=((1568, 32), (1568, 0), (1568, 0), (1568, 0)), columns=1024, groups=1, column_multiple=1, result_bytes=2
    )
    number = next(i for i, tile in enumerate(TILES, 1) if tile.name == "128x128")
    requested = {TILE.type: number, STAGES.type: 0, SPLITS.type: 0}
    chosen = choose(sizes, H200, requested)
    assert chosen.mainloop_ctas == -(-1568 // 128) * (1024 // 128) < H200.sm_count
    assert choose(sizes._replace(gemms=sizes.gemms[:1]), H200, requested).mainloop_ctas == 0
    full = choose(
        sizes._replace(gemms=tuple((132 * 128, depth) for _, depth in sizes.gemms), columns=128), H200, requested
    )
    assert full.mainloop_ctas == 0, "no block is left over"


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
    free = {TILE.type: 0, STAGES.type: 0, SPLITS.type: 0}
    for gemms in (((640, 0),), ((640, 0), (320, 0)), ((640, 9), (320, 0))):
        sizes = GemmShape(gemms=gemms, columns=64, groups=1, column_multiple=1, result_bytes=2)
        assert choose(sizes, H200, free).seconds < 1e-3
