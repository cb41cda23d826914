"""The part of graphdnn that pytest loads at its start: one option, and which test runs. It imports nothing.

Tests import the assertions themselves, from ``graphdnn.pytest_plugin``. This module lies beside the package because
importing anything inside ``graphdnn`` loads NumPy, which not every test run needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

OPTION = "--graphdnn-update-locks"
running: list[pytest.Item] = []  # the test that runs, if any


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("graphdnn")
    group.addoption(OPTION, action="store_true", help="write the locks of assert_plan_locked anew")


def pytest_runtest_setup(item: pytest.Item) -> None:
    running[:] = [item]


def pytest_runtest_teardown(item: pytest.Item) -> None:
    running.clear()
