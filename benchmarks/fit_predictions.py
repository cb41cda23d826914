"""Fit the constants of the engines' models to the table of measured candidates, tests/data/measured_h200.txt.

    python benchmarks/fit_predictions.py [MODEL ...] [--rows TEXT] [--passes N] [--halves]

Prints the regret of choices by engine, each layer weighed equally; then, for each model, how far predictions are from
what was measured, what the choice of a tile costs, and each constant, with the value that does better, one changed
after the other; then the problems whose first choice, with these constants, is none of the measured candidates: what
the table says of choices is not said of them. ``--halves`` fits to half of the layers and asks the others. Nothing is
written: a constant is changed where the change has a reason. Constants of the Hopper kernels are in
graphdnn/engines/cuda/sm90/fitted_h200.json, the others in the modules of their models.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log, sqrt
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # graphdnn from this checkout

from gpu.measured import Row, rows

from graphdnn.engines.cuda.cublas import explicit_gemm, strided_gemm
from graphdnn.engines.cuda.direct.grouped import grouped_tiles, grouped_wgrad_tiles
from graphdnn.engines.cuda.sm80 import mma_gemm, mma_skinny
from graphdnn.engines.cuda.sm90 import fitted_constants, gemm_time, tile_choice, tile_cycles
from graphdnn.engines.cuda.sm90.gemm import dgrad_tf32_tiles
from graphdnn.engines.cuda.sm90.halo import halo_dgrad_tiles, halo_tile_choice, halo_wgrad_tiles
from graphdnn.engines.cuda.sm90.weight_stationary import weight_stationary_tiles

_STEPS = (0.2, 0.08, 0.03)  # of a constant, up and down
_REGRET = 4.0  # how much a choice that is 1 % slower counts beside a prediction that is 1 % away


@dataclass(frozen=True)
class Model:
    """Constants by their names, and the engines whose predictions they make.

    ``table``: of fitted_h200.json, whose constants the modules have as ``FITTED``. Without it, each constant is one of
    a module.
    """

    modules: tuple[ModuleType, ...]
    engines: tuple[str, ...]
    constants: tuple[str, ...]
    table: str = ""

    def __getitem__(self, constant: str) -> float:
        home = self._homes(constant)[0]
        value: float = getattr(home.FITTED if self.table else home, constant)
        return value

    def __setitem__(self, constant: str, value: float) -> None:
        for home in self._homes(constant):
            if self.table:
                home.FITTED = replace(home.FITTED, **{constant: value})
            else:
                setattr(home, constant, value)

    def _homes(self, constant: str) -> list[ModuleType]:
        return [module for module in self.modules if hasattr(module, "FITTED" if self.table else constant)]

    def unit(self, constant: str) -> str:
        """As the data file has it."""
        return UNITS[self.table][constant] if self.table else ""

    def forget(self) -> None:
        """What was worked out with other constants."""
        for module in self.modules:
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
            for tile in getattr(module, "TILES", ()):
                for name, value in vars(type(tile)).items():
                    if isinstance(value, cached_property):
                        vars(tile).pop(name, None)


UNITS = {
    name: {constant: row["unit"] for constant, row in table["constants"].items()}
    for name, table in json.loads(fitted_constants.FILE.read_text(encoding="utf-8")).items()
}
MODELS = {
    "gemm": Model(
        (tile_cycles, gemm_time, tile_choice),
        ("cuda_hopper_gemm", "cuda_hopper_gemm_tf32", "cuda_hopper_matmul"),
        (
            *("mma_cycles_per_result", "smem_bytes_per_cycle", "tma_bytes_per_cycle", "tile_overhead_cycles"),
            *("cta_alternation_cycles", "epilogue_store_bytes_per_cycle", "epilogue_cycles_per_result"),
            *("epilogue_cycles_per_byte", "exposed_epilogue_share", "launch_cycles", "wgrad_launch_cycles"),
            *("wgrad_cta_alternation_cycles", "integer_epilogue_cycles", "conversion_results_per_cycle"),
            *("cluster_sync_cycles", "dsmem_bytes_per_cycle", "split_reduction_launches"),
            *("sm_memory_bytes_per_second", "half_rate_bytes_in_flight", "idle_saving_cycles"),
            *("idle_saving_loss_per_result", "wgrad_idle_saving_loss_per_result", "few_readers_speedup"),
            *("tma_two_lines_cycles", "tma_split_sector_cycles", "tma_partial_cycles", "tma_volumetric_cycles"),
            *("tma_zero_row_cycles", "scalar_store_cycles", "swap_ab_scalar_store_cycles", "pair_store_cycles"),
            *("tma_latency_cycles", "tma_partial_slab_row_cycles"),
        ),
        "gemm",
    ),
    "halo": Model(
        (halo_tile_choice,),
        ("cuda_hopper_halo", "cuda_hopper_halo_tf32"),
        (
            *("mma_cycles_per_result", "smem_bytes_per_cycle", "tma_bytes_per_cycle", "mma_cycles_per_loaded_byte"),
            *("min_tap_cycles", "tile_overhead_cycles", "stationary_tile_overhead_cycles"),
            *("epilogue_store_bytes_per_cycle", "launch_cycles"),
        ),
        "halo",
    ),
    "weight_stationary": Model(
        (weight_stationary_tiles,),
        ("cuda_hopper_weight_stationary",),
        (
            *("mma_cycles_per_result", "smem_bytes_per_cycle", "pixel_tma_bytes_per_cycle", "partial_row_load_factor"),
            *("tma_latency_cycles", "k_tile_overhead_cycles", "epilogue_cycles_per_byte"),
            "filter_tma_bytes_per_cycle",
        ),
        "weight_stationary",
    ),
    "dgrad_tf32": Model(
        (dgrad_tf32_tiles,),
        ("cuda_hopper_dgrad_tf32",),
        (
            *("mma_cycles_per_result", "mma_cycles_per_loaded_byte", "tile_overhead_cycles"),
            *("epilogue_cycles_per_byte", "epilogue_store_bytes_per_cycle", "launch_cycles"),
        ),
        "dgrad_tf32",
    ),
    "halo_dgrad": Model(
        (halo_dgrad_tiles,),
        ("cuda_hopper_halo_dgrad", "cuda_hopper_halo_dgrad_tf32"),
        ("smem_bytes_per_cycle", "rs_smem_bytes_per_cycle", "epilogue_store_bytes_per_cycle", "launch_cycles"),
        "halo_dgrad",
    ),
    "halo_wgrad": Model(
        (halo_wgrad_tiles,),
        ("cuda_hopper_halo_wgrad",),
        (
            *("mma_products_per_cycle", "smem_bytes_per_cycle", "tma_bytes_per_cycle", "tile_overhead_cycles"),
            *("epilogue_store_bytes_per_cycle", "filter_block_overhead_cycles", "launch_cycles"),
            "split_reduction_launches",
        ),
        "halo_wgrad",
    ),
    "grouped": Model(
        (grouped_tiles,),
        ("cuda_grouped",),
        (
            "_LOAD",
            "_MMA",
            "_EPILOGUE",
            "_COPY_ROW",
            "_COPY_CHUNK",
            "_WARP_TILE_LATENCY",
            "_MMA_LATENCY",
            "_COPY_ROW_LATENCY",
            "_EXPOSED_LOAD",
            "_STRIDED",
        ),
    ),
    "grouped_wgrad": Model(
        (grouped_wgrad_tiles,),
        ("cuda_grouped_wgrad",),
        (
            "_LOAD",
            "_MMA",
            "_K_STEP",
            "_LOAD_LATENCY",
            "_MMA_LATENCY",
            "_TILE_LATENCY",
            "_TMA_PIXEL",
            "_ROW_END_CONFLICT",
            "_REDUCTION_BANDWIDTH",
            "_LAUNCH_SECONDS",
        ),
    ),
    "mma": Model(
        (mma_gemm,), ("cuda_mma_gemm", "cuda_mma_gemm_tf32"), ("_RATE_CORRECTION", "_EPILOGUE_SHARE", "_IDLE")
    ),
    "library": Model(
        (strided_gemm, explicit_gemm),
        ("cuda_explicit_gemm", "cuda_matmul_cublas"),
        ("_SHARE", "_FLOAT_SHARE", "_START", "_OUTSIDE", "_IDLE", "_NARROW_PACE", "_ODD_ROWS", "_PACK_WORK"),
    ),
    "few": Model((mma_skinny,), ("cuda_matmul_skinny",), ("_START", "_SECOND")),
}


@dataclass(frozen=True, slots=True)
class Quality:
    """``away``: of predictions, in the quadratic mean; ``regret``: of choices, in the geometric mean."""

    pairs: int
    away: float
    regret: float
    worst: float

    @classmethod
    def of(cls, model: Model, table: Sequence[Row]) -> Quality:
        model.forget()
        away, regret = [], []
        for row in table:
            predicted = [one.predicted_us(row.task) for one in row.candidates]
            pairs = zip(predicted, row.candidates, strict=True)
            away += [log(us / one.us) for us, one in pairs if one.engine.name in model.engines]
            regret.append(row.candidates[predicted.index(min(predicted))].us / row.best.us)
        mean = exp(sum(map(log, regret)) / len(regret))
        return cls(len(away), sqrt(sum(d * d for d in away) / len(away)), mean - 1.0, max(regret) - 1.0)

    @property
    def loss(self) -> float:
        return self.away + _REGRET * self.regret

    def __str__(self) -> str:
        choices = f"choices {self.regret:.2%} slower than the best, {self.worst:.0%} at worst"
        return f"{self.pairs} pairs, {self.away:.1%} away; {choices}"


def fit(model: Model, table: Sequence[Row], passes: int) -> Quality:
    """Leaves the constants as they are best."""
    best = Quality.of(model, table)
    for step in _STEPS[:passes]:
        for name in model.constants:
            for factor in (1 + step, 1 - step):
                before = model[name]
                model[name] = before * factor
                found = Quality.of(model, table)
                if found.loss < best.loss:
                    best = found
                    break
                model[name] = before
    model.forget()
    return best


def halves(table: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of every other layer, and the others: no layer is in both."""
    first = set(list(dict.fromkeys(row.layer for row in table))[::2])
    return [row for row in table if row.layer in first], [row for row in table if row.layer not in first]


def cross_validate(model: Model, table: Sequence[Row], passes: int) -> None:
    """Prints how constants fitted to half of the layers do on the others; leaves the constants as they were."""
    before = {constant: model[constant] for constant in model.constants}
    one, two = halves(table)
    if not two:
        print("  one layer: nothing to leave out")
        return
    for fitted, others in ((one, two), (two, one)):
        unfitted = Quality.of(model, others)
        found = fit(model, fitted, passes)
        print(
            f"  half of the layers: {found}\n  the others: {Quality.of(model, others)}\n  before: {unfitted}",
            flush=True,
        )
        for constant, value in before.items():
            model[constant] = value
    model.forget()


def regret_by_layer(table: Sequence[Row]) -> dict[tuple[object, ...], float]:
    """The geometric mean of the regrets of each layer's rows."""
    found: dict[tuple[object, ...], list[float]] = {}
    for row in table:
        found.setdefault(row.layer, []).append(log(row.regret))
    return {layer: exp(sum(logs) / len(logs)) for layer, logs in found.items()}


def print_regret(name: str, table: Sequence[Row]) -> None:
    """Of choices among what was measured, with each layer weighed equally."""
    by_layer = list(regret_by_layer(table).values())
    mean = exp(sum(map(log, by_layer)) / len(by_layer))
    above = sum(regret > 1.05 for regret in by_layer)
    layers = f"{len(table)} problems, {len(by_layer)} layers"
    print(
        f"{name}: {layers}; regret {mean - 1:.2%} a layer, {max(by_layer) - 1:.0%} at worst, {above} layers above 5 %"
    )


def print_unmeasured(table: Sequence[Row]) -> None:
    """Problems whose first choice was never timed, the one that is said to gain most last."""
    timed = {row.problem for row in table if row.is_first_measured}
    found = [(row, row.first.rank * 1e6) for row in table if row.problem not in timed]
    print(f"first choices that nobody measured: {len(found)} of {len(table)}")
    for row, us in sorted(found, key=lambda pair: pair[0].chosen.predicted_us(pair[0].task) / pair[1]):
        chosen, first = row.chosen, row.first
        kernel = first.engine.compile(first.task, first.knobs).name
        beside = f"{chosen.engine.name} {chosen.label} {chosen.predicted_us(row.task):.3g}"
        print(f"  {row.problem}: {first.name} {us:.3g} us predicted, measured only {beside}; kernel {kernel}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--rows", default="", metavar="TEXT", help="only problems that contain it")
    parser.add_argument("--passes", type=int, default=len(_STEPS), metavar="N", help="0: only what is there")
    parser.add_argument("--halves", action="store_true", help="fit to half of the layers, ask the others")
    given = parser.parse_args(arguments)
    table = [row for row in rows() if given.rows in row.problem and row.candidates]
    print_regret("all engines", table)
    for family in sorted({one.engine.name for row in table for one in row.candidates}):
        print_regret(family, [row for row in table if any(one.engine.name == family for one in row.candidates)])
    asked = [MODELS[name] for name in given.models or MODELS]
    unchanged = [(model, constant, model[constant]) for model in asked for constant in model.constants]
    for name in given.models or MODELS:
        model = MODELS[name]
        own = [row for row in table if any(one.engine.name in model.engines for one in row.candidates)]
        if not own:
            continue
        before = {constant: model[constant] for constant in model.constants}
        print(f"{name}: {Quality.of(model, own)}", flush=True)
        if given.halves:
            cross_validate(model, own, given.passes)
        elif given.passes:
            print(f"  fitted: {fit(model, own, given.passes)}")
        for constant, value in before.items():
            now, unit = model[constant], model.unit(constant)
            print(f"  {constant} {value:g}{f' -> {now:.4g}' if now != value else ''}{unit and f' ({unit})'}")
    print_unmeasured(table)
    for model, constant, value in unchanged:
        model[constant] = value
    for model in asked:
        model.forget()


if __name__ == "__main__":
    main()
