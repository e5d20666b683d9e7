"""Trains a small GPT to write like eight of Shakespeare's sonnets, a character at a time.

    python docs/examples/characters.py --epochs 20

The text (sonnets.txt: numbers 1, 2, 18, 29, 30, 73, 116 and 130 of 1609, in the spelling of later
editions, which differ in commas; all in the public domain) is cut into pieces of 32 characters; the
last sonnet is kept for the perplexity: the number of characters among which the model is undecided.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tvm_dtr
from tvm_dtr.evaluation import Evaluator
from tvm_dtr.models import gpt

BATCH, CONTEXT = 16, 32
TEXT = Path(__file__).with_name("sonnets.txt")


def pieces(text: str, alphabet: str, stride: int) -> dict[str, np.ndarray]:
    """Overlapping pieces of the text; each character's label is the one that follows it."""
    codes = np.array([alphabet.index(c) for c in text], "int64")
    starts = range(0, len(codes) - CONTEXT, stride)
    x = np.stack([codes[s : s + CONTEXT] for s in starts])
    labels = np.stack([codes[s + 1 : s + CONTEXT + 1] for s in starts])
    return {"x": x, "labels": labels}


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--memory-budget", default="70%")
    options = parser.parse_args(arguments)
    text = TEXT.read_text(encoding="utf-8")
    alphabet = "".join(sorted(set(text)))
    known, unknown = text.rsplit("\n\n", 1)
    model = gpt(
        batch=BATCH, seed=0, layers=2, width=64, heads=4, context=CONTEXT, vocabulary=len(alphabet)
    )
    program = tvm_dtr.build(
        model, loss="cross_entropy", optimizer=tvm_dtr.AdamW(2e-3), clip_norm=1.0
    )
    vm = tvm_dtr.VirtualMachine(program, memory_budget=options.memory_budget)
    evaluate = Evaluator(program, pieces(unknown, alphabet, CONTEXT), ["perplexity"])
    before = evaluate(vm)["perplexity"]
    trainer = tvm_dtr.Trainer(vm, pieces(known, alphabet, 8), epochs=options.epochs)
    trainer.run()
    after = evaluate(vm)["perplexity"]
    print(f"perplexity of the sonnet not seen: {before:.1f} before, {after:.1f} after training")
    return before, after


if __name__ == "__main__":
    main()
