"""device: show the profile of a device, and write it to a file for machines without the device"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphdnn.cli.common_options import DEVICE_HELP, named_device
from graphdnn.cli.exit_codes import Exit
from graphdnn.cli.output_files import write_file
from graphdnn.device.profiles import PROFILES, SOURCES, DeviceSpec
from graphdnn.files import spec_to_json
from graphdnn.text_format import count, indented, seconds, size, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", metavar="NAME", nargs="?", help=DEVICE_HELP)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the profile to a file, for --device FILE"
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> Exit:
    device = named_device(arguments.device)
    if arguments.output is not None:
        write_file(arguments.output, spec_to_json(device) + "\n")
    print(spec_to_json(device) if arguments.json else as_text(device))
    return Exit.OK


def as_text(device: DeviceSpec) -> str:
    capability = ".".join(map(str, device.compute_capability))
    rows = [
        ("kind", device.kind if device.kind == "cpu" else f"{device.kind}, compute capability {capability}"),
        ("cores" if device.kind == "cpu" else "multiprocessors", str(device.sm_count)),
        ("memory", f"{size(device.memory)}, {count(device.bandwidth)}B/s"),
        ("last cache", size(device.cache_bytes)),
        *([("shared memory", f"{size(device.shared_memory)} of each multiprocessor")] if device.shared_memory else []),
        ("launch", seconds(device.launch)),
        *((name, f"{count(rate)}op/s") for name, rate in device.rates.items()),
        *([("source", SOURCES[device.name])] if PROFILES.get(device.name) == device else []),
    ]
    return f"{device.name}\n{indented(table(('', ''), rows))}"
