"""Which kernel a direct convolution gets: the one with the least predicted time."""

from __future__ import annotations

import json
from pathlib import Path

import fit_direct
import pytest
from cuda_comparison import ARCHITECTURES, compiler, compiles_cleanly, emulated, fused
from exact_sums import operations
from test_cuda_direct import check

from graphdnn.device.profiles import device_spec
from graphdnn.engines import Engine, Task
from graphdnn.engines.cuda.direct.direct import ENGINE
from graphdnn.engines.cuda.direct.direct_wgrad import ENGINE as WGRAD
from graphdnn.engines.cuda.direct.measured_tiles import FILE, MEASURED, MeasuredTiles
from graphdnn.engines.cuda.direct.sliding_mma.shared_wavefronts import wavefronts
from graphdnn.enums import KnobType

H200 = device_spec("h200")
G4, DW9 = "f16[128,4,5,5]", "f16[144,1,9,9]"
CHOSEN = [
    (f"conv x=f16[64,128,56,56]nhwc w={G4} pad=2", ENGINE, 2),
    (f"dgrad dy=f16[64,128,56,56]nhwc w={G4} dx=[64,128,56,56] pad=2", ENGINE, 2),
    (f"wgrad x=f16[64,128,56,56]nhwc dy=f16[64,128,56,56]nhwc dw={G4[3:]} pad=2", WGRAD, 2),
    (f"conv x=f16[64,144,56,56]nhwc w={DW9} pad=4", ENGINE, 2),
    (f"dgrad dy=f16[64,144,56,56]nhwc w={DW9} dx=[64,144,56,56] pad=4", ENGINE, 2),
    ("conv x=f16[64,128,56,56]nhwc w=f16[128,2,3,3] pad=1", ENGINE, 1),
    ("conv x=f16[64,128,56,56]nhwc w=f16[128,8,3,3] pad=1", ENGINE, 2),
]


@pytest.mark.parametrize(("text", "engine", "kernel"), CHOSEN, ids=[text for text, *_ in CHOSEN])
def test_the_model_decides(text: str, engine: Engine, kernel: int) -> None:
    task = Task(fused(operations(text)), H200)
    settings = [engine.settings({KnobType.KERNEL_CFG: value}) for value in (0, 1, kernel)]
    chosen, multiply_adds, asked = (engine.cost(task, knobs).seconds for knobs in settings)
    assert chosen == asked <= multiply_adds
    names = [engine.compile(task, knobs).name for knobs in settings]
    assert names[0] == names[2]
    assert (names[0] != names[1]) is (kernel != 1)


@pytest.mark.parametrize("size", [7, 14, 56])
@pytest.mark.parametrize("shape", ["1,5,3", "1,4,4", "4,5,5", "2,3,3", "1,9,9"])
def test_the_choice_is_the_least_prediction(shape: str, size: int) -> None:
    task = Task(fused(operations(f"conv x=f16[8,64,{size},{size}]nhwc w=f16[64,{shape}] pad=1")), H200)
    costs = [ENGINE.cost(task, ENGINE.settings({KnobType.KERNEL_CFG: value})).seconds for value in range(5)]
    assert costs[0] == min(costs)


def test_bytes_are_left_to_the_ring() -> None:
    """Models of kernels in registers do not count conversions, so no such kernel is chosen for other types."""
    text = "conv x=i8[32,192,32,32]nhwc w=i8[192,1,5,5]nhwc pad=2 compute=i32 out=i8"
    task = Task(fused(operations(text)), H200)
    assert "__direct_" in ENGINE.compile(task, ENGINE.defaults()).name


# Odd and even filters, both strides, dilations, images narrower than a filter, groups of 2, 4 and 8 channels.
NEW = [
    ("conv x=f16[2,16,9,11]nhwc w=f16[16,4,5,5] pad=2 + bias + relu", ENGINE),
    ("conv x=f16[1,32,10,5]nhwc w=f16[32,4,5,5] pad=2 stride=2", ENGINE),
    ("conv x=f16[1,16,11,13]nhwc w=f16[16,1,9,9] pad=4", ENGINE),
    ("conv x=bf16[1,16,6,4]nhwc w=bf16[16,1,9,9] pad=4", ENGINE),
    ("conv x=f16[2,24,9,11]nhwc w=f16[24,1,4,4] pad=1", ENGINE),
    ("conv x=f16[2,24,9,3]nhwc w=f16[24,1,6,6] pad=3", ENGINE),
    ("conv x=f16[1,16,9,11]nhwc w=f16[16,1,3,5] pad=1,2 mode=conv", ENGINE),
    ("conv x=f16[1,16,9,11]nhwc w=f16[16,1,5,3] pad=4,2 dil=2", ENGINE),
    ("conv x=f16[1,16,9,11]nhwc w=f16[16,2,3,3] pad=1 + bias", ENGINE),
    ("conv x=f16[1,16,9,11]nhwc w=f16[16,8,3,3] pad=1 + residual", ENGINE),
    ("dgrad dy=f16[1,16,9,11]nhwc w=f16[16,4,5,5] dx=[1,16,9,11] pad=2", ENGINE),
    ("dgrad dy=f16[1,16,5,6]nhwc w=f16[16,4,5,5] dx=[1,16,9,11] pad=2 stride=2", ENGINE),
    ("dgrad dy=f16[1,16,11,13]nhwc w=f16[16,1,9,9] dx=[1,16,11,13] pad=4", ENGINE),
    ("dgrad dy=f16[1,16,8,10]nhwc w=f16[16,1,4,4] dx=[1,16,9,11] pad=1", ENGINE),
    ("wgrad x=f16[2,16,9,11]nhwc dy=f16[2,16,9,11]nhwc dw=[16,4,5,5] pad=2", WGRAD),
    ("wgrad x=f16[1,16,9,11]nhwc dy=f16[1,16,5,6]nhwc dw=[16,4,5,5] pad=2 stride=2", WGRAD),
    ("wgrad x=f16[1,16,11,13]nhwc dy=f16[1,16,11,13]nhwc dw=[16,1,9,9] pad=4", WGRAD),
    ("wgrad x=f16[2,16,9,11]nhwc dy=f16[2,16,8,10]nhwc dw=[16,1,4,4] pad=1", WGRAD),
]


@emulated
@pytest.mark.parametrize("kernel", [0, 2])
@pytest.mark.parametrize(("text", "engine"), NEW, ids=[text for text, _ in NEW])
def test_new_classes_agree_with_numpy(text: str, engine: Engine, kernel: int) -> None:
    """As chosen, and on tensor cores where these serve."""
    check(text, engine, KERNEL_CFG=kernel)


COMPILED = [text_engine[:2] for text_engine in CHOSEN] + [
    ("conv x=f16[64,144,56,56]nhwc w=f16[144,1,4,4] pad=1", ENGINE),
    ("conv x=f16[32,192,28,28]nhwc w=f16[192,1,6,6] pad=2", ENGINE),
    ("conv x=f16[64,192,56,56]nhwc w=f16[192,1,7,7] pad=3 stride=2", ENGINE),
    ("wgrad x=f16[64,144,56,56]nhwc dy=f16[64,144,55,55]nhwc dw=[144,1,4,4] pad=1", WGRAD),
    ("wgrad x=f16[64,128,56,56]nhwc dy=f16[64,128,28,28]nhwc dw=[128,4,3,3] pad=1 stride=2", WGRAD),
]


@compiler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("text", "engine"), COMPILED, ids=[text for text, _ in COMPILED])
def test_new_classes_compile_without_spills(text: str, engine: Engine, arch: str) -> None:
    compiles_cleanly(operations(text), engine, arch)


def _drops_a_row(tables: dict[str, dict[str, object]]) -> None:
    tables["ring_tiles"]["rows"] = tables["ring_tiles"]["rows"][1:]  # type: ignore[index]


def test_a_table_that_lacks_a_row_is_refused(tmp_path: Path) -> None:
    tables = json.loads(FILE.read_text(encoding="utf-8"))
    broken = tmp_path / "measured.json"
    broken.write_text(json.dumps(tables), encoding="utf-8")
    assert MeasuredTiles.read(broken) == MEASURED
    _drops_a_row(tables)
    broken.write_text(json.dumps(tables), encoding="utf-8")
    with pytest.raises(ValueError, match="ring_tiles has 9 rows and says 10 pairs"):
        MeasuredTiles.read(broken)


def test_every_table_says_device_date_and_pairs() -> None:
    for table in json.loads(FILE.read_text(encoding="utf-8")).values():
        assert all(table[name] for name in ("device", "date", "pairs", "what", "rows"))


@pytest.mark.parametrize("table", ["tensor_core_times", "tensor_core_wgrad_times"])
def test_constants_fit_their_pairs(table: str) -> None:
    """No constant fits better by a tenth more or less, and a layer that was not fitted to is predicted."""
    of_layers, constants = fit_direct.layers(table), fit_direct.written(table)
    least = sum(fit_direct.away(pairs, constants) for pairs in of_layers.values())
    for name, value in constants.items():
        for factor in (1.1, 1 / 1.1):
            changed = constants | {name: value * factor}
            assert sum(fit_direct.away(pairs, changed) for pairs in of_layers.values()) > least, name
    distances = [distance for _, distance in fit_direct.held_out(of_layers, constants).values()]
    assert (sum(one * one for one in distances) / len(distances)) ** 0.5 < 0.16


@pytest.mark.parametrize(
    ("distance", "width", "expected"),
    [(16, 16, 4), (32, 16, 8), (48, 16, 4), (128, 16, 32), (8, 8, 2), (16, 8, 4), (4, 4, 1), (128, 4, 32), (0, 4, 1)],
)
def test_wavefronts_of_a_load(distance: int, width: int, expected: int) -> None:
    """Lanes ``distance`` bytes apart: 128 bytes a wavefront, unless banks conflict."""
    assert wavefronts(tuple(lane * distance for lane in range(32)), width) == expected
