"""Signals that end what runs by an exception, which must not be raised just anywhere.

TVM calls back into Python while it compiles, through ctypes: an exception that is no ``Exception``
(``KeyboardInterrupt``) is dropped there, and TVM goes on with a result that was never set, up to a
segmentation fault. Finalizers drop exceptions as well. So the handler is called once neither is
on the stack.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

RETRY_SECONDS = 0.01


def may_raise(frame: FrameType | None) -> bool:
    """Whether an exception raised in ``frame`` reaches the bottom of the stack."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "__del__" or (name == "cfun" and file.endswith("packed_func.py")):
            return False
        frame = frame.f_back
    return True


@contextlib.contextmanager
def handled(number: int, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """``handler`` is called for the signal ``number``, at once or as soon as it may raise; at the
    end of the block at the latest. A signal that the process ignores stays ignored. Main thread
    only: elsewhere nothing is done, for only the main thread may set handlers.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    later: list[threading.Timer] = []

    def deferring(number: int, frame: FrameType | None) -> None:
        later.clear()
        if may_raise(frame):
            handler(number, frame)
            return
        again = threading.Timer(RETRY_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        later.append(again)
        again.start()

    previous = signal.signal(number, deferring)
    try:
        yield
        if later:
            _forget(later)
            handler(number, None)
    finally:
        try:
            _forget(later)
        finally:
            signal.signal(number, previous)


def _forget(later: list[threading.Timer]) -> None:
    for timer in later.copy():
        timer.cancel()
        timer.join()  # or it has just sent the signal, which comes before the handler goes
    later.clear()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt where it may, unless the caller has a handler of its own."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with handled(signal.SIGINT, signal.default_int_handler):
        yield
