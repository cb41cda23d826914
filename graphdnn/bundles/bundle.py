"""Bundle: one run as a file. The plan, the seed of its data, and what came out, so that it can be run again anywhere.

Data are never stored: they follow from the seed, and a hash of each operand says whether they still do. Results are
kept as hashes of their values, gaps in memory left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphdnn.analysis.oracle import Comparison
from graphdnn.device.profiles import DeviceSpec, device_from_json
from graphdnn.engines.host.memory import load
from graphdnn.engines.renames import current_names
from graphdnn.errors import GraphdnnError
from graphdnn.files import (
    VERSION,
    choices_to_json,
    config_from_dict,
    digest_of,
    graph_from_dict,
    graph_to_dict,
    guarded,
    parse_document,
)
from graphdnn.fusion import FusionLimits
from graphdnn.fusion.limits import limits_from_json
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import EngineConfig

BUNDLE_FORMAT = "graphdnn.bundle"
OK, MISMATCH, ERROR, NOT_RUN = "ok", "mismatch", "error", "not run"
_VERDICTS = (OK, MISMATCH, ERROR, NOT_RUN)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended: with right results, with wrong results (``uids``), or with an error (``rules``)."""

    verdict: str
    rules: tuple[str, ...] = ()
    uids: tuple[int, ...] = ()
    detail: str = ""

    @classmethod
    def of_error(cls, error: GraphdnnError) -> RunOutcome:
        """The outcome of a run that raised an error.

        Args:
            error: The error.

        Returns:
            The outcome.
        """
        rules = tuple(dict.fromkeys(r.rule for r in error.rejections))
        return cls(ERROR, rules, (), str(error.rejections[0]).partition("\n")[0][:300])

    @classmethod
    def of_comparisons(cls, failed: Sequence[Comparison]) -> RunOutcome:
        """The outcome of a run whose results were compared.

        Args:
            failed: The comparisons that are not ok.

        Returns:
            The outcome.
        """
        uids = tuple(c.tensor.uid for c in failed)
        return cls(MISMATCH, (), uids, str(failed[0])) if failed else cls(OK)

    def is_like(self, other: RunOutcome) -> bool:
        """Whether two runs ended in the same way. Words and values are not compared.

        Args:
            other: The other outcome.

        Returns:
            True or False.
        """
        return (self.verdict, self.rules, self.uids) == (other.verdict, other.rules, other.uids)

    def __str__(self) -> str:
        about = [", ".join(self.rules)] if self.rules else []
        about += [f"uid {', '.join(map(str, self.uids))}"] if self.uids else []
        return self.verdict + (f" ({'; '.join(about)})" if about else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data with the fields of the outcome."""
        return {"verdict": self.verdict, "rules": list(self.rules), "uids": list(self.uids), "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Bundle:
    """One recorded run. ``plan`` holds graph, device, choices and limits as a plan file does."""

    library: str
    plan: Mapping[str, Any]
    problem: str  # the text that makes the graph, where there is one
    seed: int
    inputs: Mapping[int, str]  # uid -> hash; empty where nothing ran
    outputs: Mapping[int, str]
    ending: RunOutcome
    environment: Mapping[str, str]

    @property
    def device(self) -> DeviceSpec:
        """The device of the run."""
        return guarded(lambda: device_from_json(self.plan["device"]))

    def graph(self) -> OperationGraph:
        """The graph of the run.

        Raises:
            MalformedFile: This version cannot read it.
        """
        return guarded(lambda: graph_from_dict(self.plan["graph"]))

    def limits(self) -> FusionLimits:
        """The limits of the fusion.

        Raises:
            MalformedFile: This version cannot read them.
        """
        return guarded(lambda: limits_from_json(self.plan.get("limits", {})))

    def config(self, device: DeviceSpec | None = None) -> EngineConfig:
        """The recorded configuration.

        Args:
            device: Another device. None takes the recorded one.

        Returns:
            The configuration.

        Raises:
            MalformedFile: This version fuses the graph differently, or lacks an engine.
        """
        return guarded(lambda: config_from_dict(self.plan, device))

    def to_json(self) -> str:
        """The text of the bundle."""
        content = {
            "format": BUNDLE_FORMAT,
            "version": VERSION,
            "library": self.library,
            "problem": self.problem,
            "seed": self.seed,
            "inputs": {str(uid): value for uid, value in self.inputs.items()},
            "outputs": {str(uid): value for uid, value in self.outputs.items()},
            "ending": self.ending.to_json(),
            "environment": dict(self.environment),
            **self.plan,
        }
        return json.dumps({**content, "sha256": digest_of(content)}, indent=1)


def plan_entries(config: EngineConfig) -> dict[str, Any]:
    """What rebuilds a configuration, as it stands in plan files."""
    limits = config.fused.limits
    return {
        "graph": graph_to_dict(config.fused.graph),
        "device": config.device.to_json(),
        "choices": choices_to_json(config),
        **({"limits": limits.to_json()} if limits else {}),
    }


def bundle_from_json(text: str | bytes) -> Bundle:
    """Read a bundle.

    Args:
        text: The text of the file.

    Returns:
        The bundle.

    Raises:
        MalformedFile: The text is not a bundle.
    """
    return guarded(lambda: _bundle(parse_document(text, BUNDLE_FORMAT, sealed=True)))


def _bundle(data: Mapping[str, Any]) -> Bundle:
    plan = {name: data[name] for name in ("graph", "device", "choices", "limits") if name in data}
    seed = data["seed"]
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError("the seed is a whole number of at least 0")
    bundle = Bundle(
        library=_text(data["library"]),
        plan=plan,
        problem=_text(data["problem"]),
        seed=seed,
        inputs=_hashes(data["inputs"]),
        outputs=_hashes(data["outputs"]),
        ending=_ending(data["ending"]),
        environment={_text(name): _text(value) for name, value in dict(data["environment"]).items()},
    )
    graph_from_dict(plan["graph"])
    device_from_json(plan["device"])
    return bundle  # whether the choices still stand is asked when they are taken


def _ending(data: Mapping[str, Any]) -> RunOutcome:
    if data["verdict"] not in _VERDICTS:
        raise ValueError(f"a verdict is one of {', '.join(_VERDICTS)}")
    uids = tuple(data["uids"])
    if not all(isinstance(uid, int) and not isinstance(uid, bool) for uid in uids):
        raise ValueError("uids are whole numbers")
    rules = tuple(current_names(_text(rule)) for rule in data["rules"])
    return RunOutcome(data["verdict"], rules, uids, current_names(_text(data["detail"])))


def _hashes(data: Mapping[str, Any]) -> dict[int, str]:
    return {int(uid): _text(value) for uid, value in dict(data).items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def hashes_of(graph: OperationGraph, bindings: Mapping[int, Any], *, outputs: bool) -> dict[int, str]:
    """The hash of each input's values, or of each output's, where ``bindings`` hold it."""
    import hashlib

    found = {}
    for spec in graph.outputs if outputs else graph.inputs:
        if spec.uid in bindings:
            value = bindings[spec.uid]
            content = repr(value).encode() if spec.is_by_value else load(value, spec).tobytes()
            found[spec.uid] = hashlib.sha256(content).hexdigest()
    return found
