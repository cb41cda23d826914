"""Limits of the fusion as options: kernels forced, forbidden and bounded, by uids as ``explain`` prints them."""

from __future__ import annotations

import argparse

from graphdnn.fusion import FusionLimits


def add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of the fusion", "operations are named by uids of tensors that they write")
    group.add_argument("--force", action="append", type=uids, metavar="UID,UID", help="these are one kernel")
    group.add_argument(
        "--forbid",
        action="append",
        type=uids,
        metavar="UID[,UID]",
        help="operations that are in different kernels, or a tensor that is in memory",
    )
    group.add_argument("--bound", type=int, metavar="N", help="the most operations in a kernel")


def uids(text: str) -> tuple[int, ...]:
    """Named as argparse says it: invalid uids value."""
    return tuple(int(word) for word in text.split(","))


def limited(limits: FusionLimits, arguments: argparse.Namespace) -> FusionLimits:
    """The limits of a plan file with those of the command line, where the command has such options."""
    options = vars(arguments)
    force, forbid = (*limits.force, *(options.get("force") or ())), (*limits.forbid, *(options.get("forbid") or ()))
    bound = options.get("bound")
    return FusionLimits.of(force, forbid, limits.bound if bound is None else bound)
