"""Canonical binary form of plain data: equal bytes iff equal values, no executable content."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

MAGIC = b"MBWS1\n"


class CodecError(ValueError):
    """Bytes that are no complete canonical form."""


def encode(value: Any) -> bytes:
    """Canonical bytes of None, bools, ints, floats, texts, bytes, sequences and dicts of these.

    Dicts are written in ascending key order; lists and tuples are the same thing.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _sized(tag: bytes, body: bytes, parts: list[bytes]) -> None:
    parts.append(tag + struct.pack("<I", len(body)))
    parts.append(body)


def _write(value: Any, parts: list[bytes]) -> None:
    if value is None:
        parts.append(b"N")
    elif isinstance(value, bool):
        parts.append(b"T" if value else b"F")
    elif isinstance(value, int):
        if -(2**63) <= value < 2**63:
            parts.append(b"i" + struct.pack("<q", value))
        else:
            _sized(b"I", str(value).encode(), parts)
    elif isinstance(value, float):
        parts.append(b"d" + struct.pack("<d", value))
    elif isinstance(value, str):
        _sized(b"s", value.encode("utf-8", "surrogatepass"), parts)
    elif isinstance(value, bytes):
        _sized(b"b", value, parts)
    elif isinstance(value, (tuple, list)):
        parts.append(b"l" + struct.pack("<I", len(value)))
        for item in value:
            _write(item, parts)
    elif isinstance(value, dict):
        parts.append(b"m" + struct.pack("<I", len(value)))
        for key in sorted(value):
            _write(key, parts)
            _write(value[key], parts)
    else:
        raise TypeError(f"no canonical form for {type(value).__name__}")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise CodecError("the data end too early")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def size(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def read(self) -> Any:
        tag = self.take(1)
        if tag == b"N":
            return None
        if tag in b"TF":
            return tag == b"T"
        if tag == b"i":
            return struct.unpack("<q", self.take(8))[0]
        if tag == b"d":
            return struct.unpack("<d", self.take(8))[0]
        if tag == b"I":
            return int(self.take(self.size()))
        if tag == b"s":
            return self.take(self.size()).decode("utf-8", "surrogatepass")
        if tag == b"b":
            return self.take(self.size())
        if tag == b"l":
            return tuple(self.read() for _ in range(self.size()))
        if tag == b"m":
            return {self.read(): self.read() for _ in range(self.size())}
        raise CodecError("unknown mark in the data")


def decode(data: bytes) -> Any:
    """Value of canonical bytes; sequences come back as tuples.

    Raises:
        CodecError: The bytes are damaged or not complete.
    """
    reader = _Reader(data)
    try:
        value = reader.read()
    except (ValueError, TypeError, RecursionError) as error:
        raise CodecError(str(error)) from None
    if reader.at != len(data):
        raise CodecError("the data go on after their end")
    return value


def seal(value: Any) -> bytes:
    """Canonical bytes with a format mark and a checksum."""
    body = encode(value)
    return MAGIC + hashlib.sha256(body).digest() + body


def unseal(data: bytes) -> Any:
    """Value of sealed bytes.

    Raises:
        CodecError: The bytes are no sealed value, or were changed.
    """
    head = len(MAGIC) + 32
    if not isinstance(data, bytes) or data[: len(MAGIC)] != MAGIC or len(data) < head:
        raise CodecError("not a snapshot of this package")
    body = data[head:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : head]:
        raise CodecError("the snapshot is damaged (checksum mismatch)")
    return decode(body)
