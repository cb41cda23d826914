"""Segment: a part of a module's graph, executed on tensors by a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from graphdnn.cuda.errors import OutOfMemory
from graphdnn.errors import BadParam, GraphdnnError, NotSupported
from graphdnn.plan import ExecutionPlan
from graphdnn.torch.arguments import Input
from graphdnn.torch.description import Described, Output
from graphdnn.torch.folding import FoldedNorms
from graphdnn.torch.planning import Parameters

_MOST_FAILURES = 16  # that are kept
_ALIGNMENT = 16  # bytes, as tensors of a graph promise


class Segment(torch.nn.Module):
    """A part of a module that the library executes.

    Inputs that are made of parameters alone are bound to the plan, until a parameter gets other memory. What is
    computed from parameters is computed at each call, or, if they are frozen, after a parameter was changed in place.

    Args:
        module: The part. PyTorch executes it if a call cannot be served.
        described: The part as a graph that is built.
        parameters: The arguments that are parameters or buffers.
    """

    def __init__(self, module: GraphModule, described: Described, parameters: Parameters) -> None:
        super().__init__()
        self.fallback = module
        self.described, self.graph = described, described.graph
        self.failures: list[GraphdnnError] = []  # of calls that PyTorch executed
        plan = described.graph.plan
        self._workspace_size = plan.workspace_size
        self._bound: ExecutionPlan | None = None
        self._unbound = plan
        self._static = [
            found for found in described.inputs
            if parameters.indices.issuperset(found.arguments) and (parameters.is_frozen or not found.is_copy)
        ]  # fmt: skip
        self._dynamic = [
            (found.tensor.get_uid(), found.arguments[0], found.make)
            for found in described.inputs if found not in self._static
        ]  # fmt: skip
        self._is_frozen = parameters.is_frozen
        folded = {i for fold in described.folds for i in fold.arguments}
        copied = {i for found in self._static if found.is_copy for i in found.arguments}
        self._watched = sorted(folded.union(*(found.arguments for found in self._static)))
        self._versioned = sorted(folded | copied) if self._is_frozen else sorted(copied)
        self._norms: FoldedNorms | None = None
        self._addresses: list[int] = []
        self._versions: list[int] = []
        self._new = [(dim, stride, fake.dtype, fake.device) for fake, dim, stride in described.written]
        self._uids = described.written_uids

    def forward(self, *args: Any) -> Any:
        """Execute the plan on tensors; on a GPU in PyTorch's current stream.

        Args:
            args: The arguments of the part.

        Returns:
            The results, in memory of their own or as views of arguments.
        """
        try:
            made = self._executed(args)
        except (BadParam, NotSupported, OutOfMemory, torch.OutOfMemoryError) as error:  # nothing was written
            if isinstance(error, GraphdnnError) and len(self.failures) < _MOST_FAILURES:
                self.failures.append(error)
            return self.fallback(*args)
        results = [None if o is None else _shown(o, made, args) for o in self.described.outputs]
        return results[0] if self.described.is_single else tuple(results)

    def _executed(self, args: Sequence[Any]) -> list[Any]:
        """The new tensors that the plan has written."""
        plan = self._plan(args)
        made = [torch.empty_strided(size, stride, dtype=d, device=device) for size, stride, d, device in self._new]
        bindings = {uid: args[i] if make is None else make(args[i]) for uid, i, make in self._dynamic}
        for uid, tensor in zip(self._uids, made, strict=True):
            bindings[uid] = tensor
        workspace = None
        if self._workspace_size:
            workspace = _bytes(self._workspace_size, made[0].device)
        try:
            plan.execute(bindings, workspace)
        except BadParam:
            for uid, *_ in self._dynamic:
                bindings[uid] = _aligned(bindings[uid])
            plan.execute(bindings, workspace)
        return made

    def _plan(self, args: Sequence[Any]) -> ExecutionPlan:
        """The plan with the parameters bound as they are now."""
        if not self._watched:
            return self._unbound
        addresses = [args[i].data_ptr() for i in self._watched]
        versions = [_version(args[i]) for i in self._versioned]
        if self._bound is None or addresses != self._addresses or versions != self._versions:
            arrays = {found.tensor.get_uid(): _array(found, args) for found in self._static}
            if self.described.folds:
                self._norms = FoldedNorms(self.described.folds, args)
                arrays |= self._norms.arrays()
            self._bound = self._unbound.bind(arrays)
            self._addresses, self._versions = addresses, versions
        elif self._norms is not None and not self._is_frozen:
            self._norms.update(args)
        return self._bound


def _array(found: Input, args: Sequence[Any]) -> Any:
    given = [args[i].detach() for i in found.arguments]
    return given[0] if found.make is None else found.make(*given)


def _bytes(size: int, device: torch.device) -> Any:
    """A workspace from PyTorch's allocator, which keeps the order of the stream when the memory is used again."""
    found = torch.empty(size, dtype=torch.uint8, device=device)
    return found.numpy() if device.type == "cpu" else found


def _version(tensor: Any) -> int:
    """How often a tensor was changed in place. Tensors of inference mode do not count, and cannot be changed."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _aligned(tensor: Any) -> Any:
    """The tensor itself, or a copy in memory with the alignment that the graph promises."""
    if tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _shown(output: Output, made: Sequence[Any], args: Sequence[Any]) -> Any:
    fake = output.expanded
    if output.number is not None and fake is None:
        return output.number
    if output.number is not None:
        root = torch.tensor(output.number)
    else:
        root = made[output.root] if output.root >= 0 else args[-1 - output.root]
    if fake is not None:
        root = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).copy_(root)
    if output.view is None:
        return root
    size, stride, offset = output.view
    return root.as_strided(size, stride, root.storage_offset() + offset)
