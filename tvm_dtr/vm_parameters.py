"""A virtual machine's state as a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .vm import VirtualMachine


class Parameters(Mapping[str, np.ndarray]):
    """The state of a program by name: reading copies out, writing copies in after a check."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __getitem__(self, name: str) -> np.ndarray:
        return self._machine._state[name].numpy()

    def __setitem__(self, name: str, value: Any) -> None:
        self._machine.set_parameters({name: value})

    def __iter__(self) -> Iterator[str]:
        return iter(self._machine._state)

    def __len__(self) -> int:
        return len(self._machine._state)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self)})"
