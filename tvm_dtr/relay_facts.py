"""What passes ask of Relay expressions again and again, remembered while a step is built.

Every attribute of a Relay object is a call through TVM's foreign function interface, several
microseconds each, and passes over a step of 10,000 ops ask for millions. Expressions do not
change once they are made, so what they are made of is asked for once.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

from tvm import relay
from tvm.ir import Op

Kept = TypeVar("Kept")

# What tells two expressions apart. (Hashing one is a call of TVM's as well.)
address: Callable[[Any], int] = attrgetter("handle.value")


class _Memory(threading.local):
    """By the kind of fact and the expression's address. Expressions are held with what is known
    of them: an address that is free could become another one's."""

    facts: dict[str, dict[int, tuple[Any, Any]]] | None = None


_memory = _Memory()


@contextmanager
def remembering() -> Iterator[None]:
    """Facts are remembered inside of the outermost such block, in this thread.

    Python's collector of cycles waits: it would walk over all that is remembered again and again,
    and expressions make no cycles.
    """
    if _memory.facts is not None:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    _memory.facts = {}
    try:
        yield
    finally:
        _memory.facts = None
        if collects:
            gc.enable()


def remembered(kind: str, expr: Any, ask: Callable[[Any], Kept]) -> Kept:
    """``ask(expr)``, asked once."""
    if _memory.facts is None:
        return ask(expr)
    known = _memory.facts.get(kind)
    if known is None:
        known = _memory.facts[kind] = {}
    key = expr.handle.value
    entry = known.get(key)
    if entry is None:
        entry = known[key] = (expr, ask(expr))
    return entry[1]


def children(expr: Any) -> tuple[Any, ...]:
    """What ``expr`` is computed from, in evaluation order."""
    return remembered("children", expr, _children)


def arguments(call: relay.Call) -> tuple[Any, ...]:
    """The operands of a call."""
    return remembered("arguments", call, _arguments)


def called(call: relay.Call) -> Any:
    """What a call calls: an op, a function, or a variable."""
    return remembered("op", call, _called)


def name_of(call: relay.Call) -> str:
    """The name of the op that a call calls, "" where it calls something else."""
    op = called(call)
    return remembered("name", op, _name) if isinstance(op, Op) else ""


def _children(expr: Any) -> tuple[Any, ...]:
    if isinstance(expr, relay.Call):
        # What is called may be computed itself: a closure, such as a pullback.
        op, args = called(expr), arguments(expr)
        return (op, *args) if isinstance(op, relay.TupleGetItem) else args
    if isinstance(expr, relay.Tuple):
        return tuple(expr.fields[:])
    if isinstance(expr, relay.TupleGetItem):
        return (expr.tuple_value,)
    return ()


def _arguments(call: relay.Call) -> tuple[Any, ...]:
    return tuple(call.args[:])


def _called(call: relay.Call) -> Any:
    return call.op


def _name(op: Op) -> str:
    return str(op.name)
