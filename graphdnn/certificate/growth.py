"""Growth: in words, from which step on the bound of a recurrent network says nothing, and how it got there."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np

from graphdnn.certificate.deviation import Off
from graphdnn.operations.rnn_spec import RnnSpec


@dataclass(slots=True)
class Growth:
    """One direction of a layer on its way through its steps."""

    stretch: float  # how much longer a recurrent matrix makes a vector, at most
    _norms: list[float] = field(default_factory=list)  # of what is off, all units together, largest of all sequences
    _reached: int = 0  # the step whose bound is as large as what it bounds; 0: none

    def step(self, state: Off) -> None:
        """After each one."""
        self._norms.append(float(np.max(state.off.norm, initial=0.0)))
        largest = float(np.max(np.abs(state.value), initial=1.0))
        if not self._reached and np.max(state.off.each, initial=0.0) >= largest:
            self._reached = len(self._norms)

    def say(self, remarks: list[str], rnn: RnnSpec, layer: int, direction: int) -> None:
        """Where the bound is as large as what it bounds."""
        if self._reached:
            way = ("", ", backwards")[direction]
            remarks.append(f"{rnn.cell.name}, layer {layer} of {rnn.layers}{way}: {self._words()}")

    def _words(self) -> str:
        if self._reached == 1:
            return "what enters it may be off as much as its values are large: see the layer it reads"
        finite = [norm for norm in self._norms[: self._reached] if 0 < norm < inf]
        factor = (finite[-1] / finite[0]) ** (1 / max(len(finite) - 1, 1)) if finite else inf
        kind = "not contractive" if self.stretch > 1 else "contractive by itself"
        when = f"step {self._reached} of {len(self._norms)}"
        return (
            f"what a step is off may grow by a factor of {factor:.3g} each step (a recurrent matrix stretches "
            f"vectors by up to {self.stretch:.3g}: {kind}); from {when} on the bound "
            "is as large as the values, whatever is observed"
        )
