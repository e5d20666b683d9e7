"""How many threads kernels get by default, and how many cores other work may take."""

from __future__ import annotations

import functools
import os
from pathlib import Path

_SYSTEM = Path("/sys")


def default_threads(system: Path = _SYSTEM) -> int:
    """The cores that this process may use: its affinity's, hyper-threads of a core counted once,
    and no more than its control group's quota of processor time.

    TVM itself takes half of the machine's processors, whether they are hyper-threads or not: one of
    two cores, and 64 of 128 processors in a container that has a quota of four.
    """
    allowed = sorted(os.sched_getaffinity(0))
    cores = {_siblings(system, processor) or str(processor) for processor in allowed}
    quota = _quota(system / "fs/cgroup")
    return max(1, min(len(cores), int(quota) if quota is not None else len(cores)))


@functools.cache
def cores() -> int:
    """``default_threads`` of when this package was imported: TVM changes its thread's affinity as
    it starts its own threads."""
    return default_threads()


def _siblings(system: Path, processor: int) -> str:
    return _text(system / f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list")


def _quota(group: Path) -> float | None:
    """In processors, None for no limit. Of the group that a container sees as its root."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not period:
        quota = _text(group / "cpu/cpu.cfs_quota_us")
        period = _text(group / "cpu/cpu.cfs_period_us")
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
