"""tests/fuzz: each target on its corpus and on some hundred changed inputs, the same each time."""

import random
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

from targets import TARGETS, Target  # noqa: E402

INPUTS = {"budget": 3000, "log": 600, "packed_log": 600, "schedule": 600, "program": 200}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_corpus_and_changed_inputs(name):
    target = TARGETS[name]
    corpus = target.corpus()
    accepted = sum(target(data) for data in corpus)
    assert accepted == len(corpus), "what was written by this package is read"
    rng = random.Random(0)
    refused = 0
    for _ in range(INPUTS.get(name, 60)):
        data = target.mutate(rng.choice(corpus), rng)
        try:
            refused += not target(data)
        except Exception as error:
            raise AssertionError(f"{name} does not bear {data[:2000]!r}") from error
    assert refused > 0


def test_an_untyped_error_is_a_defect():
    def read(data: bytes) -> None:
        raise IndexError(data)

    with pytest.raises(IndexError):
        Target("broken", read, lambda data, rng: data)(b"")
