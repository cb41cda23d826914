"""Fingerprints: what is in arrays of a device as a number each, worked out where they are.

Candidates that compute the same bits are judged once. Copying every result to the host to find out that it is the one
that is known already would take longer than everything else of a trial.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from graphdnn.analysis.random_operands import fill
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.included_files import file_text
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import PackedParams
from graphdnn.plan.cuda_runtime import Prepared, Runtime

_PARAMS = struct.Struct("<QqQ")  # address, bytes, address of the sum
_BLOCKS = 8  # of a multiprocessor
_WORD = 8


def launch(device: DeviceSpec) -> Launch:
    text = KernelText("fingerprint", file_text("array_digest.cu"))
    return Launch(text, "array_digest", (_BLOCKS * device.sm_count, 1, 1), 256, PackedParams(bytes(_PARAMS.size), ()))


class Fingerprints:
    """The kernel, compiled and loaded."""

    def __init__(self, runtime: Runtime, device: DeviceSpec) -> None:
        self._runtime = runtime
        self._prepared: Prepared = runtime.prepare(launch(device), "tuning")

    def of(self, arrays: Sequence[tuple[int, int]]) -> list[int]:
        """``arrays``: address and bytes of each. What was put into the stream before is in them."""
        stream, runtime = self._runtime.current_stream(), self._runtime
        found = np.empty(_WORD * len(arrays), np.uint8)
        sums = runtime.memory(found.nbytes)
        start, _ = runtime.workspace_address(sums, found.nbytes)
        fill(sums, 0, found.nbytes)
        for i, (address, size) in enumerate(arrays):
            self._prepared.params[:] = _PARAMS.pack(address, size, start + _WORD * i)
            self._prepared.launch(stream)  # which copies the struct
        runtime.copy_out(sums, found, found.nbytes)
        return [int(value) for value in found.view(np.uint64)]
