"""Options that several commands share."""

from __future__ import annotations

import argparse

from graphdnn.device import PROFILES, DeviceSpec
from graphdnn.enums import HeurMode
from graphdnn.machine import VARIABLE, device_spec

MODES = ("INSTANT", "A", "B", "FALLBACK")


def add_device(parser: argparse.ArgumentParser, default: str = f"{VARIABLE}, else cpu") -> None:
    known = ", ".join(PROFILES)
    parser.add_argument(
        "--device",
        metavar="NAME",
        help=f"cpu, cuda (a GPU that is here), cuda:1, or a profile: {known} (default: {default})",
    )


def add_device_and_mode(parser: argparse.ArgumentParser) -> None:
    add_device(parser)
    parser.add_argument(
        "--mode", choices=MODES, default="A", type=str.upper, help="how engines are ranked (default: A)"
    )


def device_of(arguments: argparse.Namespace) -> DeviceSpec:
    return device_spec(arguments.device)


def mode_of(arguments: argparse.Namespace) -> HeurMode:
    return HeurMode[arguments.mode]
