"""Output files: refused early when they cannot be written, and never left half written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tvm_dtr.errors import UsageError


def check_outputs(paths: Iterable[str | None], inputs: Iterable[str] = ()) -> None:
    """Refuses an output before the work whose result it would lose.

    Raises:
      UsageError: a path is a directory, its folder is missing or may not be written to, it is the
        file of one of ``inputs`` or that of another output, through links or not.
    """
    taken = [(name, "an input of this command") for name in inputs]
    for name in filter(None, paths):
        path, folder = Path(name), Path(name).parent
        if path.is_dir():
            raise UsageError(f"output '{name}' is a directory: name a file")
        if not folder.is_dir():
            raise UsageError(f"output '{name}': there is no folder '{folder}'")
        if _is_special(path):
            continue  # nothing is made beside it, and it may take several outputs
        for other, role in taken:
            if _same_file(name, other):
                raise UsageError(f"output '{name}' is {role} ('{other}'): name another file")
        taken.append((name, "another output"))
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UsageError(
                f"output '{name}': cannot write to the folder '{folder}': {error.strerror}"
            ) from None


def _same_file(one: str, other: str) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_special(path: Path) -> bool:
    """A device, a pipe, or a stream that /dev names, whatever it leads to."""
    return (path.exists() and not path.is_file()) or path.is_relative_to("/dev")


@contextlib.contextmanager
def replacing(name: str) -> Iterator[Path]:
    """Gives a path to write to that takes the place of ``name`` at the end, all at once.

    The path has the suffix of ``name``. On an error nothing is left and an older file stays as it
    was. A link is followed; what is no plain file (a device, a pipe) is written to, not replaced.
    """
    special = _is_special(Path(name))
    target = Path(name if special else os.path.realpath(name))
    handle, draft_name = tempfile.mkstemp(
        prefix=f".{target.stem}.", suffix=target.suffix, dir=None if special else target.parent
    )
    os.close(handle)
    draft = Path(draft_name)
    try:
        yield draft
        if special:
            with draft.open("rb") as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            return
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o666 & ~umask)  # mkstemp makes it private
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def write_rows(name: str | None, rows: list[dict[str, Any]]) -> None:
    """Writes ``{"rows": [...]}``; no name, no file."""
    if name is None:
        return
    with replacing(name) as draft:
        draft.write_text(json.dumps({"rows": rows}, indent=2) + "\n", encoding="utf-8")
