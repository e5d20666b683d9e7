"""What became of a fault: one line of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """fault, place: what was made to fail, and where. tries: how often, at other points each time.

    raised: what the caller gets. afterwards: what was asserted of the VM or the process. files:
    what was asserted of what is on disk.
    """

    fault: str
    place: str
    tries: int
    raised: str
    afterwards: str
    files: str = "-"

    def line(self) -> str:
        cells = (self.fault, self.place, str(self.tries), self.raised, self.afterwards, self.files)
        return "| " + " | ".join(cells) + " |"
