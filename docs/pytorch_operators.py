"""The page of PyTorch: how a module is compiled, and every operator that is served, from the table."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from textwrap import dedent

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], str]
HAS_PYTORCH = importlib.util.find_spec("torch") is not None


def needs_pytorch(module: str) -> bool:
    """Whether a module of the library cannot be imported without PyTorch."""
    return module.startswith("graphdnn.torch.") and not module.endswith(".rules")


def pages(note: str, table: Table) -> dict[str, Callable[[], str]]:
    """The page, if PyTorch is there to name its operators."""
    return {"pytorch.md": lambda: _page(note, table)} if HAS_PYTORCH else {}


def _page(note: str, table: Table) -> str:
    from graphdnn.torch import lowerings

    families: dict[str, list[str]] = {}
    for overload, lower in lowerings.LOWERINGS.items():
        families.setdefault(lower.__module__.rpartition(".")[2], []).append(str(overload).removeprefix("aten."))
    rows = [
        (name.replace("_", " "), _first_line(getattr(lowerings, name)), ", ".join(f"`{o}`" for o in sorted(operators)))
        for name, operators in sorted(families.items())
    ]
    count = sum(map(len, families.values()))
    return "\n\n".join([
        "# PyTorch", note, _introduction(),
        f"## Operators\n\nThese {count} overloads of ATen's operators have a lowering. Each lowering is a function in "
        "`graphdnn/torch/lowerings/`.",
        table(("family", "what it has", "overloads"), rows),
    ]) + "\n"  # fmt: skip


def _first_line(module: object) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def _introduction() -> str:
    return dedent(
        """\
        ```python
        import torch

        model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU()).eval()
        image = torch.randn(1, 3, 32, 32)
        compiled = torch.compile(model, backend="graphdnn")  # inference and training
        with torch.no_grad():
            result = compiled(image)
        ```

        The options of the backend:

        - `options={"freeze": True}` is a promise: parameters are not changed through `Parameter.data` or `detach()`.
          Batch normalizations are then folded once, and filters are laid out once. Changes in place and other memory
          are still followed.
        - `options={"device": "h200"}` plans for a device profile, for `explain` on another machine.

        The package `graphdnn` registers the backend; PyTorch finds it by its name. `graphdnn.torch.backend` is the
        same function. It runs on a GPU, and on the host with the NumPy engines, which are slow and exact.

        At small batches a call takes the host longer than the GPU. Record a call with `torch.cuda.graph` then, as any
        other work of PyTorch: the plan runs in PyTorch's current stream.

        ## What becomes of a module

        1. TorchDynamo captures the module, and AOTAutograd makes graphs of ATen's operators: one for inference, or one
           forward and one backward.
        2. Each operator is lowered alone. If a lowering or the library refuses the operator, PyTorch executes it, and
           the reason is kept.
        3. The largest connected parts of served operators become segments. A segment is one `Graph` with one plan, so
           the fusion pass sees a whole network.
        4. Parameters are bound to the plan once. Batch normalization in evaluation becomes a factor and an offset for
           each channel; they are computed again at each call, because nobody can see whether a parameter was changed.
           If a parameter gets other memory, the next call binds it again. On a GPU,
           `model.to(memory_format=torch.channels_last)` saves the change of layout of half-precision filters at each
           call.
        5. If extents are dynamic, a segment has one plan for each set of extents.

        Results have the extents, strides and types that PyTorch gives them. If a call cannot be served, for example
        because memory runs out, PyTorch executes the segment.

        ## What went where

        ```python
        import graphdnn.torch

        print(graphdnn.torch.explain(model, image))
        print(graphdnn.torch.explain(model, image, training=True))
        print(graphdnn.torch.explain(model, image, options={"device": "h200"}))  # on a machine without a GPU
        ```

        The text has the share of operators that the library executes, the kernels of each segment with their predicted
        times, and for each operator that PyTorch executes the reason, with the submodule that calls it. The object has
        the same as attributes: `coverage`, `segments`, `fallbacks`, `predicted_seconds`.
        [Example 17](../examples/17_torch_compile.py) shows it.

        ## Convolutions by hand

        `graphdnn.torch.conv1d`, `conv2d` and `conv3d` are registered operators (`torch.ops.graphdnn.convolution`) with
        a fake kernel and autograd, so `torch.compile` of any backend can call them. Integers, which PyTorch does not
        convolve, are exact: int8, uint8 and int16 give sums in int32.

        ```python
        x = torch.randint(-128, 128, (1, 3, 8, 8), dtype=torch.int8)
        weight = torch.randint(-128, 128, (4, 3, 3, 3), dtype=torch.int8)
        sums = graphdnn.torch.conv2d(x, weight, padding=1)  # int32
        ```

        ## Tensors in graphs

        A `Graph` takes tensors of PyTorch as it takes arrays. `graph.run` returns tensors if it is given some.
        `graph.bind({"w": weight})` binds weights once; calls of the result pass the other tensors and take less time.
        """
    )
