"""A call that has to be refused for one reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphdnn.errors import GraphdnnError, NotSupported


def refusal(rule: str, call: Callable[[], Any], kind: type[GraphdnnError] = NotSupported) -> str:
    """The message. The one rejection is ``rule``'s, and no place in its words was left unfilled."""
    with pytest.raises(kind) as raised:
        call()
    (rejection,) = raised.value.rejections
    assert rejection.rule == rule
    assert "{" not in rejection.reason + rejection.fix + rejection.expected
    return str(raised.value)
