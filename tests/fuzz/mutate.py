"""Changes an input a little, knowing what it is made of: bytes, JSON, JSON lines or protobuf."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

Mutator = Callable[[bytes, random.Random], bytes]

_NUMBERS = (0, 1, 2, 3, 7, 64, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1)
_ODD = (-1, -(2**31), 2**63, 2**64 - 1, 2**64, 10**30, 0.5, -0.0, 1e308, 5e-324)
_VALUES: tuple[Any, ...] = (
    *_NUMBERS,
    *_ODD,
    float("nan"),
    float("inf"),
    *("", "0", "-1", "op", "x" * 300, "\udc80", "9" * 5000, "CALL", "float32"),
    *(None, True, [], {}, [[]], [None], {"a": 1}),
)
_MOST = 1 << 16  # bytes of an input


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flips, inserts, drops, repeats or swaps some bytes, or cuts the end off."""
    out = bytearray(data[:_MOST])
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 1, 2, 4, 8, 16, 64)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
        elif kind == 2:
            del out[at:end]
        elif kind == 3:
            out[at:at] = out[at:end] * rng.choice((1, 2, 16))
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(_NUMBERS) % (1 << 8 * size)
            out[at : at + size] = number.to_bytes(size, "little")
        elif rng.random() < 0.2:
            del out[at:]
    return bytes(out[:_MOST])


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Replaces, drops or repeats a value anywhere in the text; plain bytes now and then."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)
    if rng.random() < 0.1:
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(value, rng)
    return json.dumps(value).encode("utf-8", "surrogatepass")[:_MOST]


def mutate_json_lines(data: bytes, rng: random.Random) -> bytes:
    """As mutate_json for one line; or lines dropped, repeated or swapped."""
    lines = data.splitlines() or [b"{}"]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        return mutate_bytes(data, rng)
    else:
        lines[at] = mutate_json(lines[at], rng)
    return b"\n".join(lines)[:_MOST]


def mutate_json_and_bytes(data: bytes, rng: random.Random) -> bytes:
    """JSON, a zero byte and what follows it: one of the two."""
    head, zero, tail = data.partition(b"\0")
    if rng.random() < 0.5:
        return mutate_json(head, rng) + zero + tail
    return head + b"\0" + mutate_bytes(tail, rng)


def _changed(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one place in it changed."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.05:
        return _replacement(value, rng)
    children: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    at = rng.choice(children)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    kind = rng.randrange(10)
    if kind == 0:
        del copy[at]
    elif kind == 1 and isinstance(copy, list):
        copy.insert(rng.randrange(len(copy) + 1), copy[at])
    elif kind == 2:
        other = rng.choice(children)
        copy[at], copy[other] = copy[other], copy[at]
    else:
        copy[at] = _changed(copy[at], rng)
    return copy


def _replacement(value: Any, rng: random.Random) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-2, -1, 1, 2, value))
    if rng.random() < 0.01:  # deeper than a parser's stack
        return json.loads("[" * 900 + "]" * 900)
    return rng.choice(_VALUES)


def mutate_onnx(data: bytes, rng: random.Random) -> bytes:
    """Changes a field of some message of the model; plain bytes now and then."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return mutate_bytes(data, rng)
    if rng.random() < 0.05:
        return mutate_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_message(model, rng)
    return model.SerializeToString()[:_MOST]


def _change_message(message: Message, rng: random.Random) -> None:
    """Goes down to a message by chance and changes one of its fields."""
    fields = message.ListFields()
    below = [(f, v) for f, v in fields if f.type == FieldDescriptor.TYPE_MESSAGE]
    if below and rng.random() < 0.85:
        field, value = rng.choice(below)
        if not _repeated(field):
            _change_message(value, rng)
        elif rng.random() < 0.15:
            _reorder(value, rng)
        else:
            _change_message(rng.choice(list(value)), rng)
        return
    scalars = [f for f in message.DESCRIPTOR.fields if f.type != FieldDescriptor.TYPE_MESSAGE]
    if scalars:
        _change_field(message, rng.choice(scalars), rng)


def _reorder(values: Any, rng: random.Random) -> None:
    """Drops or repeats one of a list of messages."""
    at = rng.randrange(len(values))
    if rng.random() < 0.5:
        del values[at]
    else:
        values.add().CopyFrom(values[at])


def _repeated(field: FieldDescriptor) -> bool:
    return bool(getattr(field, "is_repeated", False)) or isinstance(field.default_value, list)


def _change_field(message: Message, field: FieldDescriptor, rng: random.Random) -> None:
    value = _scalar(field, rng)
    if field.type == FieldDescriptor.TYPE_UINT64:
        value = abs(value)
    if not _repeated(field):
        setattr(message, field.name, value)
        return
    values = getattr(message, field.name)
    kind = rng.randrange(3)
    if kind == 0 and values:
        del values[rng.randrange(len(values))]
    elif kind == 1 and values:
        at = rng.randrange(len(values))
        values[at] = rng.choice((value, values[rng.randrange(len(values))]))
    else:
        values.append(value)


def _scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(("", "x", "y", "w", "N", "Relu", "Reshape", "axis", "axes", "mode"))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice((b"", b"\0", b"\xff" * 8, b"same_upper", rng.randbytes(16)))
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), 0.5))
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        return rng.choice([v.number for v in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_INT32:
        return rng.choice((0, 1, 2, 3, 7, 9, 11, 16, 20, -1, 2**31 - 1))
    return rng.choice((0, 1, 2, 3, 4, -1, -2, 64, 2**31, 2**33, 2**62, 2**63 - 1, -(2**63)))
