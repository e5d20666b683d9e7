"""Loads the patched Relay VM into the process that runs TVM."""

from __future__ import annotations

import ctypes
from pathlib import Path

_loaded: ctypes.CDLL | None = None


def load_plugin() -> None:
    """Load libtvm_dtr_vm.so next to this file once, after TVM, whose symbols it needs."""
    global _loaded
    if _loaded is not None:
        return
    import tvm  # noqa: F401

    path = Path(__file__).with_name("libtvm_dtr_vm.so")
    _loaded = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
