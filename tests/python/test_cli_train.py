"""``tvm-dtr train``: what it says of a run, and of data and losses that are wrong."""

import numpy as np
import pytest
import training_run

from tvm_dtr.cli import main


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("train") / "p.tdtr"
    training_run.program().save(path)
    return str(path)


def train(capfd, program, tmp_path, change, *options):
    """Exit status, standard output and the lines of standard error of a run on changed data."""
    np.savez(tmp_path / "d.npz", **training_run.data() | change)
    status = main(["train", program, "--data", str(tmp_path / "d.npz"), *options])
    out, err = capfd.readouterr()
    return status, out, err.splitlines()


def test_mean_and_last_loss_are_told_apart(capfd, program, tmp_path):
    status, out, err = train(capfd, program, tmp_path, {}, "--epochs", "2")
    assert status == 0
    assert out.startswith("10 steps, last loss ")
    assert [line.split(":")[0] for line in err] == ["epoch 1, step 5", "epoch 2, step 10"]
    assert all("mean loss" in line for line in err)


def test_arrays_that_nothing_reads_are_named(capfd, program, tmp_path):
    status, _, err = train(capfd, program, tmp_path, {"label": np.zeros(20)}, "--steps", "1")
    assert status == 0
    wanted = "d.npz': no input is called 'label', not used (the inputs are x, labels)"
    assert [line for line in err if wanted in line]


def test_wrong_labels_are_found_in_their_file(capfd, program, tmp_path):
    labels = training_run.data()["labels"]
    labels[6] = 9
    options = ("--no-shuffle", "--epochs", "1")
    status, _, err = train(capfd, program, tmp_path, {"labels": labels}, *options)
    assert status == 1
    assert f"data '{tmp_path}/d.npz', epoch 1, batch 2: " in err[-1] and "'labels'" in err[-1]


def test_a_loss_that_is_no_number_is_told_once_or_ends_the_run(capfd, program, tmp_path):
    x = training_run.data()["x"]
    x[5] = np.nan
    change, options = {"x": x}, ("--no-shuffle", "--epochs", "1")
    status, _, err = train(capfd, program, tmp_path, change, *options)
    assert status == 0
    (told,) = [line for line in err if "the loss is nan at step 2 (it was " in line]
    assert "--clip-norm" in told
    folder = ("--checkpoint-dir", str(tmp_path / "ck"), "--checkpoint-every", "1")
    status, _, err = train(capfd, program, tmp_path, change, *options, *folder, "--stop-on-nan")
    assert status == 1 and "the loss is nan at step 2" in err[-1]
    assert [path.name for path in (tmp_path / "ck").glob("*.ckpt")] == ["step-000000001.ckpt"]


def test_a_budget_above_the_peak_is_told(capfd, program, tmp_path):
    options = ("--steps", "1", "--memory-budget", "200%")
    status, _, err = train(capfd, program, tmp_path, {}, *options)
    assert status == 0
    assert [line for line in err if "memory budget 200% is above the unbudgeted peak" in line]
