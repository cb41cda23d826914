"""Fitted constants of the cost models of the Hopper kernels, from an H200: fitted_h200.json beside this file.

The file says for each model the device, the date, the measured rows, and each constant with its unit and meaning. It
serves every device of compute capability 9.0. ``benchmarks/fit_predictions.py`` fits constants to
``tests/data/measured_h200.txt``. Constants of the hardware and of a kernel's code are in the models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

FILE = Path(__file__).with_name("fitted_h200.json")

# Without comparison and text, which nobody asks for, the classes take a third less time to make.


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GemmConstants:
    """Tiles of tile.py: tile_cycles.py, gemm_time.py, conv_gemm_shape.py, hopper_matmul.py."""

    mma_cycles_per_result: float  # cycles: for each result of a tile and K tile
    smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that wgmma reads, or TMA writes
    tma_bytes_per_cycle: float  # bytes per cycle: that TMA loads from L2
    tile_overhead_cycles: float  # cycles: further, of a tile
    cta_alternation_cycles: float  # cycles: further, of a tile, if two CTAs share the multiprocessor
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results and of epilogue operands that move
    tma_residual_share: float  # share: of a residual's bytes that counts, if TMA loads it
    epilogue_cycles_per_result: float  # cycles: of a warpgroup for each of its results
    epilogue_cycles_per_byte: float  # cycles: of a warpgroup for each byte that its epilogue moves
    epilogue_min_bytes: float  # bytes: the fewest that an element counts: a byte takes instructions as well
    scalar_store_cycles: float  # cycles: of a warpgroup for each result, if elements are stored one by one
    swap_ab_scalar_store_cycles: float  # cycles: the same with ``swap_ab``
    pair_store_cycles: float  # cycles: the same, if elements are stored in pairs
    exposed_epilogue_share: float  # share: of the epilogue that no main loop overlaps, of the last tiles
    launch_cycles: float  # cycles: of a launch: negative, because it starts while the previous one ends
    # cycles: that a launch saves, if all multiprocessors idle: they start the next launch at once
    idle_saving_cycles: float
    idle_saving_loss_per_result: float  # cycles: less saved, for each result of a tile
    wgrad_idle_saving_loss_per_result: float  # cycles: the same of a filter gradient
    pingpong_factor: float  # factor: of a K tile with ping-pong groups
    pingpong_16bit_factor: float  # factor: the same with 16-bit operands, which measured 0.97 to 1.46 of the model
    cluster_mainloop_factor: float  # factor: of a K tile, if a cluster reduces splits
    byte_tile_overhead_cycles: float  # cycles: further, of a tile whose results have one byte
    byte_epilogue_bytes: float  # bytes: that such a result counts as in a warpgroup's epilogue
    byte_store_bytes: float  # bytes: that such a result counts as in all bytes that move
    byte_wide_tile_cycles: float  # cycles: further, for each such result of a tile with more than 128 columns
    byte_swap_ab_cycles: float  # cycles: further, for each such result with ``swap_ab``, or with three consumers
    integer_epilogue_cycles: float  # cycles: further, of a tile of integers with three consumers, or with ``swap_ab``
    conversion_results_per_cycle: float  # results per cycle: integers that become floats
    wgrad_launch_cycles: float  # cycles: further, of a filter gradient's launch
    wgrad_load_factor: float  # factor: of the loads of a filter gradient's K tile
    # factor: how much less a filter gradient's K tile takes, times the share of idle multiprocessors
    wgrad_idle_speedup: float
    wgrad_max_idle_share: float  # share: the largest of idle multiprocessors that counts there
    wgrad_cluster_max_idle_share: float  # share: the largest that counts there in clusters
    shared_slab_cycles: float  # cycles: further, of a tile with a shared slab
    tma_partial_slab_row_cycles: float  # cycles: of TMA for a row of less than 128 bytes
    tma_two_lines_cycles: float  # cycles: of TMA for a row of 128 bytes in two cache lines (RowAlignment)
    tma_split_sector_cycles: float  # cycles: the same, if the row splits sectors
    tma_partial_cycles: float  # cycles: the same, if the row is partial
    tma_volumetric_cycles: float  # cycles: the same, if the row is of a volume
    tma_zero_row_cycles: float  # cycles: of TMA for a row that it fills with zeros
    sustained_clock_share: float  # share: the sustained clock rate over the highest
    tma_latency_cycles: float  # cycles: from the issue of a TMA load to its end
    overlap_norm: float  # exponent: of the norm that combines cycles of a multiprocessor and of memory
    # cycles: further, of a filter gradient's tile, if two CTAs may share a multiprocessor
    wgrad_cta_alternation_cycles: float
    cluster_sync_cycles: float  # cycles: until all CTAs of a cluster have arrived, unless loading operands dominates
    dsmem_bytes_per_cycle: float  # bytes per cycle: that a multiprocessor sends to other multiprocessors of its cluster
    split_reduction_launches: float  # launches: the time of the launch that reduces splits, without its reads
    sm_memory_bytes_per_second: float  # bytes per second: from memory to one multiprocessor
    half_rate_bytes_in_flight: float  # bytes: in flight with which a multiprocessor reads at half of that rate
    operand_bandwidth_share: float  # share: of the bandwidth that reads of operands get
    cluster_bandwidth_exponent: float  # exponent: clusters get the share of busy multiprocessors to this power
    # factor: how much faster a multiprocessor reads if few multiprocessors read; 0 if half of all multiprocessors read
    few_readers_speedup: float
    # factor: of the bytes that move, if a tap skips pixels whose channels share cache lines
    shared_line_traffic_factor: float
    beyond_cache_factor: float  # factor: of a product's seconds, if neither operand stays in L2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HaloConstants:
    """Halo tiles of fprop: halo_tile_choice.py, hopper_halo.py."""

    tma_residual_factor: float  # factor: of a residual's bytes, if TMA loads it
    thread_residual_factor: float  # factor: of a residual's bytes, if threads load it
    mma_cycles_per_result: float  # cycles: for each result of a tile and 32 bytes of K
    smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that wgmma reads
    tma_bytes_per_cycle: float  # bytes per cycle: that TMA loads
    mma_cycles_per_loaded_byte: float  # cycles: for each byte that is loaded during MMAs: power
    min_tap_cycles: float  # cycles: the fewest of a tap, if a consumer has 64 pixels: it waits for filters
    tile_overhead_cycles: float  # cycles: further, of a halo tile
    volume_factor: float  # factor: of a wave, for volumes
    # cycles: further, with stationary filters; consumers that do not wait divide them
    stationary_tile_overhead_cycles: float
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored
    streamed_epilogue_divisor: float  # divisor: of the epilogues of all consumers, with streamed filters
    launch_cycles: float  # cycles: of a launch
    sustained_clock_share: float  # share: the sustained clock rate over the highest
    idle_saving_launches: float  # launches: time that a grid saves if nearly all multiprocessors idle
    byte_launch_cycles: float  # cycles: of a launch, for streamed filters of bytes
    byte_tile_overhead_cycles: float  # cycles: further, of a halo tile of bytes
    byte_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored, for operands of bytes
    byte_sustained_clock_share: float  # share: the sustained clock rate over the highest, for operands of bytes
    # bytes per cycle: of results, if stores overlap MMAs of another consumer
    byte_overlapped_store_bytes_per_cycle: float
    byte_tma_bytes_per_cycle: float  # bytes per cycle: that TMA loads, for operands of bytes
    byte_tap_overhead_cycles: float  # cycles: further, of a tap of bytes
    # cycles: further, for each accumulator of a thread, if registers do not keep column operands
    byte_operand_reload_cycles: float
    # factor: of the time of memory, for one tap: engines that load filters again take longer
    memory_bound_factor: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HaloDgradConstants:
    """Halo tiles of dgrad: halo_dgrad_tiles.py."""

    smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that wgmma SS reads
    rs_smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that is read for wgmma RS
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored
    launch_cycles: float  # cycles: of a launch
    tma_latency_cycles: float  # cycles: from the issue of a TMA load to its end: with few stages, consumers wait
    sustained_clock_share: float  # share: the clock rate over the nominal one
    idle_saving_launches: float  # launches: time that a grid saves if nearly all multiprocessors idle


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HaloWgradConstants:
    """Halo tiles of wgrad: halo_wgrad_tiles.py."""

    mma_products_per_cycle: float  # products per cycle: multiplications of 16-bit numbers
    smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that wgmma reads
    tma_bytes_per_cycle: float  # bytes per cycle: that TMA loads
    tile_overhead_cycles: float  # cycles: further, of a halo tile
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored
    filter_block_overhead_cycles: float  # cycles: further, of a filter block
    launch_cycles: float  # cycles: of a launch: negative, because it starts while the previous one ends
    sustained_clock_share: float  # share: the sustained clock rate over the highest
    split_reduction_launches: float  # launches: the time of the launch that reduces splits, without its reads


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WeightStationaryConstants:
    """Tiles with stationary filters: weight_stationary_tiles.py, weight_stationary_shape.py."""

    mma_cycles_per_result: float  # cycles: for each result of a tile and K tile
    smem_bytes_per_cycle: float  # bytes per cycle: of shared memory that wgmma reads
    pixel_tma_bytes_per_cycle: float  # bytes per cycle: of pixels that TMA loads
    partial_row_load_factor: float  # factor: further loads, for each missing byte of rows of 128 bytes
    tma_latency_cycles: float  # cycles: from the issue of a TMA load to its end: with few stages, consumers wait
    k_tile_overhead_cycles: float  # cycles: further, of a K tile
    epilogue_cycles_per_byte: float  # cycles: of a consumer for each byte that its epilogue stores or loads
    # bytes per cycle: of filters that TMA loads: most loads overlap the previous launch
    filter_tma_bytes_per_cycle: float
    overlap_norm: float  # exponent: of the norm that combines the phases
    sustained_clock_share: float  # share: the clock rate over the nominal one
    idle_saving_launches: float  # launches: time that a grid saves if nearly all multiprocessors idle
    scalar_store_factor: int  # factor: of a result's bytes, if its elements are stored one by one
    residual_traffic_factor: float  # factor: of all bytes, if threads wait for an operand as large as the result


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DgradTf32Constants:
    """TF32 data gradients whose filters pass through registers: dgrad_tf32_tiles.py."""

    mma_cycles_per_result: float  # cycles: for each result and K tile
    mma_cycles_per_loaded_byte: float  # cycles: for each byte of a K tile
    tile_overhead_cycles: float  # cycles: further, of a tile
    epilogue_cycles_per_byte: float  # cycles: of a warpgroup for each byte of its results
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that a multiprocessor stores
    launch_cycles: float  # cycles: of a launch: negative, because it starts while the previous one ends
    idle_saving_launches: float  # launches: time that a grid saves if nearly all multiprocessors idle
    sustained_clock_share: float  # share: the sustained clock rate over the highest


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LimbConstants:
    """Split precision, fprop and dgrad: limb_tiles.py, image_limbs.py, hopper_limbs.py."""

    mma_factor: float  # factor: of the cycles of wgmma at the peak rate
    packed_mma_factor: float  # factor: the same with packed accumulators, whose permutation nothing hides
    packed_mma_overhead_cycles: float  # cycles: further, of each MMA with packed accumulators, before that factor
    split_float_cycles: float  # cycles: of a consumer, to split a K step of fp32 into limbs; partly hidden behind wgmma
    split_int32_cycles: float  # cycles: the same of int32
    split_int16_cycles: float  # cycles: the same of int16
    split_byte_cycles: float  # cycles: the same of int8 and uint8
    # cycles: of a consumer, for each column of a tile of floats and K tile; partly hidden
    promotion_cycles_per_column: float
    tma_bytes_per_cycle: float  # bytes per cycle: of a stage that TMA fills
    k_tile_overhead_cycles: float  # cycles: further, of a K tile
    tile_overhead_cycles: float  # cycles: further, of a tile
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored
    exposed_epilogue_divisor: float  # divisor: of the epilogue, if main loops overlap it
    # share: of the data sheet's bandwidth that the launch reaches that splits the filter
    split_filter_bandwidth_share: float
    # share: of the data sheet's bandwidth that the launch reaches that splits the image
    split_image_bandwidth_share: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LimbWgradConstants:
    """Split precision, wgrad: limb_wgrad_tiles.py, limb_wgrad_schemes.py."""

    two_limb_mma_factor: float  # factor: of the cycles of wgmma at the peak rate, with two limbs
    three_limb_mma_factor: float  # factor: the same with three limbs
    integer_mma_factor: float  # factor: the same of integers
    tma_bytes_per_cycle: float  # bytes per cycle: of a stage that TMA fills
    k_tile_overhead_cycles: float  # cycles: further, of a K tile
    tile_overhead_cycles: float  # cycles: further, of a tile
    epilogue_store_bytes_per_cycle: float  # bytes per cycle: of results that are stored
    exposed_epilogue_divisor: float  # divisor: of the epilogue, if main loops overlap it
    launch_cycles: float  # cycles: of a launch


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StemConstants:
    """Rows of a tile of first layers: hopper_stem.py."""

    tma_reload_penalty: float  # factor: further time, times the share of rows that are loaded again, if TMA loads them
    thread_reload_penalty: float  # factor: the same, if threads load them
    few_stages_penalty: float  # factor: further time with fewer than three stages: consumers wait for memory


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FilterCopyConstants:
    """The launch that copies a filter: tma_operands.py."""

    copy_launches: float  # launches: the time of the launch without the bytes that it moves


Constants = TypeVar("Constants")


def read(kind: type[Constants], table: Mapping[str, Any]) -> Constants:
    """The constants of one model. Raises ValueError if the names of the table are not the fields of the class."""
    constants = table["constants"]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if list(constants) != names:
        raise ValueError(f"{FILE.name}: {kind.__name__} has other constants: {sorted(set(constants) ^ set(names))}")
    return kind(**{name: constants[name]["value"] for name in names})


_TABLES = json.loads(FILE.read_text(encoding="utf-8"))
GEMM = read(GemmConstants, _TABLES["gemm"])
HALO = read(HaloConstants, _TABLES["halo"])
HALO_DGRAD = read(HaloDgradConstants, _TABLES["halo_dgrad"])
HALO_WGRAD = read(HaloWgradConstants, _TABLES["halo_wgrad"])
WEIGHT_STATIONARY = read(WeightStationaryConstants, _TABLES["weight_stationary"])
DGRAD_TF32 = read(DgradTf32Constants, _TABLES["dgrad_tf32"])
LIMBS = read(LimbConstants, _TABLES["limbs"])
LIMBS_WGRAD = read(LimbWgradConstants, _TABLES["limbs_wgrad"])
STEM = read(StemConstants, _TABLES["stem"])
FILTER_COPY = read(FilterCopyConstants, _TABLES["filter_copy"])
