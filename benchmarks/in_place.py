"""What updates in place save: AdamW on a GPT-style model, with and without them, bit by bit.

    python benchmarks/in_place.py

Writes benchmarks/results/in_place.json and .md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import tvm_dtr
from tvm_dtr import models

RESULTS = Path(__file__).with_name("results")


# batch, context, vocabulary: from few activations to many, and an embedding that outweighs them.
CASES = ((1, 8, 256), (1, 32, 256), (4, 32, 256), (1, 8, 4096))

# How a step may update, and whether updates run in place: as here; the same step, but no update
# in place; and as a gradient step followed by an update step does, where the gradients are held
# until all of the state has been made anew.
WAYS = {
    "in_place": ({}, True),
    "out_of_place": ({}, False),
    "gradients_first": ({"return_gradients": True}, False),
}


def measured(case: tuple[int, int, int], layers: int, width: int, steps: int) -> dict:
    """Peaks of the three ways, and what they hold beside the state."""
    batch, context, vocabulary = case
    model = models.gpt(
        batch=batch, seed=0, layers=layers, width=width, context=context, vocabulary=vocabulary
    )
    rng = np.random.default_rng(0)
    feeds = [
        {name: rng.integers(0, vocabulary, (batch, context)) for name in ("x", "labels")}
        for _ in range(steps)
    ]
    row: dict = {"batch": batch, "context": context, "vocabulary": vocabulary}
    finals = []
    for way, (options, in_place) in WAYS.items():
        program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.AdamW(), **options)
        vm = tvm_dtr.VirtualMachine(program, in_place=in_place)
        seconds = []
        for feed in feeds:
            vm.step(**feed)
            seconds.append(vm.stats["step_seconds"])
        state = dict(vm.parameters)
        finals.append({name: array.tobytes() for name, array in state.items()})
        row[f"{way}_peak_bytes"] = vm.stats["peak_bytes"]
        row[f"{way}_step_seconds"] = float(np.median(seconds[1:]))
        if in_place:
            counters = vm.counters()
            row |= {name: counters[name] for name in ("overwrites", "copies_on_write")}
            names = program.parameter_names
            row["parameter_bytes"] = sum(state[name].nbytes for name in names)
            row["state_bytes"] = sum(array.nbytes for array in state.values())
        del vm
    # Gradients that are returned are not fused into their updates, and may differ in a last bit.
    row["bitwise_equal"] = finals[0] == finals[1]
    size, peak = row["state_bytes"], row["in_place_peak_bytes"]
    for way in ("out_of_place", "gradients_first"):
        row[f"saved_of_{way}"] = (row[f"{way}_peak_bytes"] - peak) / size
    row["beside_at_most_bytes"] = peak - size
    row["beside_at_end_bytes"] = row["out_of_place_peak_bytes"] - 2 * size
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(measured(case, arguments.layers, arguments.width, arguments.steps))
        print(rows[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "in_place.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        f"# Updates in place\n\nGPT of {arguments.layers} layers of {arguments.width}, AdamW. S: "
        "parameters and optimizer state, G: gradients. Gradients first: a gradient step, then an "
        "update step that makes all state anew, as training loops without updates in place do. "
        "Out of place: the same step as in place, each update as soon as its gradient is final. "
        "A: the most that is held beside S in place; E: beside 2 S out of place, at the end of the "
        "step. In place saves S + G + E - A of the former and S + E - A of the latter. E is part "
        "of A: no step saves more than S of its own updates.\n",
        "| batch, context, tokens | S MiB | G | gradients first | out of place | in place | A | E "
        "| saved / S of gradients first | of out of place | in place, elsewhere | bitwise |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        sizes = (
            row["state_bytes"],
            row["parameter_bytes"],
            *(row[f"{way}_peak_bytes"] for way in ("gradients_first", "out_of_place", "in_place")),
            row["beside_at_most_bytes"],
            row["beside_at_end_bytes"],
        )
        lines.append(
            f"| {row['batch']}, {row['context']}, {row['vocabulary']} | "
            + " | ".join(f"{size / 2**20:.2f}" for size in sizes)
            + f" | {row['saved_of_gradients_first']:.2f} | {row['saved_of_out_of_place']:.2f} | "
            f"{row['overwrites']}, {row['copies_on_write']} | "
            f"{'equal' if row['bitwise_equal'] else 'NO'} |"
        )
    text = "\n".join(lines) + "\n"
    (RESULTS / "in_place.md").write_text(text)
    print(text)
    if not all(row["bitwise_equal"] for row in rows):
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
