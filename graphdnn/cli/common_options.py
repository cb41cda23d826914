"""Options that several commands share."""

from __future__ import annotations

import argparse

from graphdnn.cli.graph_argument import read_as
from graphdnn.device.profiles import PROFILES, DeviceSpec
from graphdnn.device_selection import VARIABLE, device_spec
from graphdnn.enums import HeurMode
from graphdnn.errors import raise_if
from graphdnn.files import spec_from_json
from graphdnn.rules import Rule

IGNORED = Rule(
    id="cli.ignored",
    expected="{option} {when}",
    reason="the option would have no effect here, and the library ignores no input",
    fix="leave it out, or use it {when}",
)
_PROFILES = ", ".join(PROFILES)
DEVICE_HELP = f"cpu, cuda (a GPU that is here), cuda:1, a profile: {_PROFILES}, or a file of graphdnn device"
MODES = ("INSTANT", "A", "B", "FALLBACK")


def add_device(parser: argparse.ArgumentParser, default: str = f"{VARIABLE}, else cpu") -> None:
    parser.add_argument("--device", metavar="NAME", help=f"{DEVICE_HELP} (default: {default})")


def add_device_and_mode(parser: argparse.ArgumentParser) -> None:
    add_device(parser)
    parser.add_argument("--mode", choices=MODES, type=str.upper, help="how engines are ranked (default: A)")


def device_of(arguments: argparse.Namespace) -> DeviceSpec:
    return named_device(arguments.device)


def named_device(name: str | None) -> DeviceSpec:
    """What ``--device`` says: a name, or a file that ``graphdnn device`` wrote."""
    if name is not None and name.endswith(".json"):
        return read_as(name, spec_from_json)
    return device_spec(name)


def refuse_ignored(arguments: argparse.Namespace, *rows: tuple[str, bool, str]) -> None:
    """``rows``: options, whether they do anything here, and when they do. Raises for those given that do not."""
    found = []
    for options, is_used, when in rows:
        for option in () if is_used else options.split():
            given = getattr(arguments, option.replace("-", "_"))
            if given not in (None, False, []):
                found.append(IGNORED.reject("command line", f"--{option}", given, option=f"--{option}", when=when))
    raise_if(found)


def mode_of(arguments: argparse.Namespace) -> HeurMode:
    """A where nothing was said, so that what was said can be told from it."""
    return HeurMode[arguments.mode or "A"]
