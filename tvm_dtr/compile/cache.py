"""Compiled kernels, their costs and whole programs on disk, shared by all builds of a user.

The folder is $TVM_DTR_CACHE_DIR, else $XDG_CACHE_HOME/tvm-dtr, else ~/.cache/tvm-dtr;
TVM_DTR_CACHE_DIR empty or "none" switches it off. It is kept under $TVM_DTR_CACHE_SIZE (2GiB):
what has not been used for longest goes first.

An entry is one file: the SHA-256 of the rest, a newline, the rest. Files appear by rename, so that
builds that run at the same time, or are killed, leave a whole entry or none; a damaged entry counts
as missing and is written anew. The time of an entry's last use is the file's modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tvm_dtr.budget import parse_budget
from tvm_dtr.errors import UsageError

DEFAULT_BYTES = 2 << 30
KEPT_SHARE = 0.9  # of the bound, after it was passed: not every build has to make room
ABANDONED_SECONDS = 3600  # an unfinished file of this age is of a build that was killed
_DIGEST_LENGTH = 2 * hashlib.sha256().digest_size + 1  # with the newline
_UNFINISHED = ".writing-"
_WARNED: set[Path] = set()  # folders that this process has said it cannot write


def cache_folder() -> Path | None:
    """Where entries are kept, or None when caching is off."""
    chosen = os.environ.get("TVM_DTR_CACHE_DIR")
    if chosen is not None:
        return None if chosen.strip().lower() in ("", "none") else Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # no home folder
        # The XDG specification: a relative path is to be ignored.
        return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "tvm-dtr"
    return None


def cache_bytes() -> int | None:
    """The bound on the folder's size, None for no bound. Raises UsageError for another text."""
    text = os.environ.get("TVM_DTR_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_BYTES
    with contextlib.suppress(UsageError):
        size = parse_budget(text)
        if size.fraction is None:
            return size.bytes
    raise UsageError(
        f"TVM_DTR_CACHE_SIZE is '{text}', expected the size of the cache: 2GiB, 500MB or none"
    )


class _File(NamedTuple):
    used: float  # seconds since the epoch
    size: int
    path: str


class KernelCache:
    """Entries by hexadecimal key. A folder that cannot be written costs time and one warning."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._wrote = False

    def get(self, key: str) -> bytes | None:
        """The content stored under a key; None if absent or damaged."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            with open(path, "rb") as stream:
                digest = stream.readline(_DIGEST_LENGTH).rstrip(b"\n")
                content = stream.read()
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != digest:
            return None
        with contextlib.suppress(OSError):  # a folder that cannot be written is still of use
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under a key, replacing what was there."""
        if self.folder is None:
            return
        digest = hashlib.sha256(content).hexdigest().encode()
        try:
            write_atomically(self._path(key), digest + b"\n" + content)
            self._wrote = True
        except OSError as error:
            if self.folder not in _WARNED:
                warnings.warn(
                    f"the kernel cache '{self.folder}' cannot be written "
                    f"({error.strerror or error}); set TVM_DTR_CACHE_DIR to a folder, or to none",
                    stacklevel=2,
                )
            _WARNED.add(self.folder)

    def trim(self) -> None:
        """Remove what has not been used for longest if the folder has grown over its bound.

        Cheap where nothing was stored. Builds that read at the same time find an entry or none.
        """
        if self.folder is None or not self._wrote:
            return
        self._wrote = False
        bound = cache_bytes()
        files = sorted(self._files())
        total = sum(file.size for file in files)
        if bound is None or total <= bound:
            return
        for file in files:
            if total <= bound * KEPT_SHARE:
                break
            with contextlib.suppress(OSError):
                os.unlink(file.path)
            total -= file.size

    def _files(self) -> Iterator[_File]:
        """Every entry; what killed builds have left unfinished is removed on the way."""
        assert self.folder is not None
        oldest = time.time() - ABANDONED_SECONDS
        for shard in _entries(self.folder):
            if len(shard.name) != 2 or not shard.is_dir(follow_symlinks=False):
                continue  # not ours
            for entry in _entries(shard.path):
                with contextlib.suppress(OSError):  # gone meanwhile
                    status = entry.stat(follow_symlinks=False)
                    if not entry.name.startswith(_UNFINISHED):
                        yield _File(status.st_mtime, status.st_size, entry.path)
                    elif status.st_mtime < oldest:
                        os.unlink(entry.path)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / key[2:]


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that others see whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
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
