"""The same trace, policy, budget and seed give the same decisions, on every run and machine.

The digests below were made on x86-64 with GCC. Costs and sizes are integers and scores
are computed without fused multiply-add, so that every machine must find them.
"""

import hashlib

import pytest

from tvm_dtr import _core
from tvm_dtr.simulation.workloads import make_workload

WORKLOADS = ("resnet:300", "transformer:320", "recurrence:200", "tree:254")
DIGESTS = {
    "dtr-eq": "27b5e0ca1feb3ab2",
    "dtr": "caaafd766671ced5",
    "dtr-local": "574f515ab6a2a61b",
    "lru": "e9fe615b09c3b1cb",
    "size": "44f1655b0c0af637",
    "msps": "aa5fbc638c44cb8a",
    "dtr-up": "f3d678f270fd06f4",
    "e-star": "7e9bbfbb58c14623",
    "random": "83154067dfb562dc",
    "dtr-eq, sqrt": "1859e1962d96eb68",
}


def digest(policy, search):
    text = hashlib.sha256()
    for name in WORKLOADS:
        trace = make_workload(name)
        for share in (0.7, 0.5):
            run = trace.replay.run(
                budget=int(share * trace.unbudgeted_peak_bytes),
                policy=policy,
                search=search,
                seed=5,
                events=True,
            )
            text.update(repr((run["result"], run["events"])).encode())
    return text.hexdigest()[:16]


@pytest.mark.parametrize("policy", [p for p in _core.policies() if p != "window"])
def test_decisions_are_those_of_every_machine(policy):
    assert digest(policy, "heap") == DIGESTS[policy]


def test_a_random_sample_repeats_with_its_seed():
    assert digest("dtr-eq", "sqrt") == DIGESTS["dtr-eq, sqrt"]


@pytest.mark.parametrize("policy", ["dtr", "dtr-up", "msps", "e-star", "dtr-local", "lru", "size"])
def test_heap_decides_as_a_scan_does(policy):
    assert digest(policy, "scan") == DIGESTS[policy]
