"""DEVICE_RULE_CASES: what plans and engines for a device refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from binding_rule_cases import (
    absent,
    device_case,
    elsewhere,
    nested_capture,
    no_stream,
    on_the_host,
    other_context,
    other_stream,
)
from engine_rejections import H200, Case, another_kind, declined
from engine_rule_cases import (
    LONG,
    ahead_cases,
    apart_cases,
    by_value,
    depthwise_cases,
    distant,
    in_bits,
    joined_cases,
    paired_cases,
    too_large,
    turned_cases,
    uneven,
    wide_filter,
    widened_cases,
    without,
)
from extension_cases import extension, recurrent
from hopper_rule_cases import (
    across_cases,
    halo_cases,
    halo_dgrad_cases,
    halo_wgrad_cases,
    held_cases,
    hopper_attention_cases,
    hopper_cases,
    hopper_matmul_cases,
    limb_cases,
    limb_wgrad_cases,
)
from legal_problems import IMAGE, operation, tensor
from rewrite_cases import broken_rewrite

from graphdnn import build, device_spec, fuse
from graphdnn.engines import ENGINES
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics.engine_index import engine_at
from graphdnn.operations import Operation


def by_index(index: int, *operations: Operation) -> Case:
    graph = OperationGraph.of(operations)
    return lambda: engine_at(index, fuse(graph), device_spec("cpu"), "ENGINE", "global_index")


def two_kernels() -> tuple[Operation, Operation]:
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    return (
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
    )


DEVICE_RULE_CASES: dict[str, Case] = {
    "binding.device_kind": device_case(_1=np.zeros(IMAGE, np.float32)),
    "binding.other_device": device_case(device=1),
    "execute.other_device": elsewhere,
    "binding.address": device_case(device=None),
    "binding.size": device_case(allocated=8),
    "execute.device_absent": absent,
    "execute.other_context": other_context,
    "execute.other_stream": other_stream,
    "execute.stream_kind": no_stream,
    "execute.host_stream": lambda: on_the_host(stream=7),
    "capture.nested": nested_capture,
    "capture.host": lambda: build(OperationGraph.of([operation("pointwise")]), "cpu").capture({}),
    "engine.place": declined("cuda_pointwise", operation("pointwise"), device_spec("cpu")),
    "engine.index": by_index(4711, operation("pointwise")),
    "engine.composed": by_index(0, operation("pointwise")),
    "engine.several_kernels": by_index(1, *two_kernels()),
    "cuda.compute_capability": declined(
        "cuda_pointwise", operation("pointwise"), replace(H200, compute_capability=(7, 5))
    ),
    "cuda.extent": declined(
        "cuda_pointwise",
        operation("pointwise", **{port: tensor(i, LONG) for i, port in enumerate(("x", "b", "y"), 1)}),
        H200,
    ),
    "cuda.grid": declined(
        "cuda_reduction",
        operation("reduction", x=tensor(1, (2**31 - 1, 2, 70_000)), y=tensor(2, (2**31 - 1, 1, 70_000))),
        H200,
    ),
    "cuda.one_tensor": declined(
        "cuda_mma_gemm",
        operation(
            "conv_fprop", **{p: tensor(uid, (8, 8, 1, 1), data_type="f16") for uid, p in ((1, "x"), (1, "w"), (2, "y"))}
        ),
        H200,
    ),
    "cuda.shared_memory": declined(
        "cuda_mma_gemm",
        operation("conv_fprop", **{p: tensor(i, (8, 8, 1, 1), data_type="f16") for i, p in enumerate("xwy", 1)}),
        replace(H200, shared_memory=48 * 1024),
    ),
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_halo", "cuda_hopper_halo_tf32")
        for rule, case in halo_cases(name)
    },
    **{f"cuda_hopper_attention.{rule}": case for rule, case in hopper_attention_cases()},
    **{f"cuda_hopper_dgrad_tf32.{rule}": case for rule, case in across_cases()},
    **{f"cuda_hopper_weight_stationary.{rule}": case for rule, case in held_cases()},
    **{f"cuda_hopper_halo_wgrad.{rule}": case for rule, case in halo_wgrad_cases()},
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_halo_dgrad", "cuda_hopper_halo_dgrad_tf32")
        for rule, case in halo_dgrad_cases(name)
    },
    **{f"{engine.name}.operation": another_kind(engine) for engine in ENGINES if "cuda" in engine.places},
    **{
        f"{engine}.kind": declined(engine, extension(other), H200)
        for engine, other in (
            ("cuda_grid_sample", "patches"),
            ("cuda_grid_sample_backward", "patches"),
            ("cuda_im2col", "grid_sample"),
            ("cuda_rnn", "patches"),
            ("cuda_rnn_16bit", "rnn_bwd_data"),
            ("cuda_ctc_loss", "patches"),
            ("cuda_rnn_persistent", "patches"),
            ("cuda_rnn_persistent_backward_data", "rnn_fwd"),
            ("cuda_rnn_backward_data", "rnn_fwd"),
            ("cuda_rnn_backward_weights", "rnn_fwd"),
            ("cuda_rnn_backward_weights_16bit", "rnn_fwd"),
        )
    },
    "cuda_grid_sample.layout": declined("cuda_grid_sample", in_bits("grid_sample"), H200),
    "cuda_grid_sample_backward.layout": declined("cuda_grid_sample_backward", in_bits("grid_sample_bwd"), H200),
    "cuda_im2col.layout": declined("cuda_im2col", in_bits("patches"), H200),
    "cuda_ctc_loss.layout": declined(
        "cuda_ctc_loss",
        extension(
            "ctc_loss",
            probs=tensor(1, (1, 1, 1), is_by_value=True),
            labels=tensor(2, (1, 5), "i32"),
            label_lengths=tensor(3, (1,), "i32"),
            input_lengths=tensor(4, (1,), "i32"),
            costs=tensor(5, (1,)),
            gradients=None,
        ),
        H200,
    ),
    "cuda_rnn.layout": declined("cuda_rnn", by_value("rnn_fwd", "x"), H200),
    "cuda_rnn_persistent.layout": declined("cuda_rnn_persistent", by_value("rnn_fwd", "x"), H200),
    **{
        f"{engine}.layout": declined(engine, by_value(tag, "x"), H200)
        for engine, tag in (("cuda_rnn_16bit", "rnn_fwd"), ("cuda_rnn_backward_weights_16bit", "rnn_bwd_weights"))
    },
    **{
        f"{engine}.{rule}": declined(engine, recurrent(tag, kind, arithmetic=arithmetic), H200)
        for engine, tag in (("cuda_rnn_16bit", "rnn_fwd"), ("cuda_rnn_backward_weights_16bit", "rnn_bwd_weights"))
        for rule, kind, arithmetic in (("types", "f32", "f32"), ("arithmetic", "f16", "f64"))
    },
    "cuda_rnn_persistent_backward_data.layout": declined(
        "cuda_rnn_persistent_backward_data", by_value("rnn_bwd_data", "dy"), H200
    ),
    **{
        f"{engine}.{rule}": declined(engine, op, H200)
        for engine, tag in (("cuda_rnn_persistent", "rnn_fwd"), ("cuda_rnn_persistent_backward_data", "rnn_bwd_data"))
        for rule, op in too_large(tag).items()
    },
    "cuda_rnn_backward_data.layout": declined("cuda_rnn_backward_data", by_value("rnn_bwd_data", "dy"), H200),
    "cuda_rnn_backward_weights.layout": declined("cuda_rnn_backward_weights", by_value("rnn_bwd_weights", "x"), H200),
    "cuda_norm_forward.direction": declined("cuda_norm_forward", operation("norm_bwd"), H200),
    "cuda_norm_backward.direction": declined("cuda_norm_backward", operation("norm_fwd"), H200),
    "cuda_implicit_gemm.coordinates": declined("cuda_implicit_gemm", distant(), H200),
    **{f"cuda_fp8_upcast.{rule}": case for rule, case in widened_cases()},
    **{f"cuda_materialized_prologue.{rule}": case for rule, case in ahead_cases()},
    **{f"cuda_layout_transform.{rule}": case for rule, case in turned_cases()},
    **{f"cuda_group_packing.{rule}": case for rule, case in joined_cases()},
    **{
        f"{engine}.{rule}": case
        for engine in ("cuda_space_to_depth", "cuda_space_to_depth_tf32", "cuda_space_to_depth_bf16x3")
        for rule, case in apart_cases(engine)
    },
    **{f"cuda_stride_fold.{rule}": case for rule, case in paired_cases()},
    "engine.rewrite": broken_rewrite(),
    **{
        f"{engine}.{rule}": case
        for engine in ("cuda_depthwise", "cuda_depthwise_wgrad")
        for rule, case in depthwise_cases(engine)
    },
    **{
        f"{name}.{rule}": case
        for name, kinds in {
            "cuda_hopper_bf16x3_wgrad": ("f32", "f16"),
            "cuda_hopper_bf16x2_wgrad": ("f32", "f16"),
            "cuda_hopper_int_limbs_wgrad": ("i16", "f32"),
        }.items()
        for rule, case in limb_wgrad_cases(name, *kinds)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_gemm", *(f"cuda_hopper_gemm_{kind}" for kind in ("tf32", "fp8", "fp8_fast")))
        for rule, case in hopper_cases(name)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_int_limbs", "cuda_hopper_bf16x3")
        for rule, case in limb_cases(name)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_matmul", *(f"cuda_hopper_matmul_{kind}" for kind in ("tf32", "fp8", "fp8_fast")))
        for rule, case in hopper_matmul_cases(name)
    },
    "cuda_resample_backward.coordinates": declined("cuda_resample_backward", uneven(), H200),
    "cuda_view.layout": declined("cuda_view", operation("transpose"), H200),
    "cuda_fft_tiling.filter": declined("cuda_fft_tiling", wide_filter(), H200),
    "cuda_matmul_cublas.library": without("cublas", "cuda_matmul_cublas"),
    "cuda_explicit_gemm.library": without("cublas", "cuda_explicit_gemm"),
    "cuda_fft.cublas": without("cublas", "cuda_fft"),
    "cuda_fft.cufft": without("cufft", "cuda_fft"),
    "cuda_fft_tiling.cublas": without("cublas", "cuda_fft_tiling"),
    "cuda_fft_tiling.cufft": without("cufft", "cuda_fft_tiling"),
}
