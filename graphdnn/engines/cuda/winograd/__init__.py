"""Engines ``cuda_winograd`` and ``cuda_winograd_4x4``: 3x3 convolutions with fewer products, in fp32.

| engine            | products | kernels                                               | bytes beside x, w, y          |
|-------------------|----------|-------------------------------------------------------|-------------------------------|
| cuda_winograd     | 1/2.25   | filter; products with all the rest                    | filter                        |
| ... after a chain | 1/2.25   | image, filter; products, transform back and epilogue  | filter, 4 x written and read  |
| cuda_winograd_4x4 | 1/4      | image, filter; products; transform back and epilogue  | filter, 2.25 (x + y) twice    |

(counted in fp32; transformed filters are 16/9 and 4 times as large). F(2x2) rounds about as much as a direct sum does:
its root-mean-square error over normal data is below that of one running fp32 sum. F(4x4) has about 2.5 times that
error, single results up to 15 times. In both, an infinity or NaN reaches every result of the tiles that see it.

Errors grow with the constants of the transforms (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks,
2015): 1/2 to 1 in F(2x2), up to 8 in F(4x4). The largest error of a tensor under F(4x4) is 6 times that under
F(2x2), the same for 1 to 128 channels; F(4x4) states that factor, which leaves both as far below the oracle's bound.
"""
