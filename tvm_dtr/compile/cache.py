"""Compiled kernels and their costs on disk, shared by all builds of a user.

The folder is $TVM_DTR_CACHE_DIR, else $XDG_CACHE_HOME/tvm-dtr, else ~/.cache/tvm-dtr;
TVM_DTR_CACHE_DIR empty or "none" switches it off. An entry is one file: the SHA-256 of the rest,
a newline, the rest. Files appear by rename, so that builds that run at the same time see a whole
entry or none; a damaged entry counts as missing and is written anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path


def cache_folder() -> Path | None:
    """Where entries are kept, or None when caching is off."""
    chosen = os.environ.get("TVM_DTR_CACHE_DIR")
    if chosen is not None:
        return None if chosen.strip().lower() in ("", "none") else Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # no home folder
        return (Path(base) if base else Path.home() / ".cache") / "tvm-dtr"
    return None


class KernelCache:
    """Entries by hexadecimal key. A folder that cannot be written costs time and one warning."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._warned = False

    def get(self, key: str) -> bytes | None:
        """The content stored under a key; None if absent or damaged."""
        if self.folder is None:
            return None
        try:
            digest, _, content = self._path(key).read_bytes().partition(b"\n")
        except OSError:
            return None
        intact = hashlib.sha256(content).hexdigest().encode() == digest
        return content if intact else None

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under a key, replacing what was there."""
        if self.folder is None:
            return
        digest = hashlib.sha256(content).hexdigest().encode()
        try:
            write_atomically(self._path(key), digest + b"\n" + content)
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"the kernel cache '{self.folder}' cannot be written "
                    f"({error.strerror or error}); set TVM_DTR_CACHE_DIR to a folder, or to none",
                    stacklevel=2,
                )
            self._warned = True

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / key[2:]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that others see whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
