"""Limits of the fusion as options: kernels forced, forbidden and bounded, by uids as ``explain`` prints them."""

from __future__ import annotations

import argparse

from graphdnn.cli.source import graph_and_limits
from graphdnn.fusion import Limits
from graphdnn.graph import OperationGraph


def add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of the fusion", "operations are named by uids of tensors that they write")
    group.add_argument("--force", action="append", type=uids, metavar="UID,UID", help="these are one kernel")
    group.add_argument(
        "--forbid", action="append", type=uids, metavar="UID[,UID]", help="these are apart, or this tensor is in memory"
    )
    group.add_argument("--bound", type=int, metavar="N", help="at most so many operations in a kernel")


def uids(text: str) -> tuple[int, ...]:
    """Named as argparse says it: invalid uids value."""
    return tuple(int(word) for word in text.split(","))


def limited(arguments: argparse.Namespace) -> tuple[OperationGraph, Limits]:
    """The graph, with the limits of its plan file and of the command line."""
    graph, limits = graph_and_limits(arguments.graph)
    force, forbid = (*limits.force, *(arguments.force or ())), (*limits.forbid, *(arguments.forbid or ()))
    return graph, Limits.of(force, forbid, limits.bound if arguments.bound is None else arguments.bound)
