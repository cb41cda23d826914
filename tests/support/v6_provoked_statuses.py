"""``PROVOKED``: for each documented condition of the legacy calls, what differs from legal arguments, and the rule."""

from __future__ import annotations

import numpy as np
from test_v6_statuses import (
    FIVE_GAPS,
    GAPS_2D,
    IDENTITY,
    INT,
    NEGATIVE,
    OTHER,
    SIX,
    TANH,
    VOLUMES,
    WIDE,
    op_tensor,
    reduce_tensor,
)
from v6_status_cases import (
    CHANNELS,
    DIFFERENT_RANKS,
    DOUBLE,
    INT8,
    INT8X4,
    INT32,
    OUT_OF_RANGE,
    PARAMETERS,
    RANKS,
    RELU,
    TYPES,
    TYPES_OF_ALL,
    UNEVEN,
    VECT,
    WRONG_CONVOLUTION,
    WRONG_OUTPUT,
    Make,
    activations,
    case,
    cases,
    data_of_in_place,
    descriptors,
    each,
    filters,
    fitting,
    flat,
    images,
    in_profile,
    integers,
    invalid,
    limited,
    no_axes,
    null,
    parts,
    plane,
    small_rank,
    unset,
)
from v6_tools import activation, convolution, pooling

from graphdnn import v6

NINE = {"dimA": [1] * 9, "strideA": [1] * 9, "filterDimA": [1] * 9}
PROVOKED: dict[tuple[str, str], Make] = {
    # descriptors
    ("BAD_PARAM", "any of n,c,h,w negative (zero is also rejected on later libraries)"): each(
        "v6.extent", "[nchw]", -1, 0
    ),
    ("BAD_PARAM", "any size or stride negative (zero size also rejected)"): each("v6.extent", "[nchw](Stride)?", -1, 0),
    ("BAD_PARAM", "format or dataType not a valid enumerant"): invalid("format", "dataType"),
    ("BAD_PARAM", "dataType not a valid enumerant"): invalid("dataType"),
    ("BAD_PARAM", "dataType or format not a valid enumerant"): invalid("dataType", "format"),
    ("BAD_PARAM", "INT8x4 with a classic format, or NCHW_VECT_C with a non-vector type"): cases(
        case("v6.tensor.vector", dataType=INT8X4, c=4), case("v6.tensor.vector", format=VECT),
        case("v6.tensor.vector", format=VECT, dataType=INT8),
    ),
    ("BAD_PARAM", "NCHW_VECT_C with c not a multiple of 4"): case("v6.tensor.vector", format=VECT, dataType=INT8X4, c=6),
    ("BAD_PARAM", "any dimA entry <= 0"): each("v6.extent", "dimA", [1, 0, 1, 1], [1, 1, -1, 1]),
    ("BAD_PARAM", "descriptor not allocated or a parameter invalid"): cases(
        null("tensorDesc"), invalid("format", "dataType"), each("v6.extent", "dimA", [1, 0, 1, 1]),
        case("v6.count", dimA=[1, 1, 1]),
    ),
    ("BAD_PARAM", "tensorDesc or nbDims NULL"): null("tensorDesc"),
    ("BAD_PARAM", "descriptor or size pointer NULL"): null("tensorDesc"),
    ("BAD_PARAM", "any filter dim negative"): cases(
        each("v6.extent", "[kchw]", -1, 0), each("v6.extent", "filterDimA", [1, -1, 1, 1], [1, 1, 1, 0])
    ),
    ("BAD_PARAM", "nbDimsRequested negative"): case("v6.extent", nbDimsRequested=-1),
    ("BAD_PARAM", "handle NULL"): null("handle"),
    ("BAD_PARAM", "handle invalid; count NULL"): descriptors,
    ("BAD_PARAM", "argument invalid"): cases(descriptors, invalid("mode")),
    ("BAD_PARAM", "descriptor NULL or an enumerant invalid"): cases(
        null("opTensorDesc"), invalid("opTensorOp", "opTensorCompType", "opTensorNanOpt")
    ),
    ("BAD_PARAM", "reduceTensorDesc NULL"): null("reduceTensorDesc"),
    ("BAD_PARAM", "reduceTensorDesc NULL, or op/compType/nanOpt/indices/indicesType invalid"): cases(
        null("reduceTensorDesc"),
        invalid("reduceTensorOp", "reduceTensorCompType", "reduceTensorNanOpt", "reduceTensorIndices",
                "reduceTensorIndicesType"),
    ),
    ("BAD_PARAM", "a descriptor or the size pointer NULL/uninitialised"): descriptors,
    ("BAD_PARAM", "convDesc NULL"): null("convDesc"),
    ("BAD_PARAM", "convDesc or mathType invalid"): cases(descriptors, invalid("mathType")),
    ("BAD_PARAM", "convDesc invalid; groupCount < 1"): cases(descriptors, each("v6.extent", "groupCount", 0, -1)),
    ("BAD_PARAM", "a pad < 0"): cases(each("v6.extent", "pad_[hw]", -1), each("v6.extent", "padA", [0, -1])),
    ("BAD_PARAM", 'a stride <= 0 (5.1 manual: only "negative")'): each("v6.extent", "[uv]", 0, -1),
    ("BAD_PARAM", "a stride <= 0"): each("v6.extent", "filterStrideA", [1, 0], [-1, 1]),
    ("BAD_PARAM", "dilation <= 0 (6.0+)"): each("v6.extent", "dilation_[hw]", 0, -1),
    ("BAD_PARAM", "a dilation <= 0 (6.0+)"): each("v6.extent", "dilationA", [1, 0], [-1, 1]),
    ("BAD_PARAM", "computeType invalid"): invalid("computeType"),
    ("BAD_PARAM", "mode or computeType invalid"): invalid("mode", "computeType"),
    ("BAD_PARAM", "arrayLength negative"): case("v6.extent", arrayLength=-1),
    ("BAD_PARAM", "arrayLengthRequested negative"): case("v6.extent", arrayLengthRequested=-1),
    ("BAD_PARAM", "mode invalid"): lambda row: activations(row) if row.family == "activation" else invalid("mode")(row),
    ("BAD_PARAM", "mode or maxpoolingNanOpt invalid"): invalid("mode", "maxpoolingNanOpt"),
    ("BAD_PARAM", "mode or reluNanOpt invalid"): invalid("mode", "reluNanOpt"),
    ("BAD_PARAM", "a window, padding or stride entry negative"): each("v6.extent", "(window|padding|stride)(Dim)?A", [1, -1, 1, 1]),
    ("BAD_PARAM", "window or stride value negative"): each("v6.extent", "window(Height|Width)|(vertical|horizontal)Stride", -1),
    ("BAD_PARAM", "window or stride value negative (zero rejected later)"): each(
        "v6.extent", "window(Height|Width)|(vertical|horizontal)Stride", -1, 0
    ),
    ("BAD_PARAM", "lrnN outside 1..16, lrnK < 1e-5 or lrnBeta < 0.01"): cases(
        each("v6.range", "lrnN", 0, 17), each("v6.range", "lrnK", 9e-6), each("v6.range", "lrnBeta", 9e-3)
    ),
    ("BAD_PARAM", "dataType or samplerType invalid"): invalid("dataType", "samplerType"),
    ("BAD_PARAM", "stDesc or dimA NULL"): null("stDesc", "dimA"),
    ("BAD_PARAM", "rank of xDesc outside 4..5"): each("v6.rank", "xDesc", SIX, flat(3)),
    # extents of results
    ("BAD_PARAM", "a descriptor was not created/set"): cases(unset(), null("convDesc", ".*Desc")),
    ("BAD_PARAM", "a descriptor NULL"): null(".*Desc"),
    ("BAD_PARAM", "x channel count != filter channel count (times group count from 7.0)"): cases(
        case("v6.dims", filterDesc=filters(1, 2, 1, 1)), case("v6.dims", convDesc=convolution(groups=2))
    ),
    ("BAD_PARAM", "channel counts differ"): case("v6.dims", filterDesc=filters(1, 2, 1, 1)),
    ("BAD_PARAM", "filter rank != input rank"): case("v6.dims", filterDesc=filters(1, 1, 1, 1, 1)),
    ("BAD_PARAM", "conv spatial rank != input rank - 2"): case(
        "v6.dims", convDesc=convolution((0,) * 3, (1,) * 3, (1,) * 3)
    ),
    ("BAD_PARAM", "nbDims negative or > input rank"): each("v6.rank", "nbDims", -1, 5),
    ("BAD_PARAM", "(dilated) filter larger than padded input in some dim"): cases(
        case("v6.dims", filterDesc=filters(1, 1, 2, 1)),
        case("v6.dims", inputTensorDesc=plane(1, 1, 1, 4), filterDesc=filters(1, 1, 1, 3), convDesc=convolution(dilation=(1, 2))),
    ),
    ("BAD_PARAM", "poolingDesc not set"): unset("poolingDesc"),
    ("BAD_PARAM", "pooling rank is not 2 or input rank is not 4"): cases(
        case("v6.dims", inputTensorDesc=plane(1, 1, 1, 1, 1)),
        case("v6.dims", poolingDesc=pooling(0, (1,) * 3, (0,) * 3, (1,) * 3)),
    ),
    ("BAD_PARAM", "nbDims inconsistent with pooling rank + 2 / input rank"): cases(
        each("v6.rank", "nbDims", 3, 5), case("v6.dims", poolingDesc=pooling(0, (1,) * 3, (0,) * 3, (1,) * 3))
    ),
    # utilities
    ("BAD_PARAM", "a pointer is NULL"): null("y|yDesc|valuePtr|alpha|handle"),
    ("BAD_PARAM", "shapes differ"): each("v6.dims", "yDesc", WIDE),
    ("BAD_PARAM", "data types differ (later libraries do convert types)"): case("v6.data_type", yDesc=OTHER),
    ("BAD_PARAM", "an A dim is neither 1 nor equal to the C dim"): case("v6.dims", aDesc=WIDE),
    ("BAD_PARAM", "A and C data types differ"): case("v6.data_type", aDesc=OTHER),
    ("BAD_PARAM", "A and B data types differ"): case("v6.data_type", aDesc=OTHER),
    ("BAD_PARAM", "A dims differ from C dims"): case("v6.dims", aDesc=WIDE),
    ("BAD_PARAM", "a B dim is neither 1 nor equal to the C dim"): case("v6.dims", bDesc=WIDE),
    ("BAD_PARAM", "C data type unknown"): unset("cDesc"),
    ("BAD_PARAM", "C is DOUBLE but A/B are not"): case("v6.data_type", cDesc=plane(1, 1, 1, 1, kind=DOUBLE)),
    ("BAD_PARAM", "B aliases C while A does not"): lambda row: (
        lambda one: [({"B": one, "C": one, "A": one.copy()}, "v6.alias")]
    )(np.ones(1, np.float32)),
    ("BAD_PARAM", "a C dim is neither 1 nor the A dim"): case("v6.dims", cDesc=plane(1, 1, 1, 3)),
    ("BAD_PARAM", "no dim is reduced, i.e. C shape equals A shape"): case("v6.dims", aDesc=plane(1, 1, 1, 1)),
    ("BAD_PARAM", "type rules unmet: DOUBLE only with DOUBLE; HALF and INT8 may mix with FLOAT"): cases(
        case("v6.data_type", cDesc=plane(1, 1, 1, 1, kind=DOUBLE)), case("v6.data_type", aDesc=plane(1, 1, 1, 2, kind=DOUBLE))
    ),
    ("BAD_PARAM", "indices requested for an op other than MIN/MAX"): case(
        "v6.reduce.indices", reduceTensorDesc=reduce_tensor(0, 1, op=0), indices=np.ones(4, np.uint8), indicesSizeInBytes=4
    ),
    ("BAD_PARAM", "a required pointer NULL"): null("handle|reduceTensorDesc|aDesc|A|cDesc|C|alpha|beta"),
    ("INVALID_VALUE", "indices buffer or workspace smaller than the queried size"): case(
        "v6.buffer", reduceTensorDesc=reduce_tensor(0, 1), indices=np.ones(4, np.uint8), indicesSizeInBytes=3
    ),
    ("INVALID_VALUE", "property type unknown"): invalid("type"),
    ("NOT_INITIALIZED", "handle is not a live context"): descriptors,
    ("MAPPING_ERROR", "stream belongs to another context"): case("v6.stream", streamId=1 << 30),
    # convolution
    ("BAD_PARAM", "handle or a descriptor NULL"): null("handle", ".*Desc"),
    ("BAD_PARAM", "handle or a descriptor invalid"): descriptors,
    ("BAD_PARAM", "handle, a descriptor or an output pointer NULL"): null("handle", ".*Desc"),
    ("BAD_PARAM", "same list as GetConvolutionForwardAlgorithm"): cases(null("handle", ".*Desc"), WRONG_CONVOLUTION, small_rank),
    ("BAD_PARAM", "y or w rank differs from x rank"): DIFFERENT_RANKS,
    ("BAD_PARAM", "x, y, w types not all equal (obsolete for INT8_EXT in 6.0)"): TYPES,
    ("BAD_PARAM", "channel counts of x and w differ"): CHANNELS,
    ("BAD_PARAM", "x rank < 3"): small_rank,
    ("BAD_PARAM", "w rank < 3"): small_rank,
    ("BAD_PARAM", "a tensor/filter descriptor has fewer than 1 dim"): no_axes,
    ("BAD_PARAM", "requestedAlgoCount < 1"): each("v6.extent", "requestedAlgoCount", 0, -1),
    ("BAD_PARAM", "requestedAlgoCount <= 0"): each("v6.extent", "requestedAlgoCount", 0, -1),
    ("BAD_PARAM", "one of the three data pointers NULL"): null("x|y|w|dx|dy|dw"),
    ("BAD_PARAM", "feature-map counts inconsistent"): CHANNELS,
    ("BAD_PARAM", "feature-map counts or types inconsistent"): cases(CHANNELS, TYPES),
    ("BAD_PARAM", "data types of tensors and filter differ"): TYPES_OF_ALL,
    ("BAD_PARAM", "any of handle, xDesc, wDesc, convDesc, yDesc, x, w, y, alpha, beta NULL"): null(
        "handle|.Desc|convDesc|x|w|y|alpha|beta"
    ),
    ("BAD_PARAM", "any of handle, dyDesc, wDesc, convDesc, dxDesc, dy, w, dx, alpha, beta NULL"): null(
        "handle|d?.Desc|convDesc|dy|w|dx|alpha|beta"
    ),
    ("BAD_PARAM", "any of handle, xDesc, dyDesc, convDesc, dwDesc, x, dy, dw, alpha, beta NULL"): null(
        "handle|d?.Desc|convDesc|dy|x|dw|alpha|beta"
    ),
    ("BAD_PARAM", "rank of x and y, or of x and w, differ"): DIFFERENT_RANKS,
    ("BAD_PARAM", "rank of w differs from dy or dx"): DIFFERENT_RANKS,
    ("BAD_PARAM", "rank of x differs from dy or dw"): DIFFERENT_RANKS,
    ("BAD_PARAM", "x rank != conv spatial rank + 2"): parts("v6.dims", convDesc=fitting(5)["convDesc"]),
    ("BAD_PARAM", "channel counts of x and w differ; per group from 7.0"): cases(
        CHANNELS, parts("v6.dims", convDesc=convolution(groups=2))
    ),
    ("BAD_PARAM", "channel counts of w and dx differ"): CHANNELS,
    ("BAD_PARAM", "channel counts of x and dw differ"): CHANNELS,
    ("BAD_PARAM", "output channels of y or w not a multiple of the group count (7.0+)"): parts(
        "v6.dims", convDesc=convolution(groups=2), x=plane(1, 2, 1, 1), w=filters(3, 1, 1, 1), y=plane(1, 3, 1, 1)
    ),
    ("BAD_PARAM", "types of x, w, y unequal (INT8_EXT/INT8x4_EXT allow y FLOAT in 6.0)"): TYPES,
    ("BAD_PARAM", "types of w, dx, dy differ"): TYPES_OF_ALL,
    ("BAD_PARAM", "types of x, dy, dw differ"): TYPES_OF_ALL,
    ("BAD_PARAM", "(dilated) filter larger than padded input in a spatial dim"): UNEVEN,
    ("BAD_PARAM", "spatial dims of dy are not the forward output dims"): WRONG_OUTPUT,
    ("BAD_PARAM", "everything cudnnConvolutionForward rejects"): cases(
        WRONG_CONVOLUTION, small_rank, null("handle|.Desc|convDesc|x|w|y|alpha1|alpha2")
    ),
    ("BAD_PARAM", "zDesc, z, biasDesc, bias or activationDesc NULL"): null("z|zDesc|bias|biasDesc|activationDesc"),
    ("BAD_PARAM", "zDesc does not match yDesc"): cases(case("v6.dims", zDesc=WIDE), case("v6.data_type", zDesc=OTHER)),
    ("BAD_PARAM", "channel dim of biasDesc differs from the K of the filter"): case("v6.dims", biasDesc=WIDE),
    ("BAD_PARAM", "channel counts of dy and db differ"): case("v6.dims", dyDesc=WIDE),
    ("BAD_PARAM", "db dims other than channel are not 1"): case("v6.dims", dbDesc=plane(1, 1, 1, 2)),
    ("BAD_PARAM", "data types differ"): case("v6.data_type", dbDesc=OTHER),
    ("BAD_PARAM", "x or colBuffer NULL"): null("x|colBuffer"),
    ("NOT_SUPPORTED", "a negative tensor stride"): each("v6.strides.negative", "[xy]Desc", NEGATIVE),
    ("NOT_SUPPORTED", "negative tensor stride"): each("v6.strides.negative", "(x|dy)Desc", NEGATIVE),
    ("NOT_SUPPORTED", "negative stride in dy or dx"): each("v6.strides.negative", "d[xy]Desc", NEGATIVE),
    ("NOT_SUPPORTED", "rank of x, w or y not 4 or 5"): RANKS,
    ("NOT_SUPPORTED", "rank of dy, w or dx not 4 or 5"): RANKS,
    ("NOT_SUPPORTED", "rank of x, dy or dw not 4 or 5"): RANKS,
    ("NOT_SUPPORTED", "spatial dims of y are not the computed output dims (a 9.x library answers BAD_PARAM)"): in_profile(
        "v6.dims", yDesc=plane(1, 1, 1, 2)
    ),
    ("NOT_SUPPORTED", "the chosen algo does not cover the parameters"): limited,
    ("NOT_SUPPORTED", "algo does not cover the parameters"): limited,
    ("NOT_SUPPORTED", "the algo cannot run this descriptor combination"): limited,
    ("NOT_SUPPORTED", "data-type configuration not in the table"): cases(
        in_profile("v6.profile.configuration", convDesc=convolution(compute=DOUBLE)),
        in_profile("v6.profile.configuration", yDesc=plane(1, 1, 1, 1, kind=INT32)),
    ),
    ("NOT_SUPPORTED", "any integer type (6.0+)"): cases(
        lambda row: [({**dict.fromkeys(set(images(row)) - {images(row)[1]}, plane(1, 1, 1, 1, kind=INT8)),
                       images(row)[1]: filters(1, 1, 1, 1, kind=INT8), "convDesc": convolution(compute=INT32),
                       "PROFILE": True}, "v6.profile.algorithm.types")],
    ),
    ("NOT_SUPPORTED", "everything cudnnConvolutionForward does not support"): cases(limited, RANKS, each("v6.strides.negative", "[xy]Desc", NEGATIVE)),
    ("NOT_SUPPORTED", "activation mode not RELU (6.0); neither RELU nor IDENTITY (7.1+)"): cases(
        case("v6.mode", activationDesc=TANH), in_profile("v6.profile.enumerator", activationDesc=IDENTITY)
    ),
    ("NOT_SUPPORTED", "IDENTITY with an algo other than IMPLICIT_PRECOMP_GEMM (7.1+)"): in_profile(
        "v6.profile.enumerator", activationDesc=IDENTITY, algo=0
    ),
    ("NOT_SUPPORTED", "activation NaN option is not CUDNN_NOT_PROPAGATE_NAN"): case(
        "v6.mode", activationDesc=activation(RELU, nan=v6.CUDNN_PROPAGATE_NAN)
    ),
    ("NOT_SUPPORTED", "bias type is not the one of the type table"): in_profile("v6.profile.bias", biasDesc=OTHER),
    ("NOT_SUPPORTED", "channel stride of biasDesc is not 1"): in_profile("v6.profile.bias", biasDesc=GAPS_2D),
    ("NOT_SUPPORTED", "group count > 1 (7.x)"): case("v6.groups", convDesc=convolution(groups=2)),
    ("NOT_SUPPORTED", "integer data in any descriptor"): each("v6.floating", "xDesc", INT),
    ("NOT_SUPPORTED", "arrayLength > CUDNN_DIM_MAX"): case("v6.rank", arrayLength=9),
    ("NOT_SUPPORTED", "arrayLengthRequested > CUDNN_DIM_MAX"): case("v6.rank", arrayLengthRequested=9),
    ("NOT_SUPPORTED", "5.1 only: upscalex or upscaley other than 1"): lambda row: [
        ({p.name: 2, "computeType": ...}, "v6.convolution.upscale") for p in row.inputs if p.name.startswith("dilation")
    ],
    # tensors again
    ("NOT_SUPPORTED", "tensor spans more than 2 Gi elements including stride gaps"): case("v6.tensor.size", n=1 << 16, c=1 << 16),
    ("NOT_SUPPORTED", "tensor spans more than 2 Gi elements"): lambda row: [
        ({"n": 3, "nStride": 1 << 30} if "4d" in row.name else
         {"dimA": [3, 1, 1, 1], "strideA": [1 << 30, 1, 1, 1]} if "strideA" in [p.name for p in row.inputs] else
         {"dimA": [1 << 16, 1 << 16, 1, 1]}, "v6.tensor.size")
    ],
    ("NOT_SUPPORTED", "nbDims > CUDNN_DIM_MAX (8)"): lambda row: [
        ({"nbDims": 9, **{p.name: NINE[p.name] for p in row.inputs if p.name in NINE}}, "v6.rank")
    ],
    ("NOT_SUPPORTED", "nbDims too large"): case("v6.rank", nbDims=9, dimA=[1] * 9),
    ("NOT_SUPPORTED", "nbDims > CUDNN_DIM_MAX - 2"): case("v6.rank", nbDims=7),
    ("NOT_SUPPORTED", "nbDimsRequested > CUDNN_DIM_MAX"): case("v6.rank", nbDimsRequested=9),
    ("NOT_SUPPORTED", "fewer than 4 dims per the 7.5 guide, fewer than 3 in practice (RNN descriptors have 3)"): case(
        "v6.rank", nbDims=2
    ),
    ("NOT_SUPPORTED", "more than 5 dims"): lambda row: [
        ({p.name: SIX for p in row.inputs if p.kind == "TensorDescriptor"}, "v6.rank")
    ],
    ("NOT_SUPPORTED", "more than 8 dims"): case("v6.rank", aDesc=flat(9), cDesc=flat(9)),
    ("NOT_SUPPORTED", "opTensorCompType not DOUBLE for DOUBLE C, or not FLOAT otherwise"): cases(
        case("v6.compute_type", opTensorDesc=op_tensor(DOUBLE)),
        lambda row: [(dict.fromkeys(("aDesc", "bDesc", "cDesc"), plane(1, 1, 1, 1, kind=DOUBLE)), "v6.compute_type")],
    ),
    ("NOT_SUPPORTED", "reduceTensorCompType not the one required for the tensor types"): case(
        "v6.compute_type", reduceTensorDesc=reduce_tensor(DOUBLE)
    ),
    ("NOT_SUPPORTED", "64/16/8-bit index type"): lambda row: [
        ({"reduceTensorDesc": reduce_tensor(0, 1, index=i), "indices": np.ones(4, np.uint8), "indicesSizeInBytes": 4},
         "v6.reduce.indices") for i in (1, 2, 3)
    ],
    ("NOT_SUPPORTED", "configuration not covered"): integers,
    ("NOT_SUPPORTED", "configuration not covered; UINT8/INT32 data"): integers,
    ("NOT_SUPPORTED", "configuration not covered; integer data"): integers,
    # layers
    ("BAD_PARAM", "algo or mode invalid"): invalid("algo", "mode"),
    ("BAD_PARAM", "shapes of x and y differ"): case("v6.dims", yDesc=WIDE),
    ("BAD_PARAM", "shapes of y, dy, dx differ"): each("v6.dims", "d[xy]Desc", WIDE),
    ("BAD_PARAM", "strides of y and dy differ"): case("v6.strides", dyDesc=GAPS_2D),
    ("BAD_PARAM", "types differ"): each("v6.data_type", "(y|dx)Desc", OTHER),
    ("BAD_PARAM", "n or c of x and y differ"): cases(case("v6.dims", yDesc=WIDE), case("v6.dims", yDesc=plane(2, 1, 1, 1))),
    ("BAD_PARAM", "shape or strides of y and dy differ"): cases(
        case("v6.dims", dyDesc=WIDE), case("v6.strides", dyDesc=GAPS_2D)
    ),
    ("BAD_PARAM", "shape or strides of x and dx differ (printed as dxDesc twice)"): cases(
        case("v6.dims", dxDesc=WIDE), case("v6.strides", dxDesc=GAPS_2D)
    ),
    ("BAD_PARAM", "types not all equal"): lambda row: [
        ({"xDesc": OTHER, "dxDesc": OTHER}, "v6.data_type"), ({"dyDesc": OTHER, "yDesc": OTHER}, "v6.data_type"),
    ],
    ("NOT_SUPPORTED", "rank not 4 or 5"): case("v6.rank", xDesc=SIX, yDesc=SIX),
    ("NOT_SUPPORTED", "W stride of x or y not 1 (contradicts the all-formats note; NHWC is accepted by later libraries)"): cases(
        in_profile("v6.profile.pooling.stride", xDesc=GAPS_2D), in_profile("v6.profile.pooling.stride", yDesc=GAPS_2D)
    ),
    ("NOT_SUPPORTED", "W stride not 1"): lambda row: [
        ({"xDesc": GAPS_2D, "dxDesc": GAPS_2D, "PROFILE": True}, "v6.profile.pooling.stride"),
        ({"yDesc": GAPS_2D, "dyDesc": GAPS_2D, "PROFILE": True}, "v6.profile.pooling.stride"),
    ],
    ("BAD_PARAM", "IDENTITY mode (7.1+)"): lambda row: activations(row)[-1:],
    ("BAD_PARAM", "x and y are the same pointer but strides differ"): data_of_in_place("x", "y", "yDesc"),
    ("BAD_PARAM", "dy and dx are the same pointer but strides differ"): data_of_in_place("dy", "dx", "dxDesc"),
    ("NOT_SUPPORTED", "shapes of the tensors differ"): each("v6.dims", "(d?y|dx)Desc", WIDE),
    ("NOT_SUPPORTED", "types differ"): each("v6.data_type", "(d?y|dx)Desc", OTHER),
    ("NOT_SUPPORTED", "strides of y and dy differ"): case("v6.strides", dyDesc=GAPS_2D),
    ("NOT_SUPPORTED", "strides of x and dx differ"): case("v6.strides", dxDesc=GAPS_2D),
    ("BAD_PARAM", "x or y NULL"): null("x|y"),
    ("BAD_PARAM", "rank <= 2"): lambda row: [
        ({p.name: flat(2) for p in row.inputs if p.kind == "TensorDescriptor"}, "v6.rank")
    ],
    ("BAD_PARAM", "LRN parameters out of range"): OUT_OF_RANGE,
    ("BAD_PARAM", "5-D tensor not NCDHW DHW-packed"): lambda row: [
        ({p.name: FIVE_GAPS for p in row.inputs if p.kind == "TensorDescriptor"}, "v6.strides")
    ],
    ("NOT_SUPPORTED", "types of x and y differ"): case("v6.data_type", yDesc=OTHER),
    ("NOT_SUPPORTED", "shapes differ"): case("v6.dims", yDesc=WIDE),
    ("NOT_SUPPORTED", "shapes of x, y, dx, dy differ"): each("v6.dims", "(d?y|dx)Desc", WIDE),
    ("NOT_SUPPORTED", "negative stride"): each("v6.strides.negative", "d?[xy]Desc", NEGATIVE),
    ("BAD_PARAM", "x, y, temp or temp2 NULL"): null("x|y|temp2?"),
    ("BAD_PARAM", "x, dx, temp, temp2 or dy NULL"): null("x|dx|dy|temp2?"),
    ("BAD_PARAM", "rank outside 4..5"): lambda row: [
        ({p.name: wrong for p in row.inputs if p.kind == "TensorDescriptor"}, "v6.rank") for wrong in (SIX, flat(3))
    ],
    ("BAD_PARAM", "in place with differing strides"): data_of_in_place("x", "y", "yDesc"),
    ("BAD_PARAM", "alpha or beta NULL"): null("alpha|beta"),
    ("BAD_PARAM", "negative stride"): each("v6.strides.negative", "(x|y|dXdMeans)Desc", NEGATIVE),
    ("BAD_PARAM", "shapes of xDesc and dXdMeansDesc differ"): case("v6.dims", dXdMeansDesc=WIDE),
    ("NOT_SUPPORTED", "strides of x and y differ"): case("v6.strides", yDesc=GAPS_2D),
    ("NOT_SUPPORTED", "strides of inputs and outputs differ"): case("v6.strides", dXdMeansDesc=GAPS_2D),
    ("BAD_PARAM", "alpha, beta, x, y, bnScale or bnBias NULL"): null("alpha|beta|x|y|bnScale|bnBias"),
    ("BAD_PARAM", "alpha, beta, x, y, bnScale, bnBias, estimatedMean or estimatedVariance NULL"): null(
        "alpha|beta|x|y|bnScale|bnBias|estimatedMean|estimatedVariance"
    ),
    ("BAD_PARAM", "alpha/beta, x, dy, dx, bnScale or one of the two result pointers NULL"): null(
        "(alpha|beta).*|x|dy|dx|bnScale|resultBn.*"
    ),
    ("BAD_PARAM", "parameter tensor is not 1xCx1x1 (spatial) / 1xCxHxW (per activation), or the 5-D equivalent"): cases(
        each("v6.dims", PARAMETERS, WIDE), each("v6.dims", PARAMETERS, plane(1, 1, 1, 1, 1))
    ),
    ("BAD_PARAM", "exactly one of the running pair NULL"): each("v6.pair", "resultRunning.*", None),
    ("BAD_PARAM", "exactly one of the saved pair NULL"): each("v6.pair", "resultSave.*", None),
    ("BAD_PARAM", "exactly one of savedMean, savedInvVariance NULL"): each("v6.pair", "saved.*", None),
    ("BAD_PARAM", "epsilon < CUDNN_BN_MIN_EPSILON (1e-5)"): each("v6.range", "epsilon", 9e-6, 0.0, float("nan")),
    ("BAD_PARAM", "shape or type mismatch among the data tensors"): cases(
        each("v6.dims", "(d?y|dx)Desc", WIDE), each("v6.data_type", "(d?y|dx)Desc", OTHER)
    ),
    ("BAD_PARAM", "handle, theta or grid NULL"): null("handle|theta|grid"),
    ("BAD_PARAM", "handle, dgrid or dtheta NULL"): null("handle|dgrid|dtheta"),
    ("BAD_PARAM", "handle, x, y or grid NULL"): null("handle|x|y|grid"),
    ("BAD_PARAM", "handle, x, dx, dy, grid or dgrid NULL"): null("handle|x|dx|dy|grid|dgrid"),
    ("BAD_PARAM", "dy dims differ from the descriptor dims"): case("v6.dims", dyDesc=WIDE),
    ("NOT_SUPPORTED", "descriptor has more than 4 dims"): case("v6.rank", stDesc=VOLUMES),
    ("NOT_SUPPORTED", "more than 4 dims"): cases(
        case("v6.rank", stDesc=VOLUMES), each("v6.rank", "[xy]Desc|d[xy]Desc", plane(1, 1, 1, 1, 1))
    ),
}  # fmt: skip
