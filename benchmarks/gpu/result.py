"""Result: what one case came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gpu.timing import Timed

Status = Literal["ok", "wrong", "unsupported", "failed", "skipped"]


@dataclass
class PeerResult:
    label: str
    part: bool = False  # does only part of the work: no ratio
    time: Timed | None = None
    error: str = ""  # relative l2 distances, or why there is no time


@dataclass
class Result:
    """Filled in as a case goes on, so that what was found before a failure is not lost. Times in microseconds."""

    group: str
    case: str
    status: Status = "failed"
    reason: str = ""
    note: str = ""
    plan: str = ""
    fused: list[list[str]] = field(default_factory=list)
    workspace: int = 0
    build_seconds: float = 0.0
    checks: list[dict[str, Any]] = field(default_factory=list)
    right: str = ""  # the checks in a few words
    repeatable: bool | None = None  # two runs gave the same bits
    ours: Timed | None = None
    tuned: str = ""  # the configuration that ``ours`` is of, where it is not the ranking's first
    first_choice: Timed | None = None  # the ranking's first, where another one was faster
    tried: list[dict[str, Any]] = field(default_factory=list)  # beside the ranking's first
    peers: list[PeerResult] = field(default_factory=list)
    ratio_low: float | None = None  # over the repeats
    ratio_high: float | None = None
    copy: Timed | None = None
    flops: int = 0
    moved: int = 0
    sets: int = 0
    cold: bool | None = None
    host: bool = False  # times of the host, not of the device
    seconds: float = 0.0

    @property
    def peer(self) -> PeerResult | None:
        """The fastest that does the whole work."""
        whole = [p for p in self.peers if p.time is not None and not p.part]
        return min(whole, key=lambda p: p.time.us if p.time else 0.0, default=None)

    @property
    def ratio(self) -> float | None:
        """Times as fast as the peer."""
        peer = self.peer
        return peer.time.us / self.ours.us if peer and peer.time and self.ours else None

    @property
    def times_copy(self) -> float | None:
        """Times as long as a device copy of the bytes that have to move."""
        return self.ours.us / self.copy.us if self.ours and self.copy else None

    @property
    def regret(self) -> float | None:
        """Time of the ranking's first choice over that of the fastest configuration, where others were tried."""
        if not self.ours or not self.tried:
            return None
        return (self.first_choice or self.ours).us / self.ours.us

    @property
    def tera_flops(self) -> float | None:
        return self.flops / self.ours.us / 1e6 if self.ours and self.flops else None

    def to_json(self) -> dict[str, Any]:
        derived = {
            "peer": self.peer.label if self.peer else None,
            "ratio": self.ratio,
            "times_copy": self.times_copy,
            "share_of_copy": 1 / self.times_copy if self.times_copy else None,
            "tera_flops": self.tera_flops,
            "regret": self.regret,
        }
        return asdict(self) | derived


def result_from_json(data: dict[str, Any]) -> Result:
    """As written by ``to_json``, in another process."""
    derived = ("peer", "ratio", "times_copy", "share_of_copy", "tera_flops", "regret")
    plain = {key: value for key, value in data.items() if key not in derived}
    for key in ("ours", "first_choice", "copy"):
        plain[key] = Timed(**plain[key]) if plain[key] else None
    plain["peers"] = [PeerResult(**(p | {"time": Timed(**p["time"]) if p["time"] else None})) for p in plain["peers"]]
    return Result(**plain)
