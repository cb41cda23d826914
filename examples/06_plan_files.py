"""A plan as a file: data with a hash, never code. It is rebuilt here, or for another device."""

import json
import tempfile
from pathlib import Path

import numpy as np

import graphdnn
from graphdnn.enums import ConvolutionMode
from graphdnn.operations import ConvForward, ConvolutionSpec


def tensor(uid, dims, data_type):
    return graphdnn.TensorSpec(uid=uid, data_type=data_type, dims=dims, strides=graphdnn.packed_strides(dims))


settings = ConvolutionSpec(
    compute_type="int32", mode=ConvolutionMode.CROSS_CORRELATION, spatial_dims=2, dilations=(1, 1),
    filter_strides=(1, 1), pre_paddings=(1, 1), post_paddings=(1, 1),
)  # fmt: skip
x, w, y = tensor(1, (4, 32, 28, 28), "int8"), tensor(2, (32, 32, 3, 3), "int8"), tensor(3, (4, 32, 28, 28), "int32")
graph = graphdnn.OperationGraph.of([ConvForward(x=x, w=w, y=y, conv=settings)], name="conv_int8")
plan = graphdnn.build(graph)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "plan.json")
    path.write_text(graphdnn.plan_to_json(plan), encoding="utf-8")
    text = path.read_text(encoding="utf-8")

content = json.loads(text)
print(f"{content['format']} version {content['version']}: {len(text)} bytes, sha256 {content['sha256'][:16]}...")
print(f"engine {content['choices'][0]['engine']} for {content['choices'][0]['operation']}")

# The same plan again computes the same bits.
again = graphdnn.plan_from_json(text)
rng = np.random.default_rng(0)
arrays = {1: rng.integers(-128, 128, x.dims, np.int8), 2: rng.integers(-128, 128, w.dims, np.int8)}
first, second = np.empty(y.dims, np.int32), np.empty(y.dims, np.int32)
plan.execute({**arrays, 3: first}, plan.new_workspace())
again.execute({**arrays, 3: second}, again.new_workspace())
print("rebuilt plan gives equal results:", np.array_equal(first, second))

# On another device the file's choice of engine stays if it serves there; this one works on host memory only.
for name in ("h200", "a100"):
    try:
        graphdnn.plan_from_json(text, graphdnn.device_spec(name))
    except graphdnn.NotSupported as error:
        print(f"for {name}: {error.rejections[0].rule}: {error.rejections[0].reason}")
        print(f"for {name}, ranked again:", graphdnn.rank(graph, name).best)

# One altered character, and the file is refused.
try:
    graphdnn.plan_from_json(text.replace('"int32"', '"int16"').replace("28", "27", 1))
except graphdnn.MalformedFile as error:
    print("altered file:", error.rejections[0].rule, "-", error.rejections[0].reason)
