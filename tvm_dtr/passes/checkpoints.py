"""What planners of segments share: the forward pass, its cut points, and schedules that keep some
of its results and compute the rest again for the backward pass."""

from __future__ import annotations

from .graph import NotPlannableError, PlanGraph


def forward_positions(graph: PlanGraph, method: str) -> list[int]:
    """Positions of the forward pass, side ops included.

    Raises:
        NotPlannableError: it is not known, or there is no backward pass.
    """
    forward = [p for p, backward in enumerate(graph.is_backward) if not backward]
    if graph.backward is None or len(forward) == len(graph.is_backward):
        raise NotPlannableError(
            f"{method} works on training steps: {graph.name} does not say which ops are backward"
        )
    return forward


def spine(graph: PlanGraph, forward: list[int]) -> list[int]:
    """The forward ops that the loss needs."""
    return [p for p in forward if graph.ops[p].id not in graph.side_ops]


def cut_points(graph: PlanGraph, forward: list[int]) -> list[int]:
    """Forward ops that all later forward ops depend on through them alone, in order.

    In the forward pass's order these are the articulation points that separate what runs before
    from what runs after: no forward op after one reads a result from before it.
    """
    forward = spine(graph, forward)
    inside = set(forward)
    furthest = -1  # the last forward reader of anything made so far, apart from the op at hand
    cuts = []
    for position in forward:
        if furthest <= position:
            cuts.append(position)
        readers = [
            reader
            for storage in graph.ops[position].outputs
            for reader in graph.readers[storage]
            if reader in inside
        ]
        furthest = max([furthest, *readers])
    return cuts


def with_checkpoints(
    graph: PlanGraph, forward: list[int], checkpoints: set[int], whole_segments: bool
) -> list[int]:
    """Positions in the order to run when only ``checkpoints`` survive the forward pass.

    The first backward op that reads a dropped result has it computed again from the checkpoints;
    with ``whole_segments`` all that the backward pass wants of the same segment comes with it
    (Chen et al., 2016, section 3). Each dropped result is computed again at most once.
    """
    inside = set(forward)
    segment = {}
    number = 0
    for position in forward:
        segment[position] = number
        number += position in checkpoints
    wanted = _wanted_by_backward(graph, inside)
    restored = set(checkpoints)
    sequence: list[int] = []
    for position, op in enumerate(graph.ops):
        if position not in inside:
            for storage in op.inputs:
                maker = graph.maker[storage]
                if maker not in inside or maker in restored:
                    continue
                again = [maker]
                if whole_segments:
                    again = [p for p in wanted if segment[p] == segment[maker]]
                sequence += _restore(graph, again, restored)
        sequence.append(position)
    return sequence


def _wanted_by_backward(graph: PlanGraph, inside: set[int]) -> list[int]:
    return [
        position
        for position in sorted(inside)
        if any(
            reader not in inside
            for storage in graph.ops[position].outputs
            for reader in graph.readers[storage]
        )
    ]


def _restore(graph: PlanGraph, positions: list[int], restored: set[int]) -> list[int]:
    """What must run again for ``positions``, in order; marks it restored."""
    pending, again = list(positions), []
    while pending:
        position = pending.pop()
        if position in restored:
            continue
        restored.add(position)
        again.append(position)
        pending += graph.predecessors[position]
    return sorted(again)
