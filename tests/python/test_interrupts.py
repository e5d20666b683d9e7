"""Interrupts are raised where somebody hears of them, and nowhere else."""

import os
import signal
import threading
import time

import pytest
import tvm

from tvm_dtr.interrupts import handled, interruptible


class Stopped(BaseException):
    pass


def stop(*_):
    raise Stopped


def send():
    os.kill(os.getpid(), signal.SIGTERM)


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_call_back_from_tvm_is_finished_first():
    """Of an exception on the way TVM would not hear: the result would be whatever is there."""
    finished = []

    def called_by_tvm(x):
        send()
        work(0.05)
        finished.append(x)
        return x + 1

    function = tvm.runtime.convert(called_by_tvm)
    before = signal.getsignal(signal.SIGTERM)
    results = []
    with pytest.raises(Stopped), handled(signal.SIGTERM, stop):
        results.append(function(1))
        work(10)  # it comes now
        results.append("not stopped")
    assert (finished, results) == ([1], [2])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_finalizer_does_not_swallow_it():
    class Finalized:
        def __del__(self):
            send()
            work(0.05)

    with pytest.raises(Stopped), handled(signal.SIGTERM, stop):
        Finalized()
        work(10)


def test_at_the_end_at_the_latest():
    reached = []

    def called_by_tvm():
        send()
        reached.append(True)

    function = tvm.runtime.convert(called_by_tvm)
    with pytest.raises(Stopped), handled(signal.SIGTERM, stop):
        function()
    assert reached == [True]
    time.sleep(0.05)  # and not once more


def test_at_once_elsewhere():
    with pytest.raises(Stopped), handled(signal.SIGTERM, stop):
        send()
        work(10)


def test_what_is_ignored_stays_ignored():
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with handled(signal.SIGTERM, stop):
            send()
            work(0.05)
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_other_threads_set_no_handlers():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def thread():
        with handled(signal.SIGTERM, stop):
            seen.append(signal.getsignal(signal.SIGTERM))

    worker = threading.Thread(target=thread)
    worker.start()
    worker.join()
    assert seen == [before]


def test_a_handler_of_the_callers_stays():
    seen = []
    previous = signal.signal(signal.SIGINT, lambda *_: seen.append(True))
    try:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            work(0.05)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert seen == [True]
    with pytest.raises(KeyboardInterrupt), interruptible():
        tvm.runtime.convert(lambda: os.kill(os.getpid(), signal.SIGINT))()
        work(10)
    assert signal.getsignal(signal.SIGINT) is previous
