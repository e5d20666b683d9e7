"""tvm_dtr/progress: what a build tells of how far it is."""

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.progress import counted


def test_counts_without_telling_of_each():
    calls = []
    items = list(range(1000))
    assert list(counted(items, "work", lambda *call: calls.append(call))) == items
    assert 100 <= len(calls) <= 200
    assert [done for done, _, _ in calls] == sorted({done for done, _, _ in calls})
    assert {(total, what) for _, total, what in calls} == {(1000, "work")}


def test_nothing_to_count_and_nobody_to_tell():
    assert list(counted([], "work", lambda *_: None)) == []
    assert list(counted([1, 2], "work", None)) == [1, 2]


def test_a_step_tells_of_import_and_differentiation():
    calls = []
    model = models.make("mlp4", batch=2)
    tvm_dtr.make_training_step(
        model, loss="cross_entropy", progress=lambda *call: calls.append(call)
    )
    told = list(dict.fromkeys(what for _, _, what in calls))
    assert told == ["importing nodes", "differentiating"]
    assert all(0 <= done < total for done, total, _ in calls)
