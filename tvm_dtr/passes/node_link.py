"""Graphs of the scheduling literature: networkx node-link JSON.

Checkmate's training graphs (Jain et al., MLSys 2020) have nodes with ``cost_cpu`` (microseconds),
``cost_ram`` (bytes) and ``backward``; random layered graphs (Moccasin; Bartan et al., 2023) have
``duration`` and ``out_cost`` (bytes). Edges point from producer to consumer. ``graph.order`` is the
order to run in, where there is one; else the nodes' own, if it is topological, else a topological
one. Every node is an op with one result; nodes that nobody reads are kept to the end.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ..errors import UsageError
from .graph import PlanGraph

_COST_FIELDS = ("cost_cpu", "duration", "cost", "time")
_BYTES_FIELDS = ("cost_ram", "out_cost", "bytes", "memory", "size")


def is_node_link(data: Any) -> bool:
    """Whether parsed JSON is a networkx graph."""
    return isinstance(data, dict) and "nodes" in data and ("links" in data or "edges" in data)


def graph_of_node_link(data: dict[str, Any], name: str) -> PlanGraph:
    """The PlanGraph of a networkx graph; sizes count as given.

    Raises:
        UsageError: a node without cost or bytes, an edge to an unknown node, a cycle, an order
            that is no topological order of all nodes.
    """
    nodes = data["nodes"]
    ids = [_node_id(node, index) for index, node in enumerate(nodes)]
    index_of = {node: index for index, node in enumerate(ids)}
    if len(index_of) != len(ids):
        raise UsageError(f"graph '{name}': two nodes have the same id")
    reads: list[list[int]] = [[] for _ in nodes]
    for link in data["links" if "links" in data else "edges"]:
        source, target = _ends(link)
        if source not in index_of or target not in index_of:
            raise UsageError(f"graph '{name}': the edge {source} -> {target} names no node")
        reads[index_of[target]].append(index_of[source])
    order = _order(data, index_of, reads, name)
    costs = [_number(node, _COST_FIELDS, name, ids[i]) for i, node in enumerate(nodes)]
    sizes = [int(_number(node, _BYTES_FIELDS, name, ids[i])) for i, node in enumerate(nodes)]
    read = {producer for producers in reads for producer in producers}
    core = _core.Replay(
        kernels=[(cost, 0) for cost in costs],
        storages=sizes,
        tensors=[(index, -1) for index in range(len(nodes))],
        ops=[(index, sorted(set(reads[index])), [index]) for index in range(len(nodes))],
        pinned=[],
        results=[index for index in range(len(nodes)) if index not in read],
        instructions=_with_kills(order, reads),
    )
    known = any("backward" in node for node in nodes)
    backward = [bool(node.get("backward")) for node in nodes] if known else None
    names = [str(node.get("name", node_id)) for node, node_id in zip(nodes, ids, strict=True)]
    return PlanGraph(name, core, exact_bytes=True, backward=backward, op_names=names)


def _node_id(node: dict[str, Any], index: int) -> Any:
    if "id" in node:
        return node["id"]
    name = node.get("name")
    return name if isinstance(name, int) else index


def _ends(link: dict[str, Any]) -> tuple[Any, Any]:
    if "source" in link:
        return link["source"], link["target"]
    return link["0"], link["1"]


def _number(node: dict[str, Any], fields: tuple[str, ...], graph: str, node_id: Any) -> float:
    for field in fields:
        if field in node:
            return float(node[field])
    raise UsageError(f"graph '{graph}': node {node_id} has none of {', '.join(fields)}")


def _order(
    data: dict[str, Any], index_of: dict[Any, int], reads: list[list[int]], name: str
) -> list[int]:
    given = (data.get("graph") or {}).get("order")
    if given is not None:
        order = [index_of.get(node, -1) for node in given]
        if sorted(order) != list(range(len(reads))) or not _topological(order, reads):
            raise UsageError(f"graph '{name}': graph.order is no topological order of the nodes")
        return order
    order = list(range(len(reads)))
    return order if _topological(order, reads) else _sorted(reads, name)


def _topological(order: list[int], reads: list[list[int]]) -> bool:
    place = {node: i for i, node in enumerate(order)}
    return all(place[p] < place[node] for node in order for p in reads[node])


def _sorted(reads: list[list[int]], name: str) -> list[int]:
    """Kahn's algorithm, the smallest index first."""
    import heapq

    waits = [len(set(producers)) for producers in reads]
    readers: list[list[int]] = [[] for _ in reads]
    for node, producers in enumerate(reads):
        for producer in set(producers):
            readers[producer].append(node)
    ready = [node for node, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for reader in readers[node]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(reads):
        raise UsageError(f"graph '{name}' has a cycle")
    return order


def _with_kills(order: list[int], reads: list[list[int]]) -> list[tuple[int, int]]:
    """(0, op) and (2, tensor): each tensor killed after its last reader; unread ones stay."""
    last = {producer: node for node in order for producer in reads[node]}
    instructions: list[tuple[int, int]] = []
    for node in order:
        instructions.append((0, node))
        instructions += [(2, p) for p in sorted(set(reads[node])) if last[p] == node]
    return instructions
