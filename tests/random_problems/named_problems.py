"""NAMED: problems for the kernels that small drawn ones do not reach. With one seed of each family they reach every entry.

Engine and knob values are stated, so that a change of a cost model leaves the kernel where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from extension_cases import extension_named

from graphdnn.builder import Graph
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS, FLOATS
from graphdnn.engines import ENGINE_BY_NAME, Task
from graphdnn.enums import DataType, KnobType, NormPhase, ResampleMode
from graphdnn.fusion.fused_graph import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Choice, EngineConfig, Ranking
from graphdnn.operations import EXTENSIONS
from graphdnn.problem import parse
from random_problems.families import Case, draw
from random_problems.graph_sketch import Problem

_EPSILON = 1e-5
_GROUP_NORM = "group norm "  # images, groups, channels of one, lines and pixels of a line, with "x" between them
_NORM_BACKWARD = "norm backward layer "  # rows and elements of a row, with "x" between them
_LRN = "lrn "  # layout (nchw or nhwc), then images, channels, lines and pixels of a line, with "x" between them


@dataclass(frozen=True)
class Named:
    """A problem's text, a drawn case or an extension operation (with " f16" a recurrent one of that type), and the
    engine; the best one unless given.
    """

    text: str
    engine: str = ""
    knobs: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(
            (self.text, "on", self.engine or "the best engine", *(f"{k}={v}" for k, v in self.knobs.items()))
        )

    def problem(self) -> Problem:
        if ":" in self.text:
            return draw(Case.of(self.text))
        if self.text.startswith(_GROUP_NORM):
            return _of(_group_norm(tuple(map(int, self.text.removeprefix(_GROUP_NORM).split("x")))))
        if self.text.startswith(_NORM_BACKWARD):
            return _of(_layer_norm_backward(*map(int, self.text.removeprefix(_NORM_BACKWARD).split("x"))))
        if self.text.startswith(_LRN):
            _, layout, dims = self.text.split()
            return _of(_local_response_norm(tuple(map(int, dims.split("x"))), channels_last=layout == "nhwc"))
        if self.text.split()[0] in EXTENSIONS:
            return _of(OperationGraph.of([extension_named(self.text)]))
        return _of(parse(self.text).build_operation_graph())

    def configurations(self, fused: FusedGraph, device: DeviceSpec) -> Iterator[EngineConfig]:
        """One, or none where the engine does not serve the device."""
        if not self.engine:
            yield Ranking(fused, device).best
            return
        engine, knobs = ENGINE_BY_NAME[self.engine], {KnobType[name]: value for name, value in self.knobs.items()}
        task = Task(fused.operations[0], device)
        if len(fused) == 1 and engine.serves(task):
            yield EngineConfig(fused, device, (Choice(task, engine, engine.settings(knobs)),))


def _group_norm(dims: tuple[int, ...]) -> OperationGraph:
    """Of images whose channels are last."""
    n, groups, size, lines, pixels = dims
    graph, strides = (
        Graph("group_norm"),
        (lines * pixels * groups * size, size, 1, pixels * groups * size, groups * size),
    )
    x = graph.tensor(dims, strides, data_type="float16")
    scale, bias = (graph.tensor([1, groups, size, 1, 1], data_type="float32") for _ in range(2))
    epsilon = graph.tensor_scalar(_EPSILON, data_type="float32")
    y, *statistics = graph.layernorm(NormPhase.TRAINING, x, scale, bias, epsilon)
    assert y is not None
    y.set_output(True).set_data_type("float16")
    for tensor in statistics:
        assert tensor is not None
        tensor.set_dim([n, groups, 1, 1, 1]).set_output(True).set_data_type("float32")
    return graph.build_operation_graph()


def _layer_norm_backward(rows: int, length: int) -> OperationGraph:
    graph = Graph("layer_norm_backward", io_data_type="float32")
    dy, x = (graph.tensor([rows, length]) for _ in range(2))
    scale, mean, inverse = graph.tensor([1, length]), *(graph.tensor([rows, 1]) for _ in range(2))
    for tensor in graph.layernorm_backward(dy, x, scale, mean, inverse):
        tensor.set_output(True)
    return graph.build_operation_graph()


def _local_response_norm(dims: tuple[int, ...], *, channels_last: bool) -> OperationGraph:
    """x / (1 + mean(x^2))^0.75 over five channels: a pooling whose epilogue raises to a power."""
    n, c, h, w = dims
    graph = Graph("lrn", io_data_type="float16", compute_data_type="float32")
    strides = (c * h * w, c * h * w, *((1, w * c, c) if channels_last else (h * w, w, 1)))
    x = graph.tensor([n, 1, c, h, w], strides)
    mean, _ = graph.resample(
        graph.mul(x, x), ResampleMode.AVGPOOL_INCLUDE_PADDING, [5, 1, 1], stride=[1, 1, 1], pre_padding=[2, 0, 0]
    )
    assert mean is not None
    one, power = graph.tensor_scalar(1.0, data_type="float32"), graph.tensor_scalar(-0.75, data_type="float32")
    graph.mul(x, graph.pow(graph.add(mean, one), power)).set_output(True)
    return graph.build_operation_graph()


def _of(graph: OperationGraph) -> Problem:
    rng = np.random.default_rng(0)
    values, ports = {}, {t.uid: port for port, t in graph.operations[0].inputs().items()}
    for spec in graph.bound:
        if spec.uid in graph.producer:
            continue
        if spec.is_by_value:
            values[spec.uid] = _EPSILON if spec.data_type in FLOATS else 1
        elif ELEMENTS[spec.data_type].kind == "float":
            values[spec.uid] = rng.standard_normal(spec.extents)
            if ports.get(spec.uid) == "probs":
                values[spec.uid] = rng.dirichlet(np.ones(spec.extents[-1]), spec.extents[:-1])
            elif ports.get(spec.uid) == "kept":  # gates
                values[spec.uid] = 1 / (1 + np.exp(-values[spec.uid]))
        else:
            values[spec.uid] = rng.integers(0 if spec.data_type is DataType.UINT8 else -8, 8, spec.extents)
    kinds = {ELEMENTS[t.data_type].kind for t in graph.bound}
    return Problem(graph.operations, values, exact="float" not in kinds)


_TENSOR_CORES = {"KERNEL_CFG": 2}

NAMED: tuple[Named, ...] = (
    # Direct convolutions: shifted diagonals on tensor cores, first layers in three directions.
    Named("conv x=f16[2,48,9,11]nhwc w=f16[48,1,3,3] pad=1 + bias + relu(0,6)", "cuda_direct", _TENSOR_CORES),
    Named("dgrad dy=f16[2,40,5,6]nhwc w=f16[40,1,3,3] dx=[2,40,10,12] pad=1 stride=2", "cuda_direct", _TENSOR_CORES),
    Named("wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1", "cuda_direct_wgrad", _TENSOR_CORES),
    # Depthwise sliding windows in registers; splits of a filter gradient in a cluster, and in the workspace.
    Named("conv x=f16[2,48,19,16]nhwc w=f16[48,1,5,5] pad=2 + bias + relu(0,6)", "cuda_direct", {"KERNEL_CFG": 4}),
    Named("dgrad dy=f16[2,40,19,11]nhwc w=f16[40,1,5,5] dx=[2,40,19,11] pad=2", "cuda_direct", {"KERNEL_CFG": 4}),
    Named(
        "wgrad x=f16[2,48,9,11]nhwc dy=f16[2,48,9,11]nhwc dw=[48,1,3,3] pad=1", "cuda_direct_wgrad", {"KERNEL_CFG": 3}
    ),
    Named(
        "wgrad x=f16[80,12,7,7]nhwc dy=f16[80,12,7,7]nhwc dw=[12,1,3,3] pad=1", "cuda_direct_wgrad", {"KERNEL_CFG": 3}
    ),
    # Depthwise as images lie: rows in shared memory and from the cache, columns or channels as neighbours.
    Named("conv x=f16[2,12,9,16] w=f16[12,1,7,7] pad=3 + bias + relu", "cuda_depthwise"),
    Named("conv x=f16[2,24,9,11]nhwc w=f16[24,1,3,3] pad=2 dil=2", "cuda_depthwise"),
    Named("dgrad dy=f16[2,12,5,8] w=f16[12,1,3,3] dx=[2,12,9,16] pad=1 stride=2", "cuda_depthwise"),
    Named("wgrad x=f16[2,12,9,16] dy=f16[2,12,9,16] dw=[12,1,3,3] pad=1", "cuda_depthwise_wgrad"),
    Named("wgrad x=f16[2,24,9,11]nhwc dy=f16[2,24,9,11]nhwc dw=[24,1,3,3] pad=2 dil=2", "cuda_depthwise_wgrad"),
    Named("conv x=f16[2,3,20,20]nhwc w=f16[16,3,7,7]nhwc pad=3 stride=2 + bias + relu", "cuda_direct_stem"),
    Named("conv x=f32[2,3,20,20]nhwc w=f32[16,3,7,7]nhwc pad=3 stride=2 + bias + relu", "cuda_direct_stem_fp32"),
    Named("dgrad dy=f16[2,16,12,12]nhwc w=f16[16,3,7,7]nhwc dx=[2,3,24,24] pad=3 stride=2", "cuda_direct_stem_dgrad"),
    Named("wgrad x=f16[2,3,24,24]nhwc dy=f16[2,16,12,12]nhwc dw=[16,3,7,7] pad=3 stride=2", "cuda_direct_stem_wgrad"),
    # Tensor cores: one product, a sum in parts, filter gradients, a strided data gradient.
    Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu", "cuda_hopper_gemm"),
    Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1", "cuda_hopper_gemm", {"SPLIT_K": 4}),
    Named("wgrad x=bf16[2,64,12,12]nhwc dy=bf16[2,64,12,12]nhwc dw=[64,64,3,3] pad=1", "cuda_hopper_gemm"),
    Named("dgrad dy=f16[2,64,6,6]nhwc w=f16[64,32,3,3]nhwc dx=[2,32,12,12] pad=1 stride=2", "cuda_hopper_gemm"),
    # Patches that all taps share: filters that stay in shared memory, and filters that come by.
    Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu", "cuda_hopper_halo"),
    Named("dgrad dy=bf16[2,136,12,12]nhwc w=bf16[136,72,3,3]nhwc dx=[2,72,12,12] pad=1", "cuda_hopper_halo"),
    # The same with pixels as the columns of the products.
    Named(
        "conv x=i8[2,160,30,9]nhwc w=i8[160,160,3,3]nhwc pad=1 compute=i32 out=f32 + bias + relu",
        "cuda_hopper_halo",
        {"TILE_SIZE": 30},
    ),
    # Patches of slices: all results of a slice at once, one slice after the other, filter gradients; a first layer's rows.
    Named("conv x=f16[2,32,5,9,10]nhwc w=f16[32,32,3,3,3]nhwc pad=1 spatial=3 + bias + relu", "cuda_hopper_halo"),
    Named("conv x=f16[2,64,4,9,10]nhwc w=f16[72,64,3,3,3]nhwc pad=1 spatial=3 + bias + relu", "cuda_hopper_halo"),
    Named(
        "wgrad x=f16[2,32,3,8,8]nhwc dy=f16[2,32,3,8,8]nhwc dw=[32,32,3,3,3] pad=1 spatial=3", "cuda_hopper_halo_wgrad"
    ),
    Named("conv x=f16[2,1,5,9,16]nhwc w=f16[32,1,3,3,3]nhwc pad=1 spatial=3 + bias + relu", "cuda_direct_stem"),
    Named("conv x=f32[2,64,12,12]nhwc w=f32[64,64,3,3]nhwc pad=1 + bias + relu", "cuda_hopper_halo_tf32"),
    Named("conv x=f32[2,72,9,9]nhwc w=f32[200,72,1,1]nhwc + bias + relu", "cuda_hopper_halo_tf32"),
    Named("dgrad dy=f32[2,72,12,12]nhwc w=f32[72,136,3,3]nhwc dx=[2,136,12,12] pad=1", "cuda_hopper_dgrad_tf32"),
    Named("wgrad x=f16[2,72,8,16]nhwc dy=f16[2,64,8,16]nhwc dw=[64,72,3,3] pad=1", "cuda_hopper_halo_wgrad"),
    # Filters that stay in shared memory.
    Named(
        "conv x=i8[2,64,13,12]nhwc w=i8[72,64,3,3]nhwc pad=1 stride=2 compute=i32 + bias + relu",
        "cuda_hopper_weight_stationary",
    ),
    # Residues of a strided data gradient that share a copied piece of dy.
    Named(
        "dgrad dy=f16[2,72,9,7]nhwc w=f16[72,80,3,3]nhwc dx=[2,80,17,14] pad=1 stride=2 + residual",
        "cuda_hopper_halo_dgrad",
    ),
    Named(
        "dgrad dy=f32[2,64,9,7]nhwc w=f32[64,64,3,3]nhwc dx=[2,64,17,14] pad=1 stride=2", "cuda_hopper_halo_dgrad_tf32"
    ),
    Named("conv x=f16[2,64,12,12]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu", "cuda_mma_gemm", {"SPLIT_K": 3}),
    Named("conv x=f16[2,16,14,14]nhwc w=f16[16,1,3,3]nhwc pad=1 + bias + relu", "cuda_direct"),
    Named("movement:331:small"),
    Named("conv x=f16[2,48,9,11]nhwc w=f16[48,24,3,3]nhwc pad=1 + bias + relu", "cuda_grouped"),
    Named("dgrad dy=f16[2,64,9,7]nhwc w=f16[64,16,3,3]nhwc dx=[2,64,9,7] pad=1", "cuda_grouped", {"STAGES": 2}),
    Named(
        "wgrad x=f16[3,48,9,11]nhwc dy=f16[3,96,5,6]nhwc dw=[96,24,3,3] pad=1 stride=2",
        "cuda_grouped_wgrad",
        {"TILE_ROWS": 3, "SPLIT_P_SLC": 2},
    ),
    # Tiles that the copy unit brings: even and odd columns apart, and line by line.
    Named("wgrad x=f16[3,64,9,12]nhwc dy=f16[3,64,5,6]nhwc dw=[64,8,3,3] pad=1 stride=2", "cuda_grouped_wgrad"),
    Named(
        "wgrad x=f16[3,64,9,11]nhwc dy=f16[3,64,9,11]nhwc dw=[64,16,3,3] pad=1",
        "cuda_grouped_wgrad",
        {"TILE_ROWS": 4, "KERNEL_CFG": 2},
    ),
    Named("matmul a=f16[70,200] b=f16[200,1] + bias", "cuda_matmul_skinny"),
    # Groups joined to fill a product; the gradient of a small window.
    Named("conv x=f16[2,32,9,11]nhwc w=f16[32,8,3,3]nhwc pad=1", "cuda_group_packing"),
    Named("conv x=f16[2,16,9,12]nhwc w=f16[32,16,3,3]nhwc pad=1 stride=2", "cuda_stride_fold"),
    # Windows side by side: their lines as images, and lines that keep their stride.
    Named("conv x=f16[2,3,32,48]nhwc w=f16[24,3,16,16]nhwc stride=16 + bias", "cuda_space_to_depth"),
    Named("dgrad dy=f16[2,24,3,5]nhwc w=f16[24,16,4,4]nhwc dx=[2,16,12,20] stride=4", "cuda_space_to_depth"),
    Named("wgrad x=f16[2,16,6,8]nhwc dy=f16[2,24,3,4]nhwc dw=[24,16,2,2] stride=2", "cuda_space_to_depth"),
    Named(
        "dgrad dy=f32[2,24,3,5]nhwc w=f32[24,16,4,4]nhwc dx=[2,16,12,20] stride=4 + bias", "cuda_space_to_depth_tf32"
    ),
    Named("conv x=f32[2,3,32,48]nhwc w=f32[24,3,16,16]nhwc stride=16 + bias", "cuda_space_to_depth_bf16x3"),
    Named("resample:7:small", "cuda_resample_backward"),
    # A padded copy of the image; bytes in fours; a sum in parts.
    Named("conv x=f32[16,9,16,16] w=f32[256,9,11,11] pad=5", "cuda_implicit_gemm"),
    Named("conv x=i8[2,16,9,8]nhwc w=i8[12,16,3,3]nhwc pad=1 compute=i32 out=i32", "cuda_implicit_gemm"),
    Named("wgrad x=f32[4,8,16,16] dy=f32[4,8,16,16] dw=[8,8,3,3] pad=1", "cuda_implicit_gemm", {"SPLIT_K": 3}),
    # Transforms.
    Named("conv x=f32[2,16,13,13] w=f32[24,16,3,3] pad=1 + bias + relu", "cuda_winograd"),
    Named("conv x=f32[2,16,13,13] w=f32[24,16,3,3] pad=1 + bias + relu", "cuda_winograd", {"LDGA": 0}),
    Named("conv x=f16[2,16,13,13]nhwc w=f16[24,16,3,3] pad=1", "cuda_winograd_4x4"),
    Named("conv x=f32[1,4,20,20] w=f32[4,4,5,5] pad=2 + bias", "cuda_fft"),
    Named("conv x=f32[1,4,40,40] w=f32[4,4,5,5] pad=2", "cuda_fft_tiling"),
    # Columns and back.
    Named("conv x=f32[2,8,9,9] w=f32[8,8,3,3] pad=1 + bias", "cuda_explicit_gemm"),
    Named("dgrad dy=f32[2,8,9,9] w=f32[8,8,3,3] dx=[2,8,9,9] pad=1", "cuda_explicit_gemm"),
    Named("matmul a=f32[1,16,4096] b=f32[1,4096,16] + bias", "cuda_matmul_simt"),
    # Gradients of filters as planes of 16 bits.
    Named("wgrad x=f32[2,20,9,11]nhwc dy=f32[2,24,9,11]nhwc dw=[24,20,3,3] pad=1", "cuda_hopper_bf16x3_wgrad"),
    Named(
        "wgrad x=i16[2,20,9,11]nhwc dy=i16[2,24,9,11]nhwc dw=[24,20,3,3] pad=1 compute=i64 out=i64",
        "cuda_hopper_int_limbs_wgrad",
    ),
    # Sums of long rows in parts, norms whose blocks stay on the device, norms of short planes, norms in parts.
    Named("reduce add x=f32[2,40000] y=[2,1]"),
    Named("norm batch x=f32[32,64,40,40]nhwc"),
    Named("norm batch x=f16[12,600,7,7]"),
    Named("norm layer x=f16[3,66000]"),
    # Groups of channels: pixels that stay in a cluster, and more of them than stay.
    Named("group norm 2x32x10x64x64"),
    Named("group norm 1x2x4x600x600"),
    # Gradients of norms by blocks that go through rows; softmax of rows that packs do not fit.
    Named("norm:39"),
    Named("norm:7:small"),
    Named("softmax:1:small"),
    Named("norm:5"),
    Named("norm:9:small"),
    Named("norm:31:small"),
    # Rows of a gradient that several CTAs share; running statistics.
    Named("norm backward layer 3x66000"),
    Named("norm:8:small"),
    # Gradients of activations in float and double, ReLU in double, vectors of bits.
    Named("pointwise:37:small"),
    Named("pointwise:39:small"),
    Named("pointwise:40:small"),
    Named("pointwise:89:small"),
    Named("pointwise_graph:3:small"),
    Named("pointwise:66:small"),
    # Data movement and windows of other kinds.
    Named("movement:22:small"),
    Named("movement:16:small"),
    Named("movement:99:small"),
    Named("movement:58"),
    Named("pool_apart:1:small"),
    # Epilogues of resampling with approximate instructions.
    Named("lrn nhwc 2x32x9x8"),
    Named("lrn nchw 2x32x9x8"),
    Named("resample:1:small"),
    Named("resample:5:small"),
    Named("resample:6:small"),
    Named("gradient:1:small"),
    Named("grid_sample"),
    Named("grid_sample_bwd"),
    Named("patches"),
    # Attention by warps: many rows, and a tile for long heads.
    Named("attention:1:small", "cuda_mma_attention"),
    Named("attention:4:small", "cuda_mma_attention", {"TILE_SIZE": 4}),
    # Recurrent networks: by every kind of unit, and on tensor cores.
    Named("rnn_fwd", "cuda_rnn"),
    Named("rnn_bwd_data", "cuda_rnn_backward_data"),
    Named("rnn_bwd_weights", "cuda_rnn_backward_weights"),
    Named("rnn_fwd f16", "cuda_rnn_persistent"),
    Named("rnn_fwd f16", "cuda_rnn_16bit"),
    Named("rnn_bwd_data f16", "cuda_rnn_persistent_backward_data"),
    Named("rnn_bwd_weights f16", "cuda_rnn_backward_weights_16bit"),
    Named("ctc_loss"),
)
