"""Kernel text on the host: compiled by g++ as plain C++, its threads run as fibers."""

from emulator.emulate import MISSING, Emulated, EmulationError, compile_for_host, guarded

__all__ = ["MISSING", "Emulated", "EmulationError", "compile_for_host", "guarded"]
