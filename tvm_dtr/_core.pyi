"""The core of tvm-dtr: replay of programs on the DTR runtime. No TVM."""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

class Arena:
    """An arena without memory: --arena's names, in bytes."""

    def __init__(self, name: str, capacity: int) -> None: ...
    def allocate(self, number: int, size: int) -> bool:
        """Whether a block of `size` bytes fits; it is then known by `number`."""

    def free(self, number: int) -> None: ...
    def charge(self, size: int) -> bool: ...
    def discharge(self, size: int) -> None: ...
    @property
    def active(self) -> int: ...
    @property
    def mapped(self) -> int: ...
    @property
    def largest_free(self) -> int: ...

def searches() -> list[str]:
    """Names that --search takes."""

def policies() -> list[str]:
    """Names that --policy takes."""

def arenas() -> list[str]:
    """Names that --arena takes."""

def deallocations() -> list[str]:
    """Names that --dealloc takes."""

DISPATCH_COST: float = 3000.0

class Replay:
    def __init__(
        self,
        kernels: Sequence[tuple[float, int]],
        storages: Sequence[int],
        tensors: Sequence[tuple[int, int]],
        ops: Sequence[tuple[int, Sequence[int], Sequence[int]]],
        pinned: Sequence[int],
        results: Sequence[int],
        instructions: Sequence[tuple[int, int]],
        external: Sequence[int] = [],
        next_state: Sequence[tuple[int, int]] = [],
        overwrites: Sequence[tuple[int, int]] = [],
        dispatch_cost: float = 0.0,
    ) -> None: ...
    @staticmethod
    def from_arrays(
        costs: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        sizes: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        inputs: Annotated[
            NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        input_starts: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        outputs: Annotated[
            NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        output_starts: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        pinned: Sequence[int],
        results: Sequence[int],
        codes: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        ids: Annotated[
            NDArray[numpy.uint32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> Replay:
        """
        One cost an op, one size a tensor; ops name tensors by runs of flat arrays.
        """

    def run(
        self,
        budget: int | None = None,
        policy: str = "dtr-eq",
        search: str = "heap",
        seed: int = 0,
        thrash_limit: float = 10.0,
        memory: bool = False,
        events: bool = False,
        exact_bytes: bool = False,
        dealloc: str = "eager",
        reserve: int = 0,
        steps: int = 1,
        measure_search: bool = False,
        arena: str = "paged",
        allocations: bool = False,
    ) -> dict: ...
    def lower_bound(self, arena: str = "paged") -> int: ...
    def constant_bytes(self) -> int: ...
    def largest_op_bytes(self) -> int: ...
    def smallest_budget(
        self,
        policy: str = "dtr-eq",
        search: str = "heap",
        seed: int = 0,
        thrash_limit: float = 10.0,
        tolerance: int = 65536,
        dealloc: str = "eager",
        reserve: int = 0,
        steps: int = 1,
        arena: str = "paged",
    ) -> int: ...
    def order(self) -> list[int]:
        """Op ids in the order they run."""

    def schedule_of(self, ops: Sequence[int]) -> list[tuple[str, int]]:
        """
        Steps that compute `ops` in order and free storages as early as can be.
        """

    def overwrites_in(self, ops: Sequence[int]) -> list[int]:
        """
        Those of `ops` that write over the parameter that they update, in this order.
        """

    def check_schedule(
        self, steps: Sequence[tuple[str, int]], exact_bytes: bool = False, steps_run: int = 1
    ) -> dict:
        """Peak, cost and validity of a schedule."""

    def planning_graph(self, exact_bytes: bool = False) -> dict: ...
    def anneal(
        self,
        budget: int,
        time_limit: float = 10.0,
        seed: int = 0,
        exact_bytes: bool = False,
        starts: Sequence[Sequence[int]] = [],
        free_order: bool = False,
        progress: Callable[[float, float | None], bool] | None = None,
    ) -> dict: ...
