"""Batches made ahead, in another thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

T = TypeVar("T")
_POLL_SECONDS = 0.1  # how long the maker waits before it looks whether anyone still reads


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextlib.contextmanager
def prefetched(items: Iterator[T], depth: int) -> Generator[Iterator[T], None, None]:
    """The items in their order, up to ``depth`` of them made ahead (0: none, in this thread).

    An error of the maker comes out where its item would have. The thread ends with the block.
    """
    if depth <= 0:
        yield items
        return
    ready: queue.Queue[T | _End] = queue.Queue(depth)
    stopped = threading.Event()
    maker = threading.Thread(
        target=_make, args=(items, ready, stopped), name="tvm-dtr-data", daemon=True
    )
    maker.start()
    try:
        yield _taken(ready)
    finally:
        stopped.set()
        maker.join()


def _make(items: Iterator[T], ready: queue.Queue[T | _End], stopped: threading.Event) -> None:
    end = _End(None)
    try:
        for item in items:
            if not _put(item, ready, stopped):
                return
    except BaseException as error:
        end = _End(error)
    _put(end, ready, stopped)


def _put(item: T | _End, ready: queue.Queue[T | _End], stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            ready.put(item, timeout=_POLL_SECONDS)
            return True
        except queue.Full:
            continue
    return False


def _taken(ready: queue.Queue[T | _End]) -> Iterator[T]:
    while True:
        item = ready.get()
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return
        yield item
