"""The file of one compiled kernel: a fixed head, what it was made from, the compiler's log, the cubin.

    "GDNNKRN2" | HMAC-SHA-256 of the rest | three sizes, little-endian 64-bit | manifest (JSON) | log | cubin

The manifest holds everything that decides the cubin, the text included; its hash is the file's name. The code of the
rest is made with the folder's secret, so it binds the cubin to text, options and device: a file that was cut off,
altered, renamed, or written by somebody without the secret is never used.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FAMILY = b"GDNNKRN"  # entries of every version begin with it
MAGIC = FAMILY + b"2"
FORMAT = 2
SUFFIX = ".kernel"
_SIZES = struct.Struct("<QQQ")
_FIELDS = {"name", "architecture", "nvrtc", "options", "text"}
_HEAD = len(MAGIC) + hashlib.sha256().digest_size

Manifest = Mapping[str, Any]


class Damaged(ValueError):
    """The bytes are no entry. The text says how; nobody outside the cache sees it."""


@dataclass(frozen=True, slots=True)
class Entry:
    manifest: Manifest
    log: str
    cubin: bytes


def manifest_of(name: str, text: str, options: tuple[str, ...], nvrtc: tuple[int, int], arch: str) -> Manifest:
    return {
        "format": FORMAT, "name": name, "architecture": arch, "nvrtc": list(nvrtc), "options": list(options),
        "text": text,
    }  # fmt: skip


def key_of(manifest: Manifest) -> str:
    """SHA-256 of the manifest, in hexadecimal."""
    return key_of_bytes(plain(manifest))


def key_of_bytes(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()


def packed(entry: Entry, secret: bytes) -> bytes:
    """The file's content, with the code that ``secret`` gives."""
    manifest, log = plain(entry.manifest), entry.log.encode()
    rest = _SIZES.pack(len(manifest), len(log), len(entry.cubin)) + manifest + log + entry.cubin
    return MAGIC + hmac.digest(secret, rest, "sha256") + rest


def unpacked(data: bytes, secret: bytes, known: tuple[Manifest, bytes] | None = None) -> Entry:
    """Read what ``packed`` wrote. Raises ``Damaged``. ``known``: a manifest that may be in it."""
    if data[: len(MAGIC)] != MAGIC:
        raise Damaged("it is no entry of this format")
    rest = data[_HEAD:]
    if not hmac.compare_digest(data[len(MAGIC) : _HEAD], hmac.digest(secret, rest, "sha256")):
        raise Damaged("its content does not give the code that it carries")
    try:
        sizes = _SIZES.unpack_from(rest)
        if sum(sizes) + _SIZES.size != len(rest):
            raise Damaged("its parts do not have the sizes that it states")
        log_at, cubin_at = _SIZES.size + sizes[0], _SIZES.size + sizes[0] + sizes[1]
        written = rest[_SIZES.size : log_at]
        manifest = known[0] if known is not None and known[1] == written else json.loads(written)
        log = rest[log_at:cubin_at].decode()
    except (struct.error, ValueError) as error:
        raise Damaged(str(error)) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or not manifest.keys() >= _FIELDS:
        raise Damaged("its manifest is of another format")
    return Entry(manifest, log, rest[cubin_at:])


def plain(manifest: Manifest) -> bytes:
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
