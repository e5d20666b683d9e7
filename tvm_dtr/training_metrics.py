"""A file of records, one line of JSON each, that a resumed run continues."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import IO, Any

from .errors import UsageError


class MetricsFile:
    """Records by step. Raises UsageError where the folder does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir() or not self.path.parent.is_dir():
            raise UsageError(f"metrics '{self.path}': name a file in a folder that exists")
        self._stream: IO[str] | None = None

    def start(self, step: int) -> None:
        """Keeps the records up to ``step``: those after it are of steps that will run again."""
        kept = [line for line in self._lines() if _step_of(line) <= step] if step else []
        handle, draft = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in kept)
        os.chmod(draft, 0o644)
        os.replace(draft, self.path)
        self._stream = self.path.open("a", encoding="utf-8")

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8").splitlines()

    def write(self, record: dict[str, Any]) -> None:
        assert self._stream is not None
        self._stream.write(json.dumps({k: _json(v) for k, v in record.items()}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None


def _step_of(line: str) -> float:
    """The record's step; a line that a crash left half written goes."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _json(value: Any) -> Any:
    """JSON has no number for NaN and infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
