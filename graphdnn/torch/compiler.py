"""The backend of ``torch.compile``: the library executes the segments that it serves, and PyTorch the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule, Node

from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import BadParam, GraphdnnError, Rejection
from graphdnn.torch.concrete import SYMBOLIC, has_symbols, make_concrete
from graphdnn.torch.dynamic_segment import DynamicSegment
from graphdnn.torch.max_pool_gradient import DECOMPOSITIONS
from graphdnn.torch.partition import Fallback, fallback, partitioned
from graphdnn.torch.planning import Parameters, planned
from graphdnn.torch.rules import DEVICE, LOWERING, OPTION
from graphdnn.torch.segment import Segment


@dataclass(slots=True)
class Compilation:
    """What was compiled of one graph.

    Args:
        kind: "inference", "forward" or "backward".
        segments: The segments that the library executes.
        fallbacks: The operators that PyTorch executes.
        served: The number of operators in the segments.
    """

    kind: str
    segments: list[Segment | DynamicSegment] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    served: int = 0


Listener = Callable[[Compilation], None]


def backend(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None, listener: Listener | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """The backend: ``torch.compile(model, backend="graphdnn")``.

    Args:
        module: The graph that TorchDynamo has captured.
        example_inputs: Its inputs.
        options: ``"device"``: the name of a profile to plan for; without it the device of the tensors decides.
            ``"freeze"``: True promises that parameters
            are not changed through ``Parameter.data`` or ``detach()``; changes in place and other memory are followed.
        mode: None or "default".
        listener: A function that gets each ``Compilation``.

    Returns:
        A function with the inputs and the results of ``module``.

    Raises:
        BadParam: An option or the mode is unknown.
    """
    given = dict(options or {})
    device, is_frozen = given.pop("device", None), bool(given.pop("freeze", False))
    if given or mode not in _MODES:
        raise BadParam(_unknown(given, mode))

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            made = Compilation(kind)
            parameters = Parameters(_static_inputs() if kind == "inference" else frozenset(), is_frozen)
            compiled = make_boxed_func(compiled_graph(graph, device, parameters, made))
            if listener is not None:
                listener(made)
            return compiled

        return compile_graph

    compile_module = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference"),
        decompositions=DECOMPOSITIONS,
    )  # fmt: skip
    return compile_module(module, example_inputs)


_MODES = (None, "default")


def _unknown(options: Mapping[str, Any], mode: str | None) -> list[Rejection]:
    found = [OPTION.reject("torch.compile", "options", name, expected="device or freeze") for name in options]
    if mode not in _MODES:
        found.append(OPTION.reject("torch.compile", "mode", mode, expected="default"))
    return found


def _static_inputs() -> frozenset[int]:
    """The inputs of the graph that are parameters or buffers, as AOTAutograd knows them."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return frozenset(getattr(metadata, "static_input_indices", None) or ())


def compiled_graph(
    graph: GraphModule, device: DeviceSpec | str | None, parameters: Parameters, made: Compilation
) -> Callable[..., Any]:
    """A graph of ATen's operators with segments in place of what the library serves.

    Args:
        graph: A functional graph.
        device: A profile, its name, or None for the device of the tensors.
        parameters: The inputs that are parameters or buffers.
        made: What was compiled, which is filled in.

    Returns:
        The function.
    """
    target = device or device_of(graph)
    if target is None:
        reason = DEVICE.reject("torch.compile", "device", "several devices, or another kind", device="one CPU or GPU")
        operators = graph.graph.nodes
        made.fallbacks = [fallback(n, (reason,)) for n in operators if n.op == "call_function"]
        return graph
    if has_symbols(graph):
        make_concrete(graph)
    placeholders = graph.graph.find_nodes(op="placeholder")
    weights = {node.name for i, node in enumerate(placeholders) if i in parameters.indices}
    fused, names, made.fallbacks = partitioned(graph, target)
    for name in names:
        part = fused.get_submodule(name)
        assert isinstance(part, GraphModule)
        (call,) = (n for n in fused.graph.nodes if n.op == "call_module" and n.target == name)
        _set_fakes(part, call)
        indices = frozenset(
            i for i, a in enumerate(call.args)
            if isinstance(a, Node) and a.op == "placeholder" and a.name in weights
        )  # fmt: skip
        own = Parameters(indices, parameters.is_frozen)
        operators = [n for n in part.graph.nodes if n.op == "call_function"]
        try:
            segment: Segment | DynamicSegment
            if has_symbols(part):
                segment = DynamicSegment(part, target, own)
            else:
                segment = Segment(part, planned(part, target, own), own)
        except GraphdnnError as error:
            made.fallbacks += [fallback(n, tuple(error.rejections)) for n in operators]
            continue
        except Exception as error:  # PyTorch has the right answer, whatever is wrong with a lowering
            reason = LOWERING.reject(name, "segment", f"{type(error).__name__}: {error}".splitlines()[0])
            made.fallbacks += [fallback(n, (reason,)) for n in operators]
            continue
        made.segments.append(segment)
        made.served += len(operators)
        fused.set_submodule(name, segment)
    return fused


def device_of(graph: GraphModule) -> str | None:
    """The device of the graph's tensors as the library names it; None if there are several, or another kind."""
    fakes = (node.meta.get("val") for node in graph.graph.nodes)
    found = {fake.device for fake in fakes if isinstance(fake, torch.Tensor)}
    if len(found) != 1:
        return None
    (device,) = found
    if device.type == "cpu":
        return "cpu"
    return f"cuda:{device.index or 0}" if device.type == "cuda" else None


def _set_fakes(part: GraphModule, call: Node) -> None:
    """Placeholders of a part have the fake tensors of the arguments of its call."""
    placeholders = part.graph.find_nodes(op="placeholder")
    for placeholder, argument in zip(placeholders, call.args, strict=True):
        placeholder.meta.setdefault("val", argument.meta["val"] if isinstance(argument, Node) else argument)
        if isinstance(argument, Node) and SYMBOLIC in argument.meta:
            placeholder.meta[SYMBOLIC] = argument.meta[SYMBOLIC]
