"""The backend of ``torch.compile``: a module's graph, of which the library executes the segments that it serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from graphdnn.device.profiles import DeviceSpec
from graphdnn.errors import GraphdnnError
from graphdnn.torch.partition import Fallback, partitioned
from graphdnn.torch.segment import Described, Description, Segment


@dataclass(slots=True)
class Compilation:
    """What was compiled of one graph.

    Args:
        kind: "inference", "forward" or "backward".
        segments: The segments that the library executes.
        fallbacks: The operators that PyTorch runs.
        served: The number of operators in the segments.
    """

    kind: str
    segments: list[Segment] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    served: int = 0


Listener = Callable[[Compilation], None]


def backend(
    module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    listener: Listener | None = None, **_: Any,
) -> Callable[..., Any]:  # fmt: skip
    """The backend: ``torch.compile(model, backend="graphdnn")``.

    Args:
        module: The graph that TorchDynamo has captured.
        example_inputs: Its inputs.
        options: ``{"device": NAME}`` plans for a profile. Without it the device of the tensors decides.
        listener: A function that gets each ``Compilation``.

    Returns:
        A function with the inputs and the results of ``module``.
    """
    device = (options or {}).get("device")

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            made = Compilation(kind)
            compiled = compiled_graph(graph, inputs, device, made)
            if listener is not None:
                listener(made)
            return make_boxed_func(compiled)  # type: ignore[no-any-return]

        return compile_graph

    compile_module = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference")
    )
    return compile_module(module, example_inputs)  # type: ignore[no-any-return]


def compiled_graph(
    graph: GraphModule, inputs: Sequence[Any], device: DeviceSpec | str | None, made: Compilation
) -> Callable[..., Any]:
    """A graph of ATen's operators with segments in place of what the library serves.

    Args:
        graph: A functional graph.
        inputs: Its inputs, as fake tensors.
        device: A profile, its name, or None for the device of the tensors.
        made: What was compiled, which is filled in.

    Returns:
        The function.
    """
    target = device or device_of(graph)
    if target is None:
        return graph
    fused, names, made.fallbacks = partitioned(graph, target)
    for name in names:
        part = fused.get_submodule(name)
        assert isinstance(part, GraphModule)
        _set_fakes(fused, name, part)
        try:
            segment = Segment(part, planned(part, target))
        except GraphdnnError as error:
            made.fallbacks += [
                Fallback(n.name, str(n.target), "", tuple(error.rejections))
                for n in part.graph.nodes if n.op == "call_function"
            ]  # fmt: skip
            continue
        made.segments.append(segment)
        made.served += sum(n.op == "call_function" for n in part.graph.nodes)
        fused.set_submodule(name, segment)
    return fused


def device_of(graph: GraphModule) -> str | None:
    """The device of the graph's tensors as the library names it; None if there are several, or another kind."""
    found = {
        fake.device for node in graph.graph.nodes if isinstance(fake := node.meta.get("val"), torch.Tensor)
    }  # fmt: skip
    if len(found) != 1:
        return None
    (device,) = found
    if device.type == "cpu":
        return "cpu"
    return f"cuda:{device.index or 0}" if device.type == "cuda" else None


def planned(part: GraphModule, device: DeviceSpec | str) -> Described:
    """A segment with its plan.

    Raises:
        GraphdnnError: The graph or the device refuses it.
    """
    described = Description(part, device).describe()
    described.graph.build()
    return described


def _set_fakes(fused: GraphModule, name: str, part: GraphModule) -> None:
    """Placeholders of a part have the fake tensors of the arguments of its call."""
    (call,) = (node for node in fused.graph.nodes if node.op == "call_module" and node.target == name)
    placeholders = [node for node in part.graph.nodes if node.op == "placeholder"]
    for placeholder, argument in zip(placeholders, call.args, strict=True):
        placeholder.meta.setdefault("val", argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument)


_ = FakeTensorProp
