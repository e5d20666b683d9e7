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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    model = models.gpt(
        batch=arguments.batch,
        seed=0,
        layers=arguments.layers,
        width=arguments.width,
        context=arguments.context,
        vocabulary=arguments.vocabulary,
    )
    program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.AdamW())
    state = sum(array.nbytes for array in program.initial_state.values())
    rng = np.random.default_rng(0)
    size = (arguments.batch, arguments.context)
    batches = [
        {
            "x": rng.integers(0, arguments.vocabulary, size),
            "labels": rng.integers(0, arguments.vocabulary, size),
        }
        for _ in range(arguments.steps)
    ]
    rows = []
    finals = []
    for in_place in (True, False):
        vm = tvm_dtr.VirtualMachine(program, in_place=in_place)
        seconds = []
        for batch in batches:
            vm.step(**batch)
            seconds.append(vm.stats["step_seconds"])
        finals.append(dict(vm.parameters))
        rows.append(
            {
                "in_place": in_place,
                "peak_bytes": vm.stats["peak_bytes"],
                "state_bytes": state,
                "step_seconds": float(np.median(seconds[1:])),
                "overwrites": vm.counters()["overwrites"],
                "copies_on_write": vm.counters()["copies_on_write"],
            }
        )
        del vm
    equal = all(finals[0][n].tobytes() == finals[1][n].tobytes() for n in finals[0])
    saved = rows[1]["peak_bytes"] - rows[0]["peak_bytes"]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "in_place.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        f"# Updates in place\n\nGPT of {arguments.layers} layers of {arguments.width}, "
        f"{arguments.vocabulary} tokens, {arguments.context} positions, batch "
        f"{arguments.batch}, AdamW; parameters and optimizer state take {state / 2**20:.1f} MiB. "
        f"All {len(finals[0])} tensors of the state are bitwise equal after {arguments.steps} "
        f"steps: {'yes' if equal else 'NO'}.\n",
        "| updates | peak MiB | step ms | in place | copies on write |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {'in place' if row['in_place'] else 'out of place'} | "
            f"{row['peak_bytes'] / 2**20:.2f} | {row['step_seconds'] * 1e3:.1f} | "
            f"{row['overwrites']} | {row['copies_on_write']} |"
        )
    lines.append(f"\nSaved: {saved / 2**20:.2f} MiB, {saved / state:.2f} of parameters and state.")
    text = "\n".join(lines) + "\n"
    (RESULTS / "in_place.md").write_text(text)
    print(text)
    if not equal:
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
