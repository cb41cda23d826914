"""Engines ``cuda_winograd`` and ``cuda_winograd_4x4``: 3x3 convolutions with fewer multiplications, in fp32.

| engine            | multiplications | launches                                                            |
|-------------------|-----------------|---------------------------------------------------------------------|
| cuda_winograd     | 1/2.25          | filter transform; input transform, GEMMs, output transform in one   |
| ... with prologue | 1/2.25          | input transform; filter transform; GEMMs and output transform       |
| cuda_winograd_4x4 | 1/4             | input transform; filter transform; GEMMs; output transform          |

The workspace holds the transformed filter, 16/9 or 4 times the filter in fp32. An input transform of its own adds the
transformed image, 4 or 2.25 times the image in fp32, and cuda_winograd_4x4 adds the sums, 2.25 times the result.

The rounding error of F(2x2) is about that of a direct sum: its root-mean-square error over normal data is below the
error of one running fp32 sum. F(4x4) has about 2.5 times that error, single results up to 15 times. In both, an
infinity or NaN reaches every result of the tiles that contain it.

Errors grow with the constants of the transforms (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
2015): 1/2 to 1 in F(2x2), up to 8 in F(4x4). The largest error of a tensor under F(4x4) is 6 times the error under
F(2x2), for 1 to 128 channels alike. F(4x4) declares that factor, so both stay equally far below the oracle's bound.
"""
