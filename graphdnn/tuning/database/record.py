"""Record: one measured configuration as the database has it. What is read from a file is checked, entry by entry."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.engines.renames import current_name, current_names
from graphdnn.enums import KnobType
from graphdnn.errors import MalformedFile, Rejection, raise_if
from graphdnn.files import malformed
from graphdnn.fusion import FusedGraph
from graphdnn.heuristics import Choice, EngineConfig
from graphdnn.rules import Rule
from graphdnn.tuning.database.environment import TuningEnvironment
from graphdnn.tuning.database.problem_key import ProblemKey

ENTRY = Rule(
    id="tuning.record",
    expected="{expected}",
    reason="the entry of the tuning database is damaged, and is not used",
    fix="run graphdnn db prune, which removes such entries, and tune again",
)
OTHER_FUSION = Rule(
    id="tuning.record.kernels",
    expected="the kernels {kernels}",
    reason="the record is of a graph that was fused differently",
    fix="tune again",
)
UNKNOWN_ENGINE = Rule(
    id="tuning.record.engine",
    expected="an engine of this version",
    reason="the recorded engine is gone",
    fix="tune again with this version",
)

_LONGEST = 200_000  # characters of a text column
_MOST_KERNELS = 10_000


@dataclass(frozen=True, slots=True)
class ChoiceEntry:
    """One kernel's engine and knobs; ``operations`` are places in the problem's own order."""

    operations: tuple[int, ...]
    engine: str
    knobs: tuple[tuple[str, int], ...]

    def to_json(self) -> list[Any]:
        return [list(self.operations), self.engine, dict(self.knobs)]


@dataclass(frozen=True, slots=True)
class Record:
    """A configuration with its times in seconds."""

    problem: str
    setup: TuningEnvironment
    choices: tuple[ChoiceEntry, ...]
    name: str
    place: int  # 0: the fastest; then in order
    predicted: float
    median: float
    low: float
    high: float
    samples: int
    workspace: int
    measured: int  # seconds since 1970

    @property
    def key(self) -> tuple[str, TuningEnvironment]:
        """Records of one tuning share it."""
        return self.problem, self.setup

    def config(self, fused: FusedGraph, key: ProblemKey, device: Any) -> EngineConfig:
        """The configuration for a graph of this problem. Raises ``GraphdnnError`` where this version has none."""
        by_kernel = {entry.operations: entry for entry in self.choices}
        where = "tuning database"
        if set(by_kernel) != set(key.kernels):
            raise_if([OTHER_FUSION.reject(where, "kernels", str(sorted(by_kernel)), kernels=sorted(key.kernels))])
        choices: list[Choice] = []
        found: list[Rejection] = []
        for op, kernel in zip(fused, key.kernels, strict=True):
            entry, task = by_kernel[kernel], Task(op, device)
            engine = ENGINE_BY_NAME.get(entry.engine)
            if engine is None:
                found.append(UNKNOWN_ENGINE.reject(where, "engine", entry.engine))
                continue
            problems = _knob_problems(entry) or engine.knob_problems([(KnobType[k], v) for k, v in entry.knobs])
            problems = problems or list(engine.why_not(task))
            if not problems:
                settings = engine.settings({KnobType[k]: v for k, v in entry.knobs})
                settings = engine.named_settings(task, settings)
                problems = engine.unavailable_knobs(task, settings)
                choices.append(Choice(task, engine, settings))
            found += problems
        raise_if(found)
        return EngineConfig(fused, device, tuple(choices))


def _knob_problems(entry: ChoiceEntry) -> list[Rejection]:
    return [
        ENTRY.reject("tuning database", "knob", name, expected="the name of a knob type")
        for name, _ in entry.knobs
        if name not in KnobType.__members__
    ]


def entries_of(config: EngineConfig, key: ProblemKey) -> tuple[ChoiceEntry, ...]:
    """A configuration in the words of a record."""
    return tuple(
        ChoiceEntry(kernel, c.engine.name, tuple(sorted((kind.name, value) for kind, value in c.knobs.items())))
        for kernel, c in sorted(zip(key.kernels, config.choices, strict=True), key=lambda pair: pair[0])
    )


COLUMNS = (
    "problem", "device", "driver", "version", "texts", "choices", "name", "place", "predicted", "median", "low",
    "high", "samples", "workspace", "measured",
)  # fmt: skip


def to_row(record: Record) -> tuple[Any, ...]:
    setup = record.setup
    return (
        record.problem, setup.device, setup.driver, setup.version, setup.texts,
        json.dumps([entry.to_json() for entry in record.choices]), record.name, record.place, record.predicted,
        record.median, record.low, record.high, record.samples, record.workspace, record.measured,
    )  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """Raises ``MalformedFile`` for values that no tuning writes."""
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("problem", "device", "driver", "version", "texts", "choices", "name"):
        _check(isinstance(values[name], str) and len(values[name]) <= _LONGEST, name, values[name], "a text")
    for name in ("place", "samples", "workspace", "measured"):
        _check(type(values[name]) is int and 0 <= values[name] < 2**63, name, values[name], "a count")
    for name in ("predicted", "median", "low", "high"):
        value = values[name]
        _check(type(value) is float and math.isfinite(value) and value >= 0, name, value, "seconds")
    low, median, high = values["low"], values["median"], values["high"]
    _check(0 < low <= median <= high, "low, median, high", (low, median, high), "three times in order")
    _device(values["device"])
    return Record(
        problem=values["problem"],
        setup=TuningEnvironment(values["device"], values["driver"], values["version"], values["texts"]),
        choices=_choices(values["choices"]),
        **{name: values[name] for name in COLUMNS[6:]} | {"name": current_names(values["name"])},
    )


def _device(text: str) -> None:
    data = _json(text, "device")
    kinds = {"name": str, "compute_capability": list, "sm_count": int}
    is_device = isinstance(data, dict) and {k: type(v) for k, v in data.items()} == kinds
    _check(is_device, "device", text, "name, compute_capability and sm_count")


def _choices(text: str) -> tuple[ChoiceEntry, ...]:
    data = _json(text, "choices")
    _check(isinstance(data, list) and 0 < len(data) <= _MOST_KERNELS, "choices", text, "an entry for each kernel")
    found = []
    for entry in data:
        _check(isinstance(entry, list) and len(entry) == 3, "choices", entry, "operations, engine and knobs")
        operations, engine, knobs = entry
        _check(
            isinstance(operations, list) and bool(operations) and all(type(i) is int and i >= 0 for i in operations),
            "operations", operations, "places",
        )  # fmt: skip
        _check(isinstance(engine, str), "engine", engine, "a name")
        _check(isinstance(knobs, Mapping) and all(type(v) is int for v in knobs.values()), "knobs", knobs, "numbers")
        found.append(ChoiceEntry(tuple(operations), current_name(engine), tuple(sorted(knobs.items()))))
    return tuple(found)


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _damaged(name, text, "JSON") from None


def _check(is_good: bool, name: str, value: object, expected: str) -> None:
    if not is_good:
        raise _damaged(name, value, expected)


def _damaged(name: str, value: object, expected: str) -> MalformedFile:
    return malformed(ENTRY, name, value if isinstance(value, str) else repr(value), expected=expected)


__all__ = ["COLUMNS", "ChoiceEntry", "Record", "entries_of", "from_row", "to_row"]
