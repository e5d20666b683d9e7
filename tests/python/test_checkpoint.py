"""Checkpoint files: whole, checked, refused by name."""

import os

import numpy as np
import pytest
import training_run

from tvm_dtr import checkpoint as checkpoints
from tvm_dtr.checkpoint import Checkpoint, CheckpointFolder, Position
from tvm_dtr.errors import CheckpointError, UsageError


@pytest.fixture(scope="module")
def built():
    return training_run.program()


def made(built, step=1):
    state = {s.name: np.full(s.shape, step, s.dtype) for s in built.state}
    position = Position(step, 2, 3, 0.1 + 0.2, {"seed": 4})
    return Checkpoint(state, position, checkpoints.program_identity(built))


def test_what_is_written_comes_back(built, tmp_path):
    folder = CheckpointFolder(tmp_path / "a" / "b")
    path = folder.save(made(built, 7))
    assert path.name == "step-000000007.ckpt"
    back = checkpoints.read_checkpoint(path)
    training_run.same_bits(back.state, made(built, 7).state)
    assert back.position == made(built, 7).position
    assert checkpoints.check_program(path, back, built)


def test_the_last_ones_stay(built, tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    for step in (9, 10, 11):
        folder.save(made(built, step))
    assert [p.name for p in folder.checkpoints()] == ["step-000000010.ckpt", "step-000000011.ckpt"]
    assert sorted(os.listdir(tmp_path)) == ["step-000000010.ckpt", "step-000000011.ckpt"]
    everything = CheckpointFolder(tmp_path, keep=0)
    everything.save(made(built, 12))
    assert len(everything.checkpoints()) == 3
    with pytest.raises(UsageError, match="keep -1"):
        CheckpointFolder(tmp_path, keep=-1)


def test_a_write_that_fails_leaves_what_was_there(built, tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path)
    path = folder.save(made(built, 1))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"step-000000001\.ckpt: No space left"):
        folder.save(made(built, 1))
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("where", [0, 0.2, 0.5, 0.9, 0.99])
def test_a_changed_byte_is_found(built, tmp_path, where):
    path = CheckpointFolder(tmp_path).save(made(built))
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1
    path.write_bytes(content)
    try:
        back = checkpoints.read_checkpoint(path)
    except CheckpointError as error:
        assert str(path) in str(error)
    else:  # a byte that no content depends on, such as a date
        training_run.same_bits(back.state, made(built).state)


def test_damaged_ones_are_refused_and_the_one_before_offered(built, tmp_path):
    folder = CheckpointFolder(tmp_path)
    first, second, third = (folder.save(made(built, step)) for step in (1, 2, 3))
    third.write_bytes(third.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=rf"{third}: damaged.*--resume-from {second}"):
        folder.newest(built)
    content = bytearray(second.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 8] = b"\xff" * 8
    second.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"--resume-from {first}"):
        folder.newest(built)
    for path in (first, second, third):
        path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="no older one that works"):
        folder.newest(built)


def test_those_of_other_programs_are_refused(built, tmp_path):
    folder = CheckpointFolder(tmp_path)
    other = made(built)
    other.program["state"] = [["w9", [2], "float32"], *other.program["state"]]
    path = folder.save(other)
    with pytest.raises(CheckpointError, match=rf"{path}: of another program: it has 'w9', which"):
        folder.newest(built)
    assert CheckpointFolder(tmp_path / "empty").newest(built) is None
    with pytest.raises(CheckpointError, match="no such file"):
        checkpoints.read_checkpoint(tmp_path / "none.ckpt")


def test_other_kernels_are_told_apart(built, tmp_path):
    other = made(built)
    other.program["kernels"] = "0"
    assert not checkpoints.check_program(tmp_path, other, built)


def test_a_folder_serves_one_run(tmp_path):
    folder = CheckpointFolder(tmp_path)
    (tmp_path / ".step-000000001.abc.tmp").write_bytes(b"half")
    with folder.locked():
        assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))
        with pytest.raises(UsageError, match="in use by another run"), folder.locked():
            pass
    with folder.locked():
        pass
