"""Options that several commands share."""

from __future__ import annotations

import argparse

from graphdnn.device import PROFILES, DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.heuristics import EngineConfig
from graphdnn.machine import device_spec

MODES = ("INSTANT", "A", "B", "FALLBACK")


def add_device_and_mode(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(("cpu", *PROFILES))
    parser.add_argument("--device", metavar="NAME", help=f"rank for this device: {known} (default: this machine)")
    parser.add_argument(
        "--mode", choices=MODES, default="A", type=str.upper, help="how engines are ranked (default: A)"
    )


def device_of(arguments: argparse.Namespace) -> DeviceSpec:
    return device_spec(arguments.device)


def mode_of(arguments: argparse.Namespace) -> HeurMode:
    return HeurMode[arguments.mode]


def on_the_host(config: EngineConfig) -> bool:
    """True when the device asked for is a GPU, and the engines chosen run on the host."""
    return config.device.kind != "cpu" and all(choice.engine.places == ("cpu",) for choice in config.choices)
