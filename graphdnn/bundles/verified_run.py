"""One run of a plan on data from a seed, compared with the oracle: what a bundle records and what replays it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.analysis.oracle import Comparison, compare
from graphdnn.analysis.random_operands import blended, random_operands
from graphdnn.bundles.bundle import NOT_RUN, Bundle, RunOutcome, hashes_of, plan_entries
from graphdnn.errors import GraphdnnError
from graphdnn.heuristics import EngineConfig
from graphdnn.plan import ExecutionPlan
from graphdnn.problem.printer import print_problem


@dataclass(frozen=True, slots=True)
class VerifiedRun:
    """The result of one verified run: the error that was raised, or the outputs on the host and their comparisons."""

    config: EngineConfig
    seed: int
    error: GraphdnnError | None
    operands: Mapping[int, Any]  # on the host; the values that inputs had
    results: Mapping[int, Any]
    comparisons: tuple[Comparison, ...]

    @property
    def ending(self) -> RunOutcome:
        """How the run ended."""
        if self.error is not None:
            return RunOutcome.of_error(self.error)
        return RunOutcome.of_comparisons([c for c in self.comparisons if not c.ok])

    @property
    def inputs(self) -> dict[int, str]:
        """A hash of each input by uid."""
        return hashes_of(self.config.fused.graph, self.operands, outputs=False)

    @property
    def outputs(self) -> dict[int, str]:
        """A hash of each output by uid."""
        return hashes_of(self.config.fused.graph, self.results, outputs=True) if self.error is None else {}


def attempt(config: EngineConfig, seed: int) -> VerifiedRun:
    """Build a plan, execute it once on random data and compare its results with the oracle.

    Args:
        config: The configuration.
        seed: The seed of the data.

    Returns:
        The run. An error of the library is part of it and is not raised.
    """
    graph = config.fused.graph
    operands: dict[int, Any] = {}
    try:
        plan = ExecutionPlan(config)
        plan.load()
        operands = random_operands(graph, seed)
        before = blended(graph, operands)
        bindings = plan.to_device(operands)
        plan.execute(bindings, plan.new_workspace())
        results = plan.to_host(bindings)
        found = compare(graph, results, before, config.error_growth)
    except GraphdnnError as error:
        return VerifiedRun(config, seed, error, operands, {}, ())
    return VerifiedRun(config, seed, None, operands, results, tuple(found))


def bundle_of(made: VerifiedRun, library: str) -> Bundle:
    """The bundle of a run.

    Args:
        made: The run.
        library: The version of the library.

    Returns:
        The bundle.
    """
    return Bundle(
        library=library,
        plan=plan_entries(made.config),
        problem=print_problem(made.config.fused.graph) or "",
        seed=made.seed,
        inputs=made.inputs,
        outputs=made.outputs,
        ending=made.ending,
        environment=environment(made.config),
    )


def plan_bundle(config: EngineConfig, library: str) -> Bundle:
    """The bundle of a configuration that was not run.

    Args:
        config: The configuration.
        library: The version of the library.

    Returns:
        The bundle.
    """
    text = print_problem(config.fused.graph) or ""
    return Bundle(library, plan_entries(config), text, 0, {}, {}, RunOutcome(NOT_RUN), environment(config))


def environment(config: EngineConfig) -> dict[str, str]:
    """Facts that may explain why a run elsewhere ends otherwise."""
    facts = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": config.device.name,
    }
    return facts | (_cuda_facts() if config.device.kind == "cuda" else _blas_facts())


def _blas_facts() -> dict[str, str]:
    """BLAS divides a sum among its threads, so that another number of threads may give other bits."""
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    names = sorted({f"{library['internal_api']} {library['version'] or ''}".strip() for library in libraries})
    counts = sorted({str(library["num_threads"]) for library in libraries})
    return {"blas": ", ".join(names) or "unknown", "BLAS threads": ", ".join(counts) or "unknown"}


def _cuda_facts() -> dict[str, str]:
    from graphdnn.cuda import driver_api, nvrtc

    facts = {}
    try:
        facts["nvrtc"] = ".".join(map(str, nvrtc.loaded_version()))
    except GraphdnnError:
        facts["nvrtc"] = "none"
    facts["driver"] = "none" if driver_api.available() else "present"
    return facts
