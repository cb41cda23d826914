"""The problems whose kernels are compiled: each family of operations in its types, layouts and chains."""

from __future__ import annotations

from extension_cases import extension_named
from random_problems.families import Case, draw
from random_problems.graph_sketch import Problem
from random_problems.run_and_compare import Prepared

from graphdnn.problem import parse

TEXTS = (
    # The layers that matter, in the types that matter.
    "conv x=f16[32,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu",
    "conv x=bf16[32,64,56,56]nhwc w=bf16[256,64,1,1]nhwc + bias + residual + relu",
    "conv x=f16[32,64,56,56] w=f16[64,64,3,3] pad=1 + bias + relu",
    "conv x=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc pad=1 + relu",
    "dgrad dy=f32[8,64,56,56]nhwc w=f32[64,64,3,3]nhwc dx=[8,64,56,56] pad=1",
    "conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1",
    "conv x=f64[2,16,28,28] w=f64[32,16,3,3] pad=1",
    "conv x=e4m3[8,64,28,28]nhwc w=e4m3[64,64,3,3]nhwc pad=1 out=f16 + bias",
    "conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3]nhwc pad=1 compute=i32 out=i32",
    "conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3]nhwc pad=1 compute=i32 out=i8 + relu",
    "conv x=f16[32,256,28,28]nhwc w=f16[256,8,3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[32,448,28,28]nhwc w=f16[448,112,3,3]nhwc pad=1 + bias + relu",
    "dgrad dy=f16[32,448,28,28]nhwc w=f16[448,112,3,3]nhwc dx=[32,448,28,28] pad=1",
    "wgrad x=f16[32,256,28,28]nhwc dy=f16[32,256,28,28]nhwc dw=[256,8,3,3] pad=1",
    "matmul a=f16[4096,4096] b=f16[4096,1] + bias",
    "conv x=i16[1,1,64,64] w=i16[8,1,16,16] compute=i32 out=i32",
    "conv x=i16[1,1,64,64] w=i16[8,1,16,16] compute=i64 out=i64",
    "conv x=f16[32,3,224,224]nhwc w=f16[64,3,7,7]nhwc pad=3 stride=2",
    "conv x=f32[32,3,224,224]nhwc w=f32[64,3,7,7]nhwc pad=3 stride=2",
    "conv x=f16[16,96,112,112]nhwc w=f16[96,1,3,3]nhwc pad=1 + bias + clip(0,6)",
    "conv x=f16[16,96,112,112]nhwc w=f16[96,1,5,5]nhwc pad=2 stride=2",
    "conv x=f16[16,96,56,56] w=f16[96,1,3,3] pad=1 + bias + relu",
    "conv x=f16[4,128,28,28]nhwc w=f16[128,4,3,3]nhwc pad=1",
    "conv x=f16[2,32,8,28,28]nhwc w=f16[64,32,3,3,3]nhwc pad=1 spatial=3",
    "conv x=f32[8,64,300] w=f32[64,64,3] pad=1 spatial=1 dil=2",
    "dgrad dy=f16[32,64,56,56]nhwc w=f16[64,64,3,3]nhwc dx=[32,64,56,56] pad=1",
    "dgrad dy=f16[32,128,28,28]nhwc w=f16[128,64,3,3]nhwc dx=[32,64,56,56] pad=1 stride=2",
    "dgrad dy=f32[8,64,28,28] w=f32[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2",
    "dgrad dy=f32[8,64,28,28]nhwc w=f32[64,64,3,3]nhwc dx=[8,64,56,56] pad=1 stride=2",
    "dgrad dy=f16[16,96,56,56]nhwc w=f16[96,1,3,3]nhwc dx=[16,96,56,56] pad=1",
    "dgrad dy=f16[32,64,112,112]nhwc w=f16[64,3,7,7]nhwc dx=[32,3,224,224] pad=3 stride=2",
    "wgrad x=f16[32,3,224,224]nhwc dy=f16[32,64,112,112]nhwc dw=[64,3,7,7] pad=3 stride=2",
    "wgrad x=f16[32,64,56,56]nhwc dy=f16[32,64,56,56]nhwc dw=[64,64,3,3] pad=1",
    "wgrad x=f32[8,32,56,56] dy=f32[8,64,28,28] dw=[64,32,3,3] pad=1 stride=2",
    "wgrad x=i16[8,64,28,28]nhwc dy=i16[8,96,28,28]nhwc dw=[96,64,3,3] pad=1 compute=i64 out=i64",
    "wgrad x=i8[8,64,28,28]nhwc dy=u8[8,96,28,28]nhwc dw=[96,64,3,3] pad=1 compute=i32 out=i32",
    "wgrad x=f16[16,96,56,56]nhwc dy=f16[16,96,56,56]nhwc dw=[96,1,3,3] pad=1",
    "conv x=f16[8,64,56,56]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + relu -> reduce add [1,64,1,1]",
    "conv x=f16[8,3,224,224]nhwc w=f16[768,3,16,16]nhwc stride=16 + bias",
    "dgrad dy=f32[2,64,28,28]nhwc w=f32[64,32,2,2]nhwc dx=[2,32,56,56] stride=2 + bias",
    "wgrad x=f16[8,96,56,56]nhwc dy=f16[8,192,28,28]nhwc dw=[192,96,2,2] stride=2",
    "matmul a=f16[8,1024,512] b=f16[8,512,768] + bias + gelu",
    "matmul a=bf16[1,4096,4096] b=bf16[1,4096,4096]",
    "matmul a=f32[4,300,500] b=f32[4,500,200] + bias",
    "matmul a=f64[2,100,100] b=f64[2,100,100]",
    "matmul a=i8[1,512,512] b=i8[1,512,512] compute=i32 out=i32",
    "matmul a=e4m3[1,512,512] b=e4m3[1,512,512] out=f16",
    "pointwise x=f32[8,64,56,56] + mul + tanh",
    "pointwise x=f16[8,64,56,56]nhwc + scale + bias + gelu",
    "pointwise x=bf16[8,64,56,56]nhwc + residual + swish",
    "pointwise x=f64[100,100] + exp + erf",
    "reduce add x=f32[8,64,56,56] y=[1,64,1,1]",
    "reduce add x=f16[64,1000] y=[64,1]",
    "reduce max x=f32[1000000] y=[1]",
    "reduce norm2 x=bf16[64,128,28,28]nhwc y=[1,128,1,1]",
    "pool max x=f16[32,64,112,112]nhwc window=3 stride=2 pad=1",
    "pool avg x=f32[32,64,28,28] window=2 stride=2",
    "norm layer x=f16[4096,1024]",
    "norm batch x=f32[32,64,56,56]nhwc",
)  # fmt: skip
# (family, seeds): what has no one-line text, and every mode and operator.
DRAWN = {
    "pointwise": range(0, 60, 4), "pointwise_graph": range(3), "conversion": range(8), "mask": range(2),
    "reduction": range(9), "statistics": range(8), "matmul": range(2), "matmul_int": range(2),
    "resample": range(12), "pool_apart": range(6), "norm": range(12), "softmax": range(3), "attention": range(4), "gradient": range(2), "movement": range(8), "rng": range(4),
    "conv_fprop": range(2), "conv_dgrad": range(2), "conv_wgrad": range(2),
    "conv_fprop_int": range(2), "conv_dgrad_int": range(2), "conv_wgrad_int": range(2),
}  # fmt: skip
# What no text and no family has; "f16" is of recurrent networks that tensor cores take.
EXTENSIONS = (
    "grid_sample", "grid_sample_bwd", "patches", "rnn_fwd", "rnn_bwd_data", "rnn_bwd_weights", "rnn_fwd f16",
    "rnn_bwd_data f16", "rnn_bwd_weights f16", "ctc_loss",
)  # fmt: skip
CASES = [Case(family, seed, large=True) for family, seeds in DRAWN.items() for seed in seeds]


def prepared_problem(what: str | Case) -> Prepared:
    if isinstance(what, Case):
        return Prepared.of(draw(what))
    if what in EXTENSIONS:
        return Prepared.of(Problem((extension_named(what),), {}))
    return Prepared.of(Problem(tuple(parse(what).build_operation_graph().operations), {}))
