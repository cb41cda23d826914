"""graphdnn beside PyTorch and cuDNN on one GPU, in one process, taking turns.

    python benchmarks/gpu.py [GROUP ...] [--suite table|all] [--only NAME,...] [--quick] [--isolate]
        [--time-limit SECONDS] [--tune N] [--json DIR]
    python benchmarks/gpu.py --goals [--json DIR]

Groups: memory depthwise fp32 integers host dense residual dgrad wgrad nchw bytes rnn models; without them the first
five. Prints a line for each case, and writes ``gpu_GROUP.json`` with versions and method.
The second form reads such files: what the library aims at, what was measured, and whether that is reached.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # graphdnn from this checkout

from gpu.run import main

if __name__ == "__main__":
    sys.exit(main())
