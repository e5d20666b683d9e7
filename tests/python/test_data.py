"""Batches: what they hold, in which order, and what is refused."""

import sys
import threading

import numpy as np
import pytest

from tvm_dtr.data import ArrayBatches, IterableBatches, open_data, prefetched
from tvm_dtr.errors import InputError, UsageError
from tvm_dtr.training import TensorSpec

SPECS = [
    TensorSpec("x", (4, 2), "float32"),
    TensorSpec("labels", (4,), "int64", classes=3),
    TensorSpec("lr", (), "float64", default=0.1),
]


def arrays(count=10):
    x = np.arange(2 * count, dtype="float32").reshape(count, 2)
    return {"x": x, "labels": np.arange(count) % 3}


def rows_of(batches, epoch, start=0):
    return [b["x"][:, 0].astype(int) // 2 for b in batches.epoch(epoch, start)]


def test_rows_of_an_input_stay_together_and_each_comes_once():
    batches = ArrayBatches(SPECS, arrays(12), seed=3)
    seen = list(batches.epoch(0))
    assert batches.per_epoch == len(seen) == 3
    for batch in seen:
        assert list(batch) == ["x", "labels"]
        assert np.array_equal(batch["labels"], batch["x"][:, 0] // 2 % 3)
    assert sorted(np.concatenate(rows_of(batches, 0))) == list(range(12))


def test_an_epoch_depends_on_seed_and_number_alone():
    one, two, other = (ArrayBatches(SPECS, arrays(), seed=s) for s in (1, 1, 2))
    assert np.array_equal(rows_of(one, 5), rows_of(two, 5))
    assert np.array_equal(rows_of(one, 5)[1:], rows_of(two, 5, start=1))
    assert not np.array_equal(rows_of(one, 5), rows_of(one, 6))
    assert not np.array_equal(rows_of(one, 5), rows_of(other, 5))
    assert np.array_equal(
        rows_of(ArrayBatches(SPECS, arrays(), shuffle=False), 9), [[0, 1, 2, 3], [4, 5, 6, 7]]
    )


def test_the_last_rows_are_left_out_or_filled_up():
    kept = ArrayBatches(SPECS, arrays(), shuffle=False, drop_last=False)
    assert [list(rows) for rows in rows_of(kept, 0)][-1] == [8, 9, 0, 1]
    tiny = ArrayBatches(SPECS, arrays(3), shuffle=False, drop_last=False)
    assert [list(rows) for rows in rows_of(tiny, 0)] == [[0, 1, 2, 0]]
    with pytest.raises(InputError, match=r"3 samples do not fill a batch of 4"):
        ArrayBatches(SPECS, arrays(3))


def test_several_rows_of_a_sample():
    specs = [TensorSpec("ids", (2, 3), "int64"), TensorSpec("labels", (6,), "int64")]
    ids = np.arange(12).reshape(4, 3)
    batch = next(ArrayBatches(specs, {"ids": ids, "labels": ids + 1}, shuffle=False).epoch(0))
    assert np.array_equal(batch["labels"], [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None}, r"no array 'labels' \(it has x\)"),
        (
            {"x": np.zeros((10, 3))},
            r"array 'x' is float64\[10, 3\], expected rows for float32\[4, 2\]",
        ),
        ({"labels": np.zeros(9, int)}, "different numbers of samples: x 10, labels 9"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change, message):
    given = {k: v for k, v in {**arrays(), **change}.items() if v is not None}
    with pytest.raises(InputError, match=message):
        open_data(given, SPECS)


def test_arrays_without_an_input_are_named():
    with pytest.warns(UserWarning, match="data: no input is called 'y', not used"):
        open_data({**arrays(), "y": np.zeros(10)}, SPECS)


def test_files(tmp_path):
    np.savez(tmp_path / "d.npz", **arrays())
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, array in arrays().items():
        np.save(folder / f"{name}.npy", array)
    of_file, of_folder = open_data(tmp_path / "d.npz", SPECS), open_data(str(folder), SPECS)
    assert isinstance(of_folder._arrays["x"], np.memmap)
    for a, b in zip(of_file.epoch(1), of_folder.epoch(1), strict=True):
        assert np.array_equal(a["x"], b["x"]) and np.array_equal(a["labels"], b["labels"])
    (tmp_path / "e.npz").write_bytes((tmp_path / "d.npz").read_bytes()[:100])
    with pytest.raises(InputError, match=r"e\.npz': cannot be read"):
        open_data(tmp_path / "e.npz", SPECS)
    with pytest.raises(UsageError, match=r"no such file; expected FILE\.npz"):
        open_data(tmp_path / "none.npz", SPECS)
    with pytest.raises(UsageError, match=r"expected FILE\.npz"):
        open_data(__file__, SPECS)
    with pytest.raises(UsageError, match=r"holds no \.npy file"):
        open_data(tmp_path, SPECS)


def test_a_function_of_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_batches.py").write_text(
        "def make(epoch, seed):\n    yield from ([epoch, seed], [epoch + 1, seed])\n"
    )
    batches = open_data("my_batches:make", SPECS, seed=7)
    assert list(batches.epoch(2)) == [{"x": 2, "labels": 7}, {"x": 3, "labels": 7}]
    assert list(batches.epoch(2, start=1)) == [{"x": 3, "labels": 7}]
    with pytest.raises(UsageError, match="module 'my_batches' has no 'other'"):
        open_data("my_batches:other", SPECS)
    with pytest.raises(UsageError, match="cannot import 'my_missing_module'"):
        open_data("my_missing_module:f", SPECS)


class Loader:
    """As a PyTorch DataLoader: pairs, a length, and a sampler's set_epoch."""

    def __init__(self):
        self.epoch = None

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([(self.epoch, 0), (self.epoch, 1)])

    def set_epoch(self, number):
        self.epoch = number


def test_loaders_and_iterators():
    batches = open_data(Loader(), SPECS)
    assert batches.per_epoch == 2
    assert list(batches.epoch(4)) == [{"x": 4, "labels": 0}, {"x": 4, "labels": 1}]
    once = open_data(iter([{"x": 1}, {"x": 2}]), SPECS)
    assert once.per_epoch is None and list(once.epoch(0)) == [{"x": 1}, {"x": 2}]
    with pytest.raises(InputError, match="read to its end"):
        list(once.epoch(1))
    with pytest.raises(InputError, match="a batch is 3 items, expected a mapping, or a sequence"):
        list(IterableBatches(SPECS, [(1, 2, 3)]).epoch(0))
    with pytest.raises(UsageError, match="data is a int"):
        open_data(3, SPECS)


def test_made_up_data_is_the_same_each_time():
    a, b = (list(open_data(None, SPECS, seed=s).epoch(0)) for s in (1, 1))
    assert np.array_equal(a[3]["x"], b[3]["x"]) and a[3]["labels"].max() < 3
    assert not np.array_equal(a[0]["x"], a[1]["x"])


def test_prefetching_keeps_order_errors_and_ends_its_thread():
    def broken():
        yield 1
        raise KeyError("bad row")

    with prefetched(iter(range(20)), 3) as items:
        assert list(items) == list(range(20))
    with prefetched(broken(), 2) as items:
        assert next(items) == 1
        with pytest.raises(KeyError, match="bad row"):
            next(items)
    with prefetched(iter(range(10**9)), 2) as items:
        assert next(items) == 0
    assert not [t for t in threading.enumerate() if t.name == "tvm-dtr-data"]
