"""The tuner's side of the process that candidates run in, and which of their plans that process has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import Status
from graphdnn.errors import ExecutionFailed
from graphdnn.files import choices_to_json, graph_to_dict
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig
from graphdnn.rules import Rule
from graphdnn.tuning.result import Trial
from graphdnn.tuning.workers.protocol import Message
from graphdnn.tuning.workers.worker_process import FailedError, LostError, WorkerProcess, give_back, worker


def entries_of_config(config: EngineConfig) -> dict[str, Any]:
    limits = config.fused.limits
    return {
        "graph": graph_to_dict(config.fused.graph),
        "device": config.device.to_json(),
        "choices": choices_to_json(config),
        **({"limits": limits.to_json()} if limits else {}),
    }


PROCESS = Rule(
    id="tuning.process",
    expected="a process that candidates run in",
    reason="the process ended before the first candidate: {why}",
    fix="free memory where it is short, make the problem smaller, or use the ranking as it is",
    status=Status.EXECUTION_FAILED,
)
_START = 60.0  # seconds that a process may take to start and to make its operands


def not_begun(failed: LostError | FailedError) -> ExecutionFailed:
    """For a process that candidates should have run in."""
    return ExecutionFailed(PROCESS.reject("AUTOTUNE", "process", "none", why=failed.reason))


@dataclass(frozen=True, slots=True)
class Opening:
    """Tells a process which graph it works on."""

    graph: OperationGraph
    device: DeviceSpec
    ordinal: int | None
    seed: int
    memory: int | None  # bytes that it may grow by; None: most of what is free then

    def message(self) -> Message:
        return {
            "do": "open",
            "graph": graph_to_dict(self.graph),
            "device": self.device.to_json(),
            "ordinal": self.ordinal,
            "seed": self.seed,
            "memory": _free_memory() if self.memory is None else self.memory,
        }


class Bench:
    """One process at a time; one that is lost takes its plans with it."""

    def __init__(self, process: WorkerProcess, opening: Opening, limit: float) -> None:
        """``process`` was told its graph already. ``limit``: seconds that a candidate may take."""
        self.is_starting = True
        self._process, self._opening, self._limit = process, opening, limit
        self._is_open = False
        self._loaded: set[int] = set()  # places of the trials whose plans it has

    def await_start(self) -> None:
        """Wait for the process, which makes operands. Raises ``ExecutionFailed``: it is no candidate's fault."""
        if self.is_starting:
            self.is_starting = False
            try:
                self._process.answer(max(_START, self._limit), "starting")
            except (LostError, FailedError) as failed:
                raise not_begun(failed) from None
            self._is_open = True

    def restore(self) -> None:
        """Another process where the last one is gone."""
        if self._is_open and self._process.is_alive:
            return
        self._process.kill()
        self._process = worker(self._process.program, self._process.initializer)
        self._loaded.clear()
        self._process.ask(self._opening.message(), max(_START, self._limit))
        self._is_open = True

    def ask(self, trial: Trial, what: str, seconds: float, **more: Any) -> Message:
        """Raises ``LostError`` where there is no answer in time, ``FailedError`` for one of failure."""
        return self._process.ask({"do": what, "key": trial.place, **more}, seconds)[0]

    def has(self, trial: Trial) -> bool:
        return trial.place in self._loaded

    def build(self, trial: Trial, seconds: float) -> Message:
        reply = self.ask(trial, "build", seconds, config=entries_of_config(trial.config))
        self._loaded.add(trial.place)
        return reply

    def drop(self, trial: Trial, seconds: float) -> None:
        if self.has(trial):
            self._loaded.discard(trial.place)
            try:
                self.ask(trial, "drop", seconds)
            except (LostError, FailedError):
                self._loaded.clear()

    def drop_all(self) -> None:
        """It is gone, or its operands are spoilt."""
        self._loaded.clear()

    def outputs(self, axes: list[Any], kept: list[int]) -> tuple[list[int], bytes]:
        """The last results, cut along ``axes``: sizes in bytes, and all of them one after another."""
        reply, payload = self._process.ask({"do": "outputs", "axes": axes, "kept": kept}, self._limit)
        return reply["sizes"], payload

    def kill(self) -> None:
        self._process.kill()
        self._loaded.clear()

    def give_back(self) -> None:
        """For the next tuning."""
        give_back(self._process)


def _free_memory() -> int:
    """Bytes: most of what the system can give now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 34
    return free * 1024 * 3 // 4
