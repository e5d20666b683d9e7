"""A small share of the soak, and the same programs from a search that shrinks what fails."""

import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_control_flow import Generator
from soak import Subject, Totals, soak_program

PROGRAMS, CASES = 25, 80


def test_random_programs_under_random_budgets():
    totals = Totals()
    for seed in range(PROGRAMS):
        soak_program(seed, CASES, totals)
    assert not totals.failures, totals.failures[:3]
    assert totals.cases == PROGRAMS * CASES
    assert totals.counts["cases with rematerialization"] > totals.cases / 4
    for kind in ("branch", "loop", "closure", "list", "tuple", "view", "halves"):
        assert totals.counts[f"ops made by {kind}"] > 0, kind


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_shrinking_search(data):
    def choose(n: int) -> int:
        return data.draw(st.integers(0, n - 1))

    module = Generator(choose, calls=8).make()
    share = data.draw(st.floats(0.1, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(module, folder)
        subject.run(max(1, int(subject.peak * share)), "dtr-eq", seed=0)
