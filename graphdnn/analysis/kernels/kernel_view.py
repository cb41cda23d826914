"""KernelView: one kernel of a plan with everything that is known of it.

A view is made when it is asked for and works out each answer when that is asked for, so a plan that nobody looks at
costs nothing. What the compiler knows comes from the kernel cache, which needs NVRTC and no GPU.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from graphdnn.analysis.kernels.occupancy import Occupancy, occupancy
from graphdnn.cuda.nvrtc import KernelText, Resources, arch_of, options_of
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines import Kernel
from graphdnn.engines.engine import CompiledOperation
from graphdnn.engines.operation_cost import bytes_moved, floor_seconds, flops
from graphdnn.engines.rewrite_step import RewriteStep
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.fusion import FusedOp
from graphdnn.heuristics import Choice
from graphdnn.operations import Operation
from graphdnn.plan import ExecutionPlan

if TYPE_CHECKING:
    from graphdnn.cuda.kernel_cache import Cached
    from graphdnn.engines.cuda.codegen.launch import Launch
    from graphdnn.plan.source_lines import SourceLine


@dataclass(frozen=True, slots=True)
class LaunchView:
    """One launch: what the text asks for, and what the compiler made of it. Of a library's work only the name."""

    name: str  # of the text, or what the library does
    device: DeviceSpec
    launch: Launch | None  # None: a library's work

    def __repr__(self) -> str:
        return f"<LaunchView {self.name}>"

    @property
    def is_library(self) -> bool:
        return self.launch is None

    @property
    def text(self) -> KernelText | None:
        return None if self.launch is None else self.launch.text

    @property
    def entry(self) -> str:
        return "" if self.launch is None else self.launch.entry

    @property
    def grid(self) -> tuple[int, int, int]:
        return (0, 0, 0) if self.launch is None else self.launch.grid

    @property
    def block(self) -> int:
        """Threads."""
        return 0 if self.launch is None else self.launch.block

    @property
    def dynamic_shared(self) -> int:
        """Bytes of shared memory that the launch asks for."""
        return 0 if self.launch is None else self.launch.shared

    @property
    def architecture(self) -> str:
        return arch_of(self.device.compute_capability, self.device.name)

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told."""
        return () if self.launch is None else options_of(self.launch.text, self.architecture)

    def compiled(self) -> Cached:
        """From the kernel cache, compiled where it is not there. Raises ``NotSupported`` without a compiler."""
        from graphdnn.cuda.kernel_cache import default_cache

        assert self.launch is not None, "a library's kernels are its own"
        return default_cache().load(self.launch.text, self.architecture)

    @property
    def resources(self) -> Resources | None:
        """Registers, shared memory, spills and stack; None for a library's work. Raises as ``compiled`` does."""
        if self.launch is None:
            return None
        from graphdnn.cuda.nvrtc import resources

        return resources(self.compiled().log).get(self.launch.entry, Resources())

    @property
    def shared(self) -> int:
        """All bytes of shared memory of a block."""
        resources = self.resources
        return 0 if resources is None else resources.shared + self.dynamic_shared

    @property
    def occupancy(self) -> Occupancy | None:
        """None for a library's work and for an architecture without a row in the table."""
        resources = self.resources
        if resources is None:
            return None
        return occupancy(self.device.compute_capability, self.block, resources.registers, self.shared)

    @property
    def waves(self) -> float | None:
        """Rounds in which the device takes the blocks of the grid."""
        found = self.occupancy
        if found is None or not found.blocks:
            return None
        return prod(self.grid) / (found.blocks * self.device.sm_count)

    @property
    def cubin_hash(self) -> str:
        """SHA-256 of what the compiler made; empty for a library's work."""
        return "" if self.launch is None else hashlib.sha256(self.compiled().cubin).hexdigest()

    def why_not_compiled(self) -> Rejection | None:
        """Why ``resources`` cannot be had, for reports that go on without them."""
        if self.launch is None:
            return None
        try:
            self.compiled()
        except GraphdnnError as error:
            return error.rejections[0]
        return None

    def to_json(self) -> dict[str, Any]:
        if self.launch is None:
            return {"library": self.name}
        entry: dict[str, Any] = {
            "kernel": self.name, "entry": self.entry, "grid": list(self.grid), "block": self.block,
            "dynamic_shared": self.dynamic_shared, "architecture": self.architecture, "options": list(self.options),
        }  # fmt: skip
        refused, resources = self.why_not_compiled(), None
        if refused is not None:
            return entry | {"not_compiled": refused.to_json()}
        resources, fits = self.resources, self.occupancy
        assert resources is not None
        return entry | {
            "registers": resources.registers, "shared": self.shared, "stack": resources.stack,
            "spill_stores": resources.spill_stores, "spill_loads": resources.spill_loads,
            "warnings": list(resources.warnings), "cubin_sha256": self.cubin_hash, "waves": self.waves,
            "occupancy": None if fits is None else {
                "share": fits.share, "blocks": fits.blocks, "warps": fits.warps, "limited_by": fits.limited_by,
            },
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelView:
    """One kernel of a plan: the operations that became it, what it launches, and what it costs."""

    index: int  # in the plan
    choice: Choice
    compiled: CompiledOperation

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.compiled.name

    @property
    def engine(self) -> str:
        """The engine with the knobs that differ from their defaults."""
        return self.choice.name

    @property
    def rewrite(self) -> RewriteStep | None:
        """The rewrite that the engine applies before another engine computes the operations; None where there is
        none.
        """
        return self.choice.rewrite

    @property
    def device(self) -> DeviceSpec:
        """The device of the plan."""
        return self.choice.task.device

    @property
    def op(self) -> FusedOp:
        """The fused operation that became the kernel."""
        return self.choice.task.op

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations in order of execution. ``// operation N`` in the text counts them."""
        return self.op.operations

    @property
    def vanished(self) -> tuple[int, ...]:
        """The uids of tensors that the kernel keeps in registers. They have no memory."""
        return tuple(t.uid for t in self.op.internal)

    @property
    def reads(self) -> tuple[int, ...]:
        """The uids of tensors that the kernel reads from memory."""
        return tuple(t.uid for t in self.op.inputs)

    @property
    def writes(self) -> tuple[int, ...]:
        """The uids of tensors that the kernel writes to memory."""
        return tuple(t.uid for t in self.op.outputs)

    @property
    def is_on_host(self) -> bool:
        """Whether the kernel runs on the host."""
        return isinstance(self.compiled, Kernel)

    # Text.

    @property
    def texts(self) -> tuple[KernelText, ...]:
        """Each text that is launched, once. There is none on the host, or if a library does all the work."""
        return tuple(dict.fromkeys(step.text for step in self.launches if step.text is not None))

    @property
    def source(self) -> str:
        """The text of every kernel that is launched; on the host, the NumPy functions that are called."""
        if isinstance(self.compiled, Kernel):
            from graphdnn.analysis.kernels.host_source import host_source

            return host_source(self.choice)
        return "\n".join(text.text for text in self.texts)

    @property
    def source_lines(self) -> tuple[SourceLine, ...]:
        """The lines of the texts where each operation begins."""
        from graphdnn.plan.source_lines import source_lines

        return source_lines(self.op, self.compiled)

    # What runs.

    @property
    def launches(self) -> tuple[LaunchView, ...]:
        """The launches in the order of the stream; none on the host."""
        if isinstance(self.compiled, Kernel):
            return ()
        from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch

        assert isinstance(self.compiled, DeviceKernel)
        return tuple(
            LaunchView(step.text.name, self.device, step) if isinstance(step, Launch)
            else LaunchView(step.name, self.device, None)
            for step in self.compiled.steps
        )  # fmt: skip

    @property
    def main(self) -> LaunchView | None:
        """The launch whose text has the last operations of the kernel, and the most of them; None on the host."""
        launches = [launch for launch in self.launches if not launch.is_library]
        counts = {launch.name: 0 for launch in launches}
        for line in self.source_lines:
            counts[line.kernel] += line.number is not None
        return max(launches, key=lambda launch: counts[launch.name], default=None)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the compiler."""
        main = self.main
        return () if main is None else main.options

    @property
    def architecture(self) -> str:
        """The architecture of the code, for example ``sm_90a``; on the host, the name of the device."""
        return self.device.name if self.is_on_host else arch_of(self.device.compute_capability, self.device.name)

    @property
    def registers(self) -> int:
        """The most registers of a thread in any launch; 0 on the host."""
        return max((r.registers for r in self._resources), default=0)

    @property
    def shared(self) -> int:
        """The most bytes of shared memory of a block in any launch; 0 on the host."""
        return max((launch.shared for launch in self.launches), default=0)

    @property
    def spills(self) -> int:
        """The most bytes that a thread stores and loads for lack of registers; 0 on the host."""
        return max((r.spill_stores + r.spill_loads for r in self._resources), default=0)

    @property
    def stack(self) -> int:
        """The most bytes of stack of a thread; 0 on the host."""
        return max((r.stack for r in self._resources), default=0)

    @property
    def _resources(self) -> list[Resources]:
        return [r for launch in self.launches if (r := launch.resources) is not None]

    @property
    def occupancy(self) -> Occupancy | None:
        """The occupancy of the main launch; None on the host."""
        main = self.main
        return None if main is None else main.occupancy

    @property
    def cubin_hash(self) -> str:
        """SHA-256 of the cubins of all launches; empty on the host."""
        found = [launch.cubin_hash for launch in self.launches]
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest() if found else ""

    # What it costs.

    @property
    def bytes(self) -> int:
        """Bytes that have to cross memory at least once."""
        return bytes_moved(self.op)

    @property
    def flops(self) -> int:
        """The number of arithmetic operations; a multiply-add counts as two."""
        return sum(map(flops, self.operations))

    @property
    def floor_seconds(self) -> float:
        """The least time, in seconds, that the peaks of arithmetic and memory allow."""
        return floor_seconds(self.op, self.device)

    @property
    def bound_by(self) -> str:
        """What sets the least time: arithmetic or memory."""
        return "memory" if self.floor_seconds <= self.bytes / self.device.bandwidth else "arithmetic"

    @property
    def predicted_seconds(self) -> float:
        """The predicted time, in seconds."""
        return self.choice.cost.seconds

    @property
    def is_view(self) -> bool:
        """Whether nothing runs, because the result is the operand's memory under other strides."""
        return self.predicted_seconds == 0

    def roofline_share(self, seconds: float | None = None) -> float:
        """The least time divided by the time of the kernel.

        Args:
            seconds: The measured time. None takes the predicted one.

        Returns:
            A share from 0 to 1; 1 for a view.
        """
        taken = self.predicted_seconds if seconds is None else seconds
        return self.floor_seconds / taken if taken else 1.0

    def __repr__(self) -> str:
        return f"<KernelView [{self.index}] {self.name}>"

    def __str__(self) -> str:
        from graphdnn.analysis.kernels.kernel_text import page

        return page(self)

    def to_json(self) -> dict[str, Any]:
        """Plain data with everything that the view shows."""
        return {
            "index": self.index, "name": self.name, "engine": self.engine, "device": self.device.name,
            "architecture": self.architecture, "operations": [op.label() for op in self.operations],
            "reads": list(self.reads), "writes": list(self.writes), "vanished": list(self.vanished),
            "launches": [launch.to_json() for launch in self.launches],
            "source_lines": [line.to_json() for line in self.source_lines],
            "rewrite": None if self.rewrite is None else self.rewrite.to_json(),
            "bytes": self.bytes, "flops": self.flops, "floor_us": self.floor_seconds * 1e6, "bound_by": self.bound_by,
            "predicted_us": self.predicted_seconds * 1e6, "roofline_share": self.roofline_share(),
        }  # fmt: skip


def of_plan(plan: ExecutionPlan) -> tuple[KernelView, ...]:
    """A view of each kernel, in the order of execution."""
    pairs = enumerate(zip(plan.config.choices, plan.compiled, strict=True))
    return tuple(KernelView(i, choice, compiled) for i, (choice, compiled) in pairs)
