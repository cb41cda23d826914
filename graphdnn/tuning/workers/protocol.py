"""Messages between the tuner and its worker: a header as JSON and bytes after it, through a pipe. Data only."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

_SIZES = struct.Struct("<IQ")  # bytes of the header, and of what follows it
Message = dict[str, Any]
SWITCH = 5e-4  # seconds that a thread may keep others of its process waiting: answers come before work in threads


def send(file: BinaryIO, message: Message, payload: bytes = b"") -> None:
    header = json.dumps(message).encode()
    file.write(_SIZES.pack(len(header), len(payload)) + header)
    file.write(payload)
    file.flush()


def receive(file: BinaryIO) -> tuple[Message, bytes] | None:
    """None when the other side went away."""
    sizes = _exactly(file, _SIZES.size)
    if sizes is None:
        return None
    header_size, payload_size = _SIZES.unpack(sizes)
    header, payload = _exactly(file, header_size), _exactly(file, payload_size)
    return None if header is None or payload is None else (json.loads(header), payload)


def _exactly(file: BinaryIO, size: int) -> bytes | None:
    parts = []
    while size:
        part = file.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
