"""How far a build is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

# Called with (done, total, what is done); a total of 0 means that it is not known.
Progress = Callable[[int, int, str], None]
Item = TypeVar("Item")

_CALLS = 200  # in all: showing must not take longer than what is shown


def counted(items: Sequence[Item], what: str, progress: Progress | None) -> Iterator[Item]:
    """``items``, telling on the way how many of them are done."""
    every = -(-len(items) // _CALLS)
    for done, item in enumerate(items):
        if progress is not None and done % every == 0:
            progress(done, len(items), what)
        yield item
