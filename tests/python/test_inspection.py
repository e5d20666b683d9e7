"""tvm_dtr/inspection.py and the command: all that a program file holds, without its code."""

import json

import pytest

import tvm_dtr
from tvm_dtr import models, program_file
from tvm_dtr.cli import main
from tvm_dtr.errors import ProgramError
from tvm_dtr.inspection import inspect_program


@pytest.fixture(scope="module")
def program():
    model = models.mlp(batch=4, seed=0, features=6, width=8, hidden_layers=1)
    optimizer = tvm_dtr.SGD(lr=0.1, momentum=0.9)
    return tvm_dtr.build(model, loss="cross_entropy", optimizer=optimizer)


@pytest.fixture
def file(program, tmp_path):
    path = tmp_path / "mlp.tdtr"
    program.save(path)
    return path


def test_tells_what_is_in_the_file(program, file):
    row = inspect_program(file)
    assert row["file_bytes"] == file.stat().st_size
    assert row["runs_here"] and row["reason"] is None
    assert [t["name"] for t in row["inputs"]][:2] == ["x", "labels"]
    assert row["inputs"][0] == {"name": "x", "shape": [4, 6], "dtype": "float32", "bytes": 96}
    trained = [t for t in row["state"] if t["trained"]]
    assert {t["name"] for t in trained} == set(program.parameter_names)
    assert sum(t["bytes"] for t in trained) == 4 * (6 * 8 + 8 + 8 * 10 + 10)
    assert len(row["state"]) == len(program.state) > len(trained)
    logits = next(t for t in row["results"] if t["name"] == "logits")
    assert (logits["shape"], logits["kind"]) == ([4, 10], "output")
    assert row["ops"] == sum(kernel["calls"] for kernel in row["kernels"])
    assert row["unbudgeted_peak_bytes"] == program.unbudgeted_peak_bytes
    assert 0 < row["smallest_budget_bytes"] <= row["unbudgeted_peak_bytes"]
    tvm_dtr.VirtualMachine(program, memory_budget=row["smallest_budget_bytes"], policy="dtr-eq")
    products = 2 * 4 * (2 * 6 * 8 + 3 * 8 * 10)  # forward, weights; and input, of the second layer
    assert row["step_flops"] >= products


def test_a_program_for_another_machine_can_be_looked_at(file, monkeypatch):
    monkeypatch.setattr(program_file, "machine", lambda: "sparc")
    row = inspect_program(file)
    assert not row["runs_here"]
    assert row["reason"] == f"found machine {row['machine']}, expected sparc"
    with pytest.raises(ProgramError, match="expected sparc"):
        tvm_dtr.load(file)


def test_command(file, tmp_path, capsys):
    table = tmp_path / "row.json"
    assert main(["inspect", str(file), "--json", str(table)]) == 0
    (row,) = json.loads(table.read_text())["rows"]
    assert row == inspect_program(file)
    text = capsys.readouterr().out
    assert "smallest budget" in text and "fc1.weight" in text and row["kernels"][0]["name"] in text


def test_all_shows_every_kernel(file, capsys, monkeypatch):
    monkeypatch.setattr("tvm_dtr.cli.inspect.KERNELS_SHOWN", 1)
    names = [kernel["name"] for kernel in inspect_program(file)["kernels"]]
    assert main(["inspect", str(file)]) == 0
    assert f"{len(names) - 1} more: --all" in capsys.readouterr().out
    assert main(["inspect", str(file), "--all"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in names)


def test_what_is_no_program(tmp_path, capsys):
    path = tmp_path / "other.tdtr"
    path.write_bytes(b"PK")
    assert main(["inspect", str(path)]) == 1
    assert "not a whole program file" in capsys.readouterr().err
