"""A bundle run again: on the device it names where that is here, on the host otherwise; and what is as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphdnn.bundles.bundle import ERROR, MISMATCH, NOT_RUN, OK, Bundle
from graphdnn.bundles.verified_run import VerifiedRun, attempt, environment
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.errors import GraphdnnError, MalformedFile, error_for
from graphdnn.heuristics import EngineConfig
from graphdnn.pipeline import rank

SAME, OTHER, UNKNOWN = "same bits", "other bits", "not recorded"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run of a bundle's plan, and how it differs from the recorded one."""

    bundle: Bundle
    made: VerifiedRun
    notes: tuple[str, ...]  # what is not as it was recorded: the device, the plan, the data
    is_same_plan: bool

    @property
    def bits(self) -> Mapping[int, str]:
        """Whether each output has the recorded bits, by uid."""
        now, then = self.made.outputs, self.bundle.outputs
        return {uid: (SAME if then[uid] == value else OTHER) if uid in then else UNKNOWN for uid, value in now.items()}

    @property
    def has_moved(self) -> bool:
        """Whether the same plan computed other bits from the same data."""
        return self.is_same_plan and self.made.inputs == self.bundle.inputs and OTHER in self.bits.values()

    @property
    def verdict(self) -> str:
        """The result of the replay in words."""
        then, now = self.bundle.ending, self.made.ending
        if then.verdict in (MISMATCH, ERROR):
            if now.is_like(then):
                return "the failure is repeated"
            if now.verdict != OK:
                return "it fails in another way"
            return "the recorded failure is gone" if self.is_same_plan else "right here, by another plan"
        if now.verdict != OK:
            return "it fails now" if then.verdict == OK else "it fails"
        if self.has_moved:
            return "the results are right, their bits are others"
        return "ok" if then.verdict == NOT_RUN else "ok, as recorded"


def replay(bundle: Bundle, device: DeviceSpec | None = None) -> Replayed:
    """Run a recorded plan again.

    Args:
        bundle: The bundle.
        device: Where the plan runs. None takes the recorded device, or the host if that device is not present.

    Returns:
        The run, compared with the recorded one.

    Raises:
        MalformedFile: This version cannot read the graph.
        NotSupported: No engine serves the graph there.
    """
    config, notes, is_same = _config(bundle, device)
    made = attempt(config, bundle.seed)
    if bundle.inputs and made.operands and made.inputs != bundle.inputs:
        notes.append("the data are others than recorded: NumPy draws otherwise from this seed")
    replayed = Replayed(bundle, made, tuple(notes), is_same)
    return replace(replayed, notes=(*notes, *_changes(bundle, config))) if replayed.has_moved else replayed


def _changes(bundle: Bundle, config: EngineConfig) -> list[str]:
    """Facts that are others than recorded, and may be why the bits are."""
    now = environment(config)
    pairs = ((name, bundle.environment.get(name, "not recorded"), value) for name, value in now.items())
    return [f"recorded with {name} {then}, run with {value}" for name, then, value in pairs if then != value]


def _config(bundle: Bundle, device: DeviceSpec | None) -> tuple[EngineConfig, list[str], bool]:
    recorded, notes = bundle.device, []
    target = device or recorded
    if device is None and recorded.kind == "cuda":
        target = _present() or device_spec("cpu")
        if target.kind == "cpu":
            notes.append(f"recorded on {recorded.name}; no GPU is here, so NumPy runs the graph")
    if target.kind == recorded.kind:
        try:
            config = bundle.config(target)
            refused = [r for choice in config.choices for r in choice.engine.why_not(choice.task)]
            if not refused:
                return config, notes, True
            raise error_for(refused)
        except (MalformedFile, GraphdnnError) as error:
            first = error.rejections[0]
            notes.append(f"not the recorded plan: {first.where}: {first.reason} [{first.rule}]")
    elif device is not None:
        notes.append(f"recorded on {recorded.name}, run on {target.name} as asked")
    return rank(bundle.graph(), target, limits=bundle.limits()).best, notes, False


def _present() -> DeviceSpec | None:
    from graphdnn.cuda.driver_api import available

    return None if available() else device_spec("cuda")
