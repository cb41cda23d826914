"""How well the cost models rank: predictions beside measured times, by kind of operation.

For each tuned problem: the *regret* is the measured time of the best prediction over that of the fastest candidate,
1.0 where the ranking was right; *top 1* and *top 3*: whether the fastest one (or one within the tie of it) was the best
prediction, or among the best three; *tau* and *rho*, Kendall's and Spearman's rank correlations, 1.0 for the same
order. A problem counts for each kind of operation that anchors one of its kernels. Only candidates that were tried are
known, and those are the ones of good predictions: what was never tried cannot be counted against the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import exp, inf, log
from typing import Any

from graphdnn.analysis.median_statistics import kendall_tau, spearman_rho
from graphdnn.files import CONTENT, guarded, malformed
from graphdnn.fusion import fuse
from graphdnn.tuning.database.database import Database
from graphdnn.tuning.database.record import Record
from graphdnn.tuning.decisions import TIE
from graphdnn.tuning.result import FORMAT

ALL = "all"


@dataclass(frozen=True, slots=True)
class Case:
    """One problem's candidates: predicted and measured seconds."""

    kinds: tuple[str, ...]
    device: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...]

    @property
    def order(self) -> list[int]:
        """Candidates by prediction; equal ones in the order in which they were offered."""
        return sorted(range(len(self.predicted)), key=lambda i: self.predicted[i])

    @property
    def regret(self) -> float:
        return self.measured[self.order[0]] / min(self.measured)

    def is_among(self, count: int) -> bool:
        """Whether one of the ``count`` best predictions is as fast as the fastest."""
        return min(self.measured[i] for i in self.order[:count]) <= (1 + TIE) * min(self.measured)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one kind of operation on one device."""

    device: str
    kind: str
    problems: int
    candidates: int
    regret: float  # geometric mean
    worst: float  # regret
    top1: float  # shares
    top3: float
    tau: float | None  # means over the problems that have one
    rho: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def calibration(cases: Iterable[Case]) -> list[Row]:
    """A row for each device and kind, and for all kinds together."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        if len(case.predicted) > 1:
            for kind in dict.fromkeys((*case.kinds, ALL)):
                groups.setdefault((case.device, kind), []).append(case)
    ordered = sorted(groups, key=lambda key: (key[0], key[1] == ALL, key[1]))
    return [_row(device, kind, groups[device, kind]) for device, kind in ordered]


def _row(device: str, kind: str, cases: Sequence[Case]) -> Row:
    count = len(cases)
    taus = [t for c in cases if (t := kendall_tau(c.predicted, c.measured)) is not None]
    rhos = [r for c in cases if (r := spearman_rho(c.predicted, c.measured)) is not None]
    return Row(
        device=device,
        kind=kind,
        problems=count,
        candidates=sum(len(c.predicted) for c in cases),
        regret=exp(sum(log(c.regret) for c in cases) / count),
        worst=max(c.regret for c in cases),
        top1=sum(c.is_among(1) for c in cases) / count,
        top3=sum(c.is_among(3) for c in cases) / count,
        tau=sum(taus) / len(taus) if taus else None,
        rho=sum(rhos) / len(rhos) if rhos else None,
    )


def cases_of(database: Database) -> list[Case]:
    """What a database knows, whatever driver and version it was measured with."""
    kinds: dict[str, tuple[str, ...]] = {}
    found = []
    for (problem, setup), group in groupby(database.records(), key=lambda r: r.key):
        records: list[Record] = sorted(group, key=lambda r: r.predicted)
        if problem not in kinds:
            graph = database.graph(problem)
            kinds[problem] = () if graph is None else tuple(op.main.tag for op in fuse(graph))
        times = tuple(r.predicted for r in records), tuple(r.median for r in records)
        found.append(Case(kinds[problem], setup.device_name, *times))
    return found


def cases_in(data: Mapping[str, Any]) -> list[Case]:
    """What ``graphdnn tune --json`` printed, or a file of the GPU benchmark, whose candidates are in the order of the
    ranking. Raises ``MalformedFile`` for anything else.
    """
    return guarded(lambda: [_tuned(data)] if data.get("format") == FORMAT else _benchmark(data))


def _tuned(data: Mapping[str, Any]) -> Case:
    timed = [t for t in data["trials"] if t["median_us"] is not None]
    kinds = tuple(dict.fromkeys(str(c["operation"]).split("+")[0] for t in timed[:1] for c in t["choices"]))
    return _case(kinds, data["device"], [(t["predicted_us"], t["median_us"]) for t in timed])


def _benchmark(data: Mapping[str, Any]) -> list[Case]:
    found = []
    for result in data["results"]:
        timed = [(place + 1, row["us"]) for place, row in enumerate(result["tried"]) if "us" in row]
        kinds = tuple(dict.fromkeys(str(kernel[0]) for kernel in result["fused"]))
        found.append(_case(kinds, data["device"], timed))
    return found


def _case(kinds: tuple[str, ...], device: object, times: Sequence[tuple[Any, Any]]) -> Case:
    pairs = [(float(predicted), float(measured)) for predicted, measured in times]
    if any(not 0 < value < inf for pair in pairs for value in pair):
        raise malformed(CONTENT, "times", str(pairs), expected="positive numbers", detail="a time is none")
    return Case(kinds, str(device), tuple(p for p, _ in pairs), tuple(m for _, m in pairs))
