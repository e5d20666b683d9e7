"""Loads the patched Relay VM into the process that runs TVM."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_loaded: ctypes.CDLL | None = None


def load_plugin() -> None:
    """Loads ``libtvm_dtr_vm.so`` from this folder, once, after TVM, whose symbols it needs.

    Raises:
        ImportError: the library is missing (the package was not built) or does not fit TVM.
    """
    global _loaded
    if _loaded is not None:
        return
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    import tvm  # noqa: F401

    path = Path(__file__).with_name("libtvm_dtr_vm.so")
    try:
        _loaded = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(f"cannot load the Relay VM plugin {path}: {error}") from error
