"""Schedules against PyTorch's schedulers."""

from pathlib import Path

import numpy as np
import pytest

from tvm_dtr.errors import UsageError
from tvm_dtr.learning_rates import (
    Constant,
    Cosine,
    OneCycle,
    StepDecay,
    WarmUp,
    make_schedule,
)

GOLDEN = np.load(Path(__file__).parent.parent / "data" / "torch_optimizers.npz")
SCHEDULES = {
    "constant": Constant(0.3),
    "step": StepDecay(0.3, every=7, gamma=0.5),
    "cosine": Cosine(0.3, steps=50, least=0.01),
    "warm_up": WarmUp(Cosine(0.3, steps=45), steps=5, start=0.1),
    "one_cycle": OneCycle(0.3, steps=51),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name):
    rates = [SCHEDULES[name](step) for step in range(50)]
    np.testing.assert_allclose(rates, GOLDEN[f"rates/{name}"], rtol=1e-12, atol=1e-18)


def test_rates_after_the_end_stay():
    assert Cosine(0.3, steps=10, least=0.1)(25) == pytest.approx(0.1)
    assert OneCycle(0.3, steps=10)(25) == OneCycle(0.3, steps=10)(9)


def test_schedules_by_name():
    assert make_schedule("cosine", 0.1, 100, warm_up=10) == WarmUp(Cosine(0.1, 90), 10)
    assert make_schedule("step", 0.1, 90) == StepDecay(0.1, 30)
    assert make_schedule("one-cycle", 0.1, 9) == OneCycle(0.1, 9)
    with pytest.raises(UsageError, match="schedules are constant, step, cosine, one-cycle"):
        make_schedule("linear", 0.1, 10)
    with pytest.raises(UsageError, match="a warm-up of 10 steps leaves none of 10"):
        make_schedule("constant", 0.1, 10, warm_up=10)
    with pytest.raises(UsageError, match="every must be a whole number"):
        StepDecay(0.1, every=0)
