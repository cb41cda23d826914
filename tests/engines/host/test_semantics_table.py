"""Every operation of the table runs on every engine that serves it, writes all of its outputs and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import PROBLEMS
from legal_problems import LEGAL
from problems import FLOATS, GENERAL, HOST_ENGINES, LAYOUTS, POISONS, execute, values_of

from graphdnn import OperationGraph, TensorSpec, fuse
from graphdnn.device.profiles import this_cpu
from graphdnn.dtypes import ELEMENTS, Array, data_type_of
from graphdnn.engines import Engine, Task
from graphdnn.engines.host.semantics import SEMANTICS
from graphdnn.enums import BnFinalizeStatsMode, DataType, NormMode, NormPhase, PaddingMode, ResampleMode, ReshapeMode
from graphdnn.operations import OPERATIONS, Operation, ResampleSpec

RUNNING = ("input_running_mean", "input_running_var", "output_running_mean", "output_running_var", "momentum")
UPDATED = ("previous_running_mean", "previous_running_var", "updated_running_mean", "updated_running_var")


def average(**fields: Any) -> ResampleSpec:
    return ResampleSpec(
        mode=ResampleMode.AVGPOOL, padding_mode=PaddingMode.ZERO_PAD, spatial_dims=2, window_dims=(2, 2),
        strides=(2, 2), pre_paddings=(0, 0), post_paddings=(0, 0), **fields,
    )  # fmt: skip


# A name for each problem -> the tag of its operation, and what differs from the minimal one; ``...`` leaves out.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{tag: (tag, {}) for tag in OPERATIONS},
    "reshape logical": ("reshape", {"mode": ReshapeMode.LOGICAL}),
    "resample_fwd without index": ("resample_fwd", {"index": ...}),
    "resample_fwd average": ("resample_fwd", {"index": ..., "spec": average()}),
    "resample_bwd average": ("resample_bwd", {"index": ..., "spec": average()}),
    "norm_fwd without statistics": ("norm_fwd", dict.fromkeys(("mean", "inv_variance", *RUNNING), ...)),
    "norm_fwd without running": ("norm_fwd", dict.fromkeys(RUNNING, ...)),
    "norm_fwd without bias": ("norm_fwd", {"bias": ...}),
    "norm_fwd inference": ("norm_fwd", {"phase": NormPhase.INFERENCE, **dict.fromkeys(RUNNING, ...)}),
    "norm_fwd rms": ("norm_fwd", {
        "mode": NormMode.RMS_NORM, "mean": ..., "inv_variance": ..., **dict.fromkeys(RUNNING, ...),
    }),
    "norm_bwd without dbias": ("norm_bwd", {"dbias": ...}),
    "bn_finalize without running": ("bn_finalize", dict.fromkeys(UPDATED, ...)),
    "bn_finalize inference": ("bn_finalize", {"mode": BnFinalizeStatsMode.INFERENCE}),
}  # fmt: skip


def problem(name: str, *, kind: str = "f32", layout: str = "packed") -> Operation:
    """The operation of a variant with its floating tensors of another type, and all of them in another layout."""
    tag, changes = VARIANTS[name]
    fields = {port: value for port, value in {**LEGAL[tag](), **changes}.items() if value is not ...}
    return OPERATIONS[tag](**{port: _described(value, kind, layout) for port, value in fields.items()})


def _described(value: Any, kind: str, layout: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_described(item, kind, layout) for item in value)
    if not isinstance(value, TensorSpec):
        return value
    data_type = data_type_of(kind) if value.data_type is DataType.FLOAT else value.data_type
    strides = value.strides if value.elements == 1 else LAYOUTS[layout](value.dims)
    return TensorSpec(**{**value.model_dump(), "data_type": data_type, "strides": strides})


def values_for(operation: Operation, seed: int = 0) -> dict[int, Array]:
    """Random inputs for which the operation is defined: a count of elements, statistics that are not negative."""
    rng = np.random.default_rng(seed)
    values: dict[int, Array] = {}
    for port, spec in operation.inputs().items():
        values[spec.uid] = values_of(spec, rng)
        if port == "accumulation_count":
            values[spec.uid] = np.full(spec.extents, 40)
        elif port in ("index", "offset"):
            values[spec.uid] = rng.integers(0, 4, spec.extents)
        elif port in ("y_sq_sum", "epsilon", "previous_running_var"):
            values[spec.uid] = np.abs(values[spec.uid].astype(np.float64)) + (100 if port == "y_sq_sum" else 0.5)
    return values


def serves(engine: Engine, operation: Operation) -> bool:
    (fused,) = fuse(OperationGraph.of([operation]))
    return not engine.why_not(Task(fused, this_cpu()))


SERVED = [(name, engine) for name in VARIANTS for engine in HOST_ENGINES if serves(engine, problem(name))]
every_engine = pytest.mark.parametrize(
    ("name", "engine"), SERVED, ids=[f"{name}-{engine.name}".replace(" ", "_") for name, engine in SERVED]
)


@pytest.mark.parametrize("tag", OPERATIONS)
def test_every_operation_has_semantics_and_the_general_engine(tag: str) -> None:
    assert OPERATIONS[tag] in SEMANTICS
    assert (tag, GENERAL) in SERVED


@every_engine
def test_every_output_element_is_written(name: str, engine: Engine) -> None:
    """Two runs over different garbage in outputs, gaps and workspace give the same bits."""
    operation = problem(name, layout="packed" if name == "reshape" else "gaps")
    inputs = values_for(operation)
    first, second = (execute(operation, inputs, engine, poison=poison) for poison in POISONS)
    assert set(first) == {t.uid for t in operation.outputs().values()}
    for uid in first:
        assert np.isfinite(first[uid].astype(np.float64)).all()
        assert first[uid].tobytes() == second[uid].tobytes(), f"uid {uid}"
    PROBLEMS[name] += 1


@pytest.mark.parametrize("layout", LAYOUTS)
@every_engine
def test_layouts_change_no_result(name: str, engine: Engine, layout: str) -> None:
    if name == "reshape":
        name = "reshape logical"  # a view depends on the layout by definition
    inputs = values_for(problem(name))
    packed, other = (execute(problem(name, layout=how), inputs, engine) for how in ("packed", layout))
    for uid, expected in packed.items():
        np.testing.assert_allclose(other[uid], expected, rtol=1e-5, atol=1e-5)
    PROBLEMS[name] += 1


@pytest.mark.parametrize("kind", FLOATS)
@every_engine
def test_narrow_types_round_the_same_result(name: str, engine: Engine, kind: str) -> None:
    """Inputs that every type holds exactly: outputs differ by rounding alone."""
    wide, narrow = problem(name, kind="f64"), problem(name, kind=kind)
    inputs = {uid: np.rint(values.astype(np.float64)) for uid, values in values_for(wide).items()}
    expected, found = execute(wide, inputs, engine), execute(narrow, inputs, engine)
    element = ELEMENTS[data_type_of(kind)]
    roundoff = 2.0 ** -{"f64": 22, "f32": 20, "f16": 9, "bf16": 7, "e4m3": 3, "e5m2": 2}[kind]
    for uid, values in expected.items():
        limited = np.clip(values.astype(np.float64), element.smallest, element.largest)
        near = roundoff * max(1.0, float(np.abs(limited).max()))
        np.testing.assert_allclose(found[uid].astype(np.float64), limited, rtol=roundoff, atol=near)
    PROBLEMS[name] += 1


@pytest.mark.parametrize("kind", FLOATS)
@every_engine
def test_any_bits_run_quietly(name: str, engine: Engine, kind: str) -> None:
    """NaN of every kind, infinities, the largest numbers: no warning, and no element left unwritten."""
    operation = problem(name, kind=kind)
    rng = np.random.default_rng(1)
    inputs = values_for(operation)
    for spec in operation.inputs().values():
        element = ELEMENTS[spec.data_type]
        if element.kind == "float":
            count = int(np.prod(spec.extents))
            inputs[spec.uid] = np.frombuffer(rng.bytes(count * element.bytes), element.numpy).reshape(spec.extents)
    first, second = (execute(operation, inputs, engine, poison=poison) for poison in POISONS)
    for uid in first:
        with np.errstate(invalid="ignore"):  # signalling NaN that were only moved
            np.testing.assert_array_equal(first[uid].astype(np.float64), second[uid].astype(np.float64))
    PROBLEMS[name] += 1
