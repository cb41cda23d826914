"""What the knob settings of an engine launch: settings that share their launches, and settings that launch another value.

``python tests/support/knob_launches.py`` prints the counts of every engine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from random_problems.named_problems import NAMED, Named

from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.engines import Engine, Knobs, Task, engines_of
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import HeurMode
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import ASKED_FOR, Filters, Ranking

DEVICE = "h200"
# Engines that no named problem has, or whose named problems leave knobs without a choice.
MORE: tuple[Named, ...] = (
    Named("conv x=f32[2,64,12,12]nhwc w=f32[64,64,3,3]nhwc pad=1", "cuda_hopper_gemm_tf32"),
    Named("conv x=f32[2,64,12,12]nhwc w=f32[64,64,3,3]nhwc pad=1", "cuda_mma_gemm_tf32"),
    Named("conv x=f32[2,64,12,12]nhwc w=f32[64,64,3,3]nhwc pad=1", "cuda_hopper_bf16x3"),
    Named("conv x=i16[2,64,12,12]nhwc w=i16[64,64,3,3]nhwc pad=1 compute=i64 out=i64", "cuda_hopper_int_limbs"),
    Named("wgrad x=f32[2,64,9,11]nhwc dy=f32[2,64,9,11]nhwc dw=[64,64,3,3] pad=1", "cuda_hopper_tf32_wgrad"),
    Named("matmul a=f16[256,512] b=f16[512,256] + bias", "cuda_hopper_matmul"),
    Named("matmul a=f32[256,512] b=f32[512,256] + bias", "cuda_hopper_matmul_tf32"),
    Named("attention:1:small", "cuda_hopper_attention"),
)


@dataclass(frozen=True)
class Launches:
    """What an engine launches for one operation, setting by setting."""

    engine: Engine
    task: Task
    of: Mapping[tuple[tuple[str, int], ...], object] = field(repr=False)

    @property
    def shared(self) -> int:
        """Settings whose launches an earlier setting has."""
        return len(self.of) - len(set(self.of.values()))


def launches_of(engine: Engine, task: Task, knobs: Knobs) -> object:
    """The text, constants, grid, parameters and shared memory of every launch."""
    kernel = engine.compile(task, knobs)
    assert isinstance(kernel, DeviceKernel)
    steps = tuple(
        (step.text, step.entry, step.grid, step.block, repr(step.params), step.shared)
        if isinstance(step, Launch)
        else step.name
        for step in kernel.steps
    )
    return steps, kernel.workspace_bytes


def task_of(problem: Named, device: DeviceSpec) -> Task | None:
    """The task of a problem that one engine serves; None where its graph has several kernels."""
    fused = fuse(OperationGraph.of(problem.problem().operations))
    return Task(fused.operations[0], device) if len(fused) == 1 else None


def tasks(device: DeviceSpec) -> Iterator[tuple[Engine, Task]]:
    """For each engine with knobs the tasks of the named problems that it serves, those that name it first; two at most."""
    named = [(problem.engine, task) for problem in (*NAMED, *MORE) if (task := task_of(problem, device)) is not None]
    for engine in engines_of("cuda"):
        if engine.knobs:
            order = sorted(named, key=lambda pair: pair[0] != engine.name)
            yield from [(engine, task) for _, task in order if engine.serves(task)][:2]


def offered(engine: Engine, task: Task) -> Launches:
    """The settings that mode B offers."""
    fused = fuse(OperationGraph.of(task.op.operations))
    ranking = Ranking(fused, task.device, HeurMode.B, Filters(allowed_numerical_notes=ASKED_FOR), (engine,))
    found = {}
    for choice in ranking.choices(ranking.fused.operations[0]):
        key = tuple(sorted((kind.name, value) for kind, value in choice.knobs.items()))
        found[key] = launches_of(engine, choice.task, choice.knobs)
    return Launches(engine, task, found)


def main() -> None:
    """Print the counts."""
    settings = shared = 0
    for engine, task in tasks(device_spec(DEVICE)):
        found = offered(engine, task)
        settings, shared = settings + len(found.of), shared + found.shared
        print(f"{engine.name}: {len(found.of)} settings, {found.shared} launch what another launches; {task.op.name}")
    print(f"all: {settings} settings, {shared} launch what another launches")


if __name__ == "__main__":
    main()
