"""Made-up graphs for planners, as networkx node-link data: layered random ones, training steps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any


def random_layered(nodes: int, seed: int = 0) -> dict[str, Any]:
    """A layered random DAG in the manner of Gagrani et al. (Neural Topological Ordering, 2022).

    One source, one sink, between them layers of sqrt(nodes) / 2 nodes on average (widths vary by
    three quarters); edges to the next layer with density 0.2, some that skip layers. The order is
    a random topological one.
    """
    draw = random.Random(seed)
    width = nodes**0.5 / 2 + 0.0062 * nodes
    layers = [[0]]
    count = 1
    while count < nodes - 1:
        size = min(nodes - 1 - count, max(1, round(draw.uniform(0.25, 1.75) * width)))
        layers.append(list(range(count, count + size)))
        count += size
    layers.append([nodes - 1])
    links = {link for depth in range(1, len(layers)) for link in _layer_links(layers, depth, draw)}
    read = {a for a, _ in links}
    for depth, layer in enumerate(layers[:-1]):
        links |= {(node, draw.choice(layers[depth + 1])) for node in layer if node not in read}
    return {
        "directed": True,
        "multigraph": False,
        "graph": {
            "name": f"random_layered_{nodes}",
            "order": _random_order(nodes, links, draw),
        },
        "nodes": [
            {
                "name": i,
                "out_cost": 10 * max(8, round(abs(draw.gauss(0, 245)))),
                "duration": draw.randint(0, 999),
            }
            for i in range(nodes)
        ],
        "links": [{"0": a, "1": b} for a, b in sorted(links)],
    }


def _layer_links(
    layers: list[list[int]], depth: int, draw: random.Random
) -> Iterator[tuple[int, int]]:
    for node in layers[depth]:
        producers = [p for p in layers[depth - 1] if draw.random() < 0.2]
        yield from ((p, node) for p in producers or [draw.choice(layers[depth - 1])])
        if depth > 1 and draw.random() < 0.35:
            yield draw.choice(layers[draw.randrange(0, depth - 1)]), node


def _random_order(nodes: int, links: set[tuple[int, int]], draw: random.Random) -> list[int]:
    waits, readers = [0] * nodes, [[] for _ in range(nodes)]
    for a, b in links:
        waits[b] += 1
        readers[a].append(b)
    ready = [node for node in range(nodes) if waits[node] == 0]
    order = []
    while ready:
        order.append(ready.pop(draw.randrange(len(ready))))
        for reader in sorted(readers[order[-1]]):
            waits[reader] -= 1
            if waits[reader] == 0:
                ready.append(reader)
    return order


def training_step(ops: int, seed: int = 0) -> dict[str, Any]:
    """Residual blocks of convolution, norm and relu, then their gradients in reverse order.

    Half of the ops are forward; convolutions cost ten times what the rest does; sizes fall by half
    and costs stay as in an image network's stages.
    """
    draw = random.Random(seed)
    forward = ops // 2
    nodes, links = [], []
    for i in range(forward):
        size = (1 << 20) >> (3 * i // forward)
        dear = i % 3 == 0
        cost = (100 if dear else 10) * draw.uniform(0.8, 1.2)
        nodes.append(_node(i, cost, size, False))
        if i > 0:
            links.append((i - 1, i))
        if i >= 6 and i % 6 == 0:
            links.append((i - 6, i))
    for k in range(forward):
        i, of = forward + k, forward - 1 - k
        nodes.append(_node(i, 2 * nodes[of]["cost_cpu"], nodes[of]["cost_ram"], True))
        links.append((i - 1, i))
        links.append((of, i))
        if of > 0:
            links.append((of - 1, i))
        if of % 6 == 0 and k >= 6:
            links.append((i - 6, i))
    return {
        "directed": True,
        "multigraph": False,
        "graph": {"name": f"training_step_{ops}"},
        "nodes": nodes,
        "links": [{"source": a, "target": b} for a, b in sorted(set(links))],
    }


def _node(index: int, cost: float, size: int, backward: bool) -> dict[str, Any]:
    return {"id": index, "cost_cpu": cost, "cost_ram": size, "backward": backward}
