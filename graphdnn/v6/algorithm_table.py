"""What the manuals say of each convolution algorithm: name | axes | promise | types | x | y | limits.

*Promise*: whether equal inputs give equal bits on every run. *Types*: H pseudo half, F float, D double, T true half,
I integers; ``:1`` behind the last letter: that one only where a side of the filter is 1, ``:3``: only for 3x3. *x*,
*y*: formats of the tensor on the image's side and on the other; ``any`` leaves out NCHW_VECT_C. *Limits* are the
algorithm's own: sides of filters, ``pad<filter``, ``stride=1``, ``dilation=1``, ``padded<=256``, ``line`` (images of
one row or column); but ``dilation:6.0``: 6.0 did not dilate, 7.3 did, and ``NHWC``: also with NHWC filters and
packed NHWC tensors of H and F. Sources: the manual of 5.1, the headers of 6.0, the guide of 7.5.
"""

from __future__ import annotations

TEXT = """\
FWD_ALGO_IMPLICIT_GEMM | 2 | same | HFD | any | any | NHWC
FWD_ALGO_IMPLICIT_PRECOMP_GEMM | 2 | same | HFDTI | any | any | dilation:6.0
FWD_ALGO_GEMM | 2 | same | HFD | any | any | dilation:6.0
FWD_ALGO_FFT | 2 | same | HF | HW | HW | padded<=256 stride=1 dilation=1 pad<filter
FWD_ALGO_FFT_TILING | 2 | same | HFD:1 | HW | HW | filter<=32 stride=1 dilation=1 pad<filter
FWD_ALGO_WINOGRAD | 2 | same | HF | any | any | filter=3 stride=1 dilation=1
FWD_ALGO_WINOGRAD_NONFUSED | 2 | same | HFT:3 | any | any | filter=3,5 stride=1 dilation=1
FWD_ALGO_IMPLICIT_GEMM | 3 | same | HFD | any | any | -
FWD_ALGO_IMPLICIT_PRECOMP_GEMM | 3 | same | HFD | packed | packed | dilation:6.0
FWD_ALGO_FFT_TILING | 3 | same | HFD | HW | HW | filter<=16 stride=1 dilation=1 pad<filter
BWD_FILTER_ALGO_0 | 2 | varies | HFD | any | CHW | NHWC
BWD_FILTER_ALGO_1 | 2 | same | HFD | any | CHW | NHWC dilation:6.0
BWD_FILTER_ALGO_FFT | 2 | same | HF | CHW | CHW | padded<=256 stride=1 dilation=1 pad<filter
BWD_FILTER_ALGO_3 | 2 | varies | HFD | any | CHW | dilation:6.0
BWD_FILTER_ALGO_WINOGRAD_NONFUSED | 2 | same | HF | any | CHW | filter=3,5 stride=1 dilation=1
BWD_FILTER_ALGO_FFT_TILING | 2 | same | HFD | CHW | CHW | line stride=1 dilation=1 pad<filter
BWD_FILTER_ALGO_0 | 3 | varies | HFD | any | CHW | -
BWD_FILTER_ALGO_3 | 3 | varies | HFD | packed | packed | dilation:6.0
BWD_DATA_ALGO_0 | 2 | varies | HFD | any | CHW | -
BWD_DATA_ALGO_1 | 2 | same | HFD | any | CHW | NHWC dilation:6.0
BWD_DATA_ALGO_FFT | 2 | same | HF | HW | CHW | padded<=256 stride=1 dilation=1 pad<filter
BWD_DATA_ALGO_FFT_TILING | 2 | same | HFD:1 | HW | CHW | filter<=32 stride=1 dilation=1 pad<filter
BWD_DATA_ALGO_WINOGRAD | 2 | same | HF | any | CHW | filter=3 stride=1 dilation=1
BWD_DATA_ALGO_WINOGRAD_NONFUSED | 2 | same | HF | any | CHW | filter=3,5 stride=1 dilation=1
BWD_DATA_ALGO_0 | 3 | varies | HFD | any | CHW | -
BWD_DATA_ALGO_1 | 3 | same | HFD | packed | packed | dilation:6.0
BWD_DATA_ALGO_FFT_TILING | 3 | same | HFD | HW | CHW | filter<=16 stride=1 dilation=1 pad<filter
"""

# Matrix products that write no patches to memory: the one that is predicted to be the fastest.
_IMPLICIT = (
    "cuda_hopper_gemm", "cuda_hopper_halo", "cuda_hopper_halo_wgrad", "cuda_hopper_bf16x3", "cuda_hopper_bf16x3_wgrad",
    "cuda_direct", "cuda_direct_wgrad", "cuda_direct_stem", "cuda_direct_stem_fp32",
    "cuda_direct_stem_dgrad", "cuda_direct_stem_wgrad", "cuda_mma_gemm", "cuda_implicit_gemm",
)  # fmt: skip

# Which engines of a GPU stand for an algorithm: the fastest of the first names that serves, else of the next ones;
# where none does, the ranking decides.
DEVICE_ENGINES: dict[str, tuple[tuple[str, ...], ...]] = {
    "IMPLICIT_GEMM": (("cuda_implicit_gemm",),),
    "IMPLICIT_PRECOMP_GEMM": (_IMPLICIT,),
    "GEMM": (("cuda_explicit_gemm",),),
    "FFT": (("cuda_fft",),),
    "FFT_TILING": (("cuda_fft_tiling",),),
    "WINOGRAD": (("cuda_winograd",),),
    "WINOGRAD_NONFUSED": (("cuda_winograd_4x4",), ("cuda_winograd",)),
    "0": (("cuda_implicit_gemm",),),
    "1": (_IMPLICIT,),
    "3": (("cuda_explicit_gemm",),),
}

# On the host all are blocks of a matrix product; an algorithm that has no workspace is a product without one.
HOST_ENGINES = (("numpy_blocked",), ("numpy",))
HOST_ENGINES_WITHOUT_WORKSPACE = HOST_ENGINES[::-1]
# These ask for no workspace, so that one is left for callers who have none. Where a GPU has no plan without one (copies
# of odd layouts), their calls allocate it.
OWN_MEMORY = ("IMPLICIT_GEMM", "0")
