"""CUDA graphs of compiled modules, by PyTorch's own recorder.

The recorder copies inputs into memory of its own, records at the second call, records again for other extents or other
addresses of parameters, and shares one memory pool among all graphs of a module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule


def captured(
    compiled: Callable[..., Any], graph: GraphModule, inputs: Sequence[Any], static: frozenset[int], kind: str
) -> Callable[..., Any]:
    """A function that replays a CUDA graph.

    Args:
        compiled: The function of a list of inputs.
        graph: The graph that the function computes.
        inputs: The inputs, as fake tensors.
        static: The indices of inputs that stay where they are.
        kind: "inference", "forward" or "backward".

    Returns:
        The function; ``compiled`` itself if the inputs are not on one GPU.
    """
    from torch._dynamo.backends.cudagraphs import check_for_skip, get_device_index, get_stack_traces
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info

    devices = {t.device for t in inputs if isinstance(t, torch.Tensor)}
    if {d.type for d in devices} != {"cuda"} or check_for_skip(graph, len(static)):
        return compiled
    found = cudagraphify_impl(
        compiled, list(inputs), sorted(static), device_index=get_device_index(graph), is_backward=kind == "backward",
        is_inference=kind == "inference", stack_traces=get_stack_traces(graph),
        placeholders=get_placeholder_info(graph.graph), mutated_input_idxs=[],
    )  # fmt: skip
    found._boxed_call = True
    return found
