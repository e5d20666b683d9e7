"""The core of tvm-dtr: replay of programs on the DTR runtime. No TVM."""

from collections.abc import Sequence

def searches() -> list[str]:
    """Names that --search takes."""

def policies() -> list[str]:
    """Names that --policy takes."""

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
    ) -> None: ...
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
    ) -> dict: ...
    def lower_bound(self) -> int: ...
    def constant_bytes(self) -> int: ...
    def largest_op_bytes(self) -> int: ...
    def smallest_budget(
        self,
        policy: str = "dtr-eq",
        search: str = "heap",
        seed: int = 0,
        thrash_limit: float = 10.0,
        tolerance: int = 65536,
    ) -> int: ...
