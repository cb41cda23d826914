"""cache: show, check and empty the folder where compiled CUDA kernels are kept"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphdnn.cli.common_options import refuse_ignored
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda.cache_entry import Damaged
from graphdnn.cuda.cache_maintenance import Stored, is_own, opened, prune, remove_damaged, stored
from graphdnn.cuda.kernel_cache import LIMIT_BYTES
from graphdnn.cuda.private import FIX, distrust
from graphdnn.errors import BadParam
from graphdnn.rules import Rule
from graphdnn.storage import cache_directory
from graphdnn.text_format import indented, narrowed, plural, size, table

FOLDER = Rule(
    id="cli.cache.folder",
    expected="a folder of your own that nobody else may write to",
    reason="{detail}, so kernels in it are neither used nor removed",
    fix="{how}",
)
MIB, DAY = 2**20, 86400.0
NO_FOLDER = "there is no home folder: kernels stay in memory (GRAPHDNN_CACHE_DIR names a folder)"
_HEAD = ("kernel", "arch", "NVRTC", "size", "last used", "key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="list the kernels, verify them, or prune: remove old ones")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    limit = LIMIT_BYTES // MIB
    parser.add_argument(
        "--limit",
        type=amount,
        metavar="MIB",
        help=f"prune: size that may stay (default {limit})",
    )
    parser.add_argument(
        "--days", type=amount, metavar="DAYS", help="prune: remove kernels that were not used for this number of days"
    )
    parser.add_argument("--all", action="store_true", help="prune: remove everything")


def run(arguments: argparse.Namespace) -> Exit:
    refuse_ignored(arguments, ("limit days all", arguments.action == "prune", "with prune"),
                   ("limit days", not arguments.all, "without --all"))  # fmt: skip
    folder = cache_directory()
    if folder is None:
        print(json.dumps({"folder": None}) if arguments.json else NO_FOLDER)
        return Exit.OK
    why = distrust(folder)
    if why is not None:
        raise BadParam(FOLDER.reject("kernel cache", "folder", str(folder), detail=why, how=FIX))
    return ACTIONS[arguments.action](folder, arguments)


def list_kernels(folder: Path, arguments: argparse.Namespace) -> Exit:
    found = [_described(file) for file in stored(folder)]
    if arguments.json:
        _print_json(folder, kernels=found)
        return Exit.OK
    if found:
        rows = [
            (entry["name"] or f"damaged: {entry['problem']}", entry["architecture"],
             entry["nvrtc"], size(entry["bytes"]), entry["used"], entry["key"][:12])
            for entry in found
        ]  # fmt: skip
        print(table(_HEAD, narrowed(_HEAD, rows, 0), right=(3,)) + "\n")
    print(total_text(folder))
    return Exit.OK


def verify(folder: Path, arguments: argparse.Namespace) -> Exit:
    found = [_described(file) for file in stored(folder)]
    damaged = [entry for entry in found if entry["problem"] and entry["own"]]
    foreign = [entry for entry in found if not entry["own"]]
    if arguments.json:
        _print_json(folder, kernels=len(found), damaged=damaged, foreign=foreign)
    else:
        print(f"{plural(len(found), 'kernel')} checked in {folder}, {len(damaged)} damaged")
        for entry in damaged:
            print(indented(f"{entry['file']}: {entry['problem']}"))
        for entry in foreign:
            print(indented(f"{entry['file']}: left as it is, for it has no sign of graphdnn"))
        if damaged:
            print("fix: graphdnn cache prune (a damaged kernel is never used, it is compiled again)")
    return Exit.CHECK_FAILED if damaged else Exit.OK


def prune_kernels(folder: Path, arguments: argparse.Namespace) -> Exit:
    damaged = remove_damaged(folder)
    limit = 0 if arguments.all else LIMIT_BYTES if arguments.limit is None else int(arguments.limit * MIB)
    old = prune(folder, limit, None if arguments.days is None else arguments.days * DAY)
    files, freed = damaged.files + old.files, damaged.bytes + old.bytes
    if arguments.json:
        _print_json(folder, removed=files, freed=freed, damaged=damaged.files)
        return Exit.OK
    print(f"removed {plural(files, 'file')}, {size(freed)}; {damaged.files} of them damaged")
    print(total_text(folder))
    return Exit.OK


def total_text(folder: Path) -> str:
    """``3 kernels, 120 KiB of 512 MiB, in FOLDER``."""
    files = stored(folder)
    used = sum(file.bytes for file in files)
    return f"{plural(len(files), 'kernel')}, {size(used)} of {size(LIMIT_BYTES)}, in {folder}"


def _described(file: Stored) -> dict[str, Any]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.used))
    facts = {"key": file.key, "file": file.path.name, "bytes": file.bytes, "used": used, "own": is_own(file.path)}
    try:
        manifest = opened(file.path).manifest
    except (Damaged, OSError) as error:
        return facts | {"name": "", "architecture": "", "nvrtc": "", "problem": str(error)}
    name, architecture, nvrtc = (manifest[field] for field in ("name", "architecture", "nvrtc"))
    return facts | {"name": name, "architecture": architecture, "nvrtc": ".".join(map(str, nvrtc)), "problem": ""}


def _print_json(folder: Path, **facts: Any) -> None:
    print(json.dumps({"folder": str(folder), "limit": LIMIT_BYTES, **facts}, indent=1))


def amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e9:  # also of what is no number
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0 and below 1e9")
    return value


ACTIONS: dict[str, Callable[[Path, argparse.Namespace], Exit]] = {
    "list": list_kernels,
    "verify": verify,
    "prune": prune_kernels,
}
