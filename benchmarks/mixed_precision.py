"""What mixed precision saves: peaks of training steps in float16 and bfloat16 against float32.

    python benchmarks/mixed_precision.py

Nothing runs: peaks are those of a replay, and do not depend on the machine's load. Writes
benchmarks/results/mixed_precision.json and .md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import tvm_dtr
from tvm_dtr import models

RESULTS = Path(__file__).with_name("results")
TYPES = ("float32", "bfloat16", "float16")
MODELS = {
    "resnet20, batch 32": lambda: models.make("resnet20", batch=32),
    "unet, batch 4": lambda: models.make("unet", batch=4),
    "gpt of 4 layers of 128, 8 x 128 tokens": lambda: models.gpt(batch=8, seed=0),
}


def peak(make, dtype: str) -> int:
    """Of float16 with a fixed loss scale: a dynamic one needs all gradients at once."""
    program = tvm_dtr.build(
        make(),
        loss="cross_entropy",
        optimizer=tvm_dtr.SGD(0.01),
        mixed_precision=None if dtype == "float32" else dtype,
        loss_scale=1024.0 if dtype == "float16" else None,
    )
    return program.unbudgeted_peak_bytes


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    rows = []
    for name, make in MODELS.items():
        peaks = {dtype: peak(make, dtype) for dtype in TYPES}
        rows.append({"model": name} | {f"{dtype}_peak_bytes": peaks[dtype] for dtype in TYPES})
        print(rows[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "mixed_precision.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    lines = [
        "# Mixed precision\n\nPeak without a budget of a training step with SGD, MiB.\n",
        "| model | float32 | bfloat16 | float16 | bfloat16 / float32 |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        sizes = [row[f"{dtype}_peak_bytes"] for dtype in TYPES]
        shown = " | ".join(f"{size / 2**20:.1f}" for size in sizes)
        lines.append(f"| {row['model']} | {shown} | {sizes[1] / sizes[0]:.2f} |")
    text = "\n".join(lines) + "\n"
    (RESULTS / "mixed_precision.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
