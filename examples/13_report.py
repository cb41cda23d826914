"""One page for a browser: what a block became on a GPU that need not be here, and what two kernels cost it."""

import sys
import tempfile
from pathlib import Path

import graphdnn
from graphdnn.analysis.report import contents_of, page
from graphdnn.enums import ReductionOperator

graph = graphdnn.Graph(
    "centred residual block",
    io_data_type="float16",
    intermediate_data_type="float32",
    compute_data_type="float32",
)


def channels_last(name, *dims):
    return graph.tensor(dims, stride=graphdnn.channels_last_strides(dims), name=name)


x, w = channels_last("x", 64, 128, 28, 28), channels_last("w", 128, 128, 3, 3)
bias, residual = channels_last("bias", 1, 128, 1, 1), channels_last("residual", 64, 128, 28, 28)
shifted = graph.bias(graph.conv_fprop(x, w, padding=[1, 1], name="conv"), bias)
block = graph.relu(graph.add(shifted, residual))
mean = graph.reduction(block, ReductionOperator.AVG, name="mean").set_dim([1, 128, 1, 1])
y = graph.sub(block, mean, name="centre").set_output(True).set_name("y")
y.set_dim([64, 128, 28, 28]).set_stride(graphdnn.channels_last_strides([64, 128, 28, 28]))

contents = contents_of(graphdnn.rank(graph.build_operation_graph(), "h200"))
target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "report.html"
target.write_text(page(contents, graphdnn.__version__), encoding="utf-8")

fused = contents.ranking.fused
print(f"{len(fused.graph.operations)} operations in {len(fused)} kernels")
if contents.not_compiled:  # NVRTC is an extra: the page then has the ranking, and no kernel text
    print(contents.not_compiled)
print(f"the page is {target.name}, {target.stat().st_size // 1024} KiB, and needs nothing else")
for stop in (entry for entry in contents.ledger if entry.kind == "edge"):
    print(f"why two kernels: {stop.subject.text}: {stop.reason} [{stop.rule}]")
