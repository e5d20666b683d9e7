"""`tvm-dtr build` and `run` on real models, as a user meets them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from tvm_dtr.builder import make_training_step
from tvm_dtr.cli import main, measure
from tvm_dtr.errors import ModelError

COMMAND = [sys.executable, "-m", "tvm_dtr.cli"]
RESULT_FIELDS = {
    "budget_bytes",
    "peak_bytes",
    "unbudgeted_peak_bytes",
    "pinned_bytes",
    "workspace_bytes",
    "step_seconds",
    "compute_seconds",
    "remat_seconds",
    "search_seconds",
    "evictions",
    "rematerializations",
    "slowdown",
    "loss",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds r8.onnx (batch 4) and r8.tdtr, built by the command line."""
    path = tmp_path_factory.mktemp("programs")
    model, program = str(path / "r8.onnx"), str(path / "r8.tdtr")
    assert main(["models", "make", "resnet8", "--batch", "4", "-o", model]) == 0
    assert main(["build", model, "-o", program, "--json", str(path / "build.json")]) == 0
    return path


@pytest.fixture(scope="module")
def peak_bytes(folder):
    return run_rows(folder, "none")[0]["peak_bytes"]


def run_rows(folder, budget, *options, status=0):
    table = folder / "result.json"
    arguments = ["run", str(folder / "r8.tdtr"), "--memory-budget", str(budget), "--steps", "3"]
    assert main([*arguments, "--json", str(table), *options]) == status
    return json.loads(table.read_text())["rows"]


def test_build_tells_what_it_made(folder):
    (row,) = json.loads((folder / "build.json").read_text())["rows"]
    assert row["model"] == "r8"
    assert row["file_bytes"] == (folder / "r8.tdtr").stat().st_size
    assert row["ops"] > row["kernels"] > 10
    assert zipfile.is_zipfile(folder / "r8.tdtr")


def test_run_fills_the_result_fields(folder, peak_bytes):
    plain, tight = run_rows(folder, peak_bytes * 8 // 10)
    assert plain.keys() == tight.keys() >= RESULT_FIELDS
    assert (plain["budget_bytes"], tight["budget_bytes"]) == (None, peak_bytes * 8 // 10)
    assert tight["peak_bytes"] <= tight["budget_bytes"]
    assert plain["unbudgeted_peak_bytes"] == tight["unbudgeted_peak_bytes"] > 0
    assert plain["evictions"] == plain["rematerializations"] == 0
    assert tight["evictions"] > 0
    assert plain["slowdown"] == 1.0
    assert tight["slowdown"] == tight["step_seconds"] / plain["step_seconds"]


@pytest.mark.parametrize(("slowdown", "told"), [(0.5, True), (0.95, False), (1.2, False)])
def test_a_slowdown_that_other_work_has_spoilt_is_told(folder, monkeypatch, capsys, slowdown, told):
    monkeypatch.setattr(
        measure, "fill_slowdown", lambda runs: runs[-1].row.update(slowdown=slowdown)
    )
    run_rows(folder, "80%")
    assert ("note: a budget makes no step that much faster" in capsys.readouterr().out) == told


def test_profile_is_a_table_and_in_the_json(folder, peak_bytes, capsys):
    plain, tight = run_rows(folder, peak_bytes * 8 // 10, "--profile", "--policy", "dtr-eq")
    assert "Kernels of the budgeted step, mean of 2" in capsys.readouterr().out
    for row in (plain, tight):
        again = sum(kernel["rematerializations"] for kernel in row["profile"])
        assert again == row["profiled_steps"] * row["rematerializations"]
        calls = sum(kernel["calls"] for kernel in row["profile"])
        assert calls == 2 * json.loads((folder / "build.json").read_text())["rows"][0]["ops"]


def test_losses_do_not_depend_on_the_budget_and_fall(folder, peak_bytes):
    plain, tight = run_rows(folder, peak_bytes * 7 // 10)
    assert plain["losses"] == tight["losses"]
    assert plain["losses"][0] > plain["losses"][1] > plain["losses"][2] == plain["loss"]


def test_a_share_of_the_peak_is_a_budget(folder, peak_bytes):
    (row,) = run_rows(folder, "75%", "--no-baseline")
    assert row["budget_bytes"] == row["unbudgeted_peak_bytes"] * 75 // 100
    assert row["slowdown"] is None


def test_the_seed_decides_the_data(folder):
    losses = [run_rows(folder, "none", "--seed", seed)[0]["losses"] for seed in "112"]
    assert losses[0] == losses[1] != losses[2]


def test_verify_compares_every_tensor(folder, peak_bytes, capsys):
    row = run_rows(folder, peak_bytes * 7 // 10, "--verify", "--no-baseline")[0]
    assert row["verified"] is True
    with zipfile.ZipFile(folder / "r8.tdtr") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert row["verified_tensors"] == len(manifest["results"])
    assert "are bitwise those of TVM's own VM" in capsys.readouterr().out


def test_verify_fails_on_a_single_wrong_bit(folder, monkeypatch, capsys):
    import tvm_dtr

    step = tvm_dtr.VirtualMachine.step

    def wrong_step(vm, **inputs):
        outputs = step(vm, **inputs)
        outputs["logits"].view("uint32")[2, 5] ^= 1
        return outputs

    monkeypatch.setattr(tvm_dtr.VirtualMachine, "step", wrong_step)
    program = str(folder / "r8.tdtr")
    assert main(["run", program, "--memory-budget", "none", "--steps", "1", "--verify"]) == 1
    line = capsys.readouterr().err
    assert "step 0 differs from TVM's own VM in output logits: first at [2, 5]" in line
    assert "(1 of 40 elements differ)" in line


def test_plots_are_written_in_both_formats(folder, peak_bytes):
    png, svg = folder / "memory.png", folder / "memory.svg"
    run_rows(folder, peak_bytes, "--plot", str(png), "--plot", str(svg))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().count("within the budget") == 1


def test_a_small_budget_tells_what_is_needed(folder, capsys):
    row = run_rows(folder, "1MiB", "--no-baseline", status=1)[-1]
    assert row["result"] == "oom"
    assert row["needed_budget_bytes"] == 2**20 + row["short_bytes"]
    error = capsys.readouterr().err
    assert error.startswith("tvm-dtr: error: the memory budget")
    assert f"{row['needed_budget_bytes']} bytes" in error
    assert run_rows(folder, row["needed_budget_bytes"], "--no-baseline")[0]["result"] == "ok"


def test_an_onnx_file_is_built_first(folder, tmp_path):
    table = tmp_path / "t.json"
    options = ["--memory-budget", "none", "--steps", "1", "--optimizer", "none"]
    assert main(["run", str(folder / "r8.onnx"), *options, "--json", str(table)]) == 0
    assert (
        json.loads(table.read_text())["rows"][0]["losses"]
        == run_rows(folder, "none")[0]["losses"][:1]
    )
    assert os.listdir(tmp_path) == ["t.json"]


@pytest.mark.parametrize("command", ["build", "run"])
def test_a_file_that_is_no_model_is_one_line(command, tmp_path, capsys):
    path = tmp_path / "notes.onnx"
    path.write_text("this is no model")
    options = ["--memory-budget", "none"] if command == "run" else []
    assert main([command, str(path), *options]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "notes.onnx" in error and "internal" not in error


@pytest.mark.parametrize("name", ["program.bin", "program", "program.onnx"])
def test_a_program_is_known_by_its_content(folder, tmp_path, capsys, name):
    program = tmp_path / name
    program.write_bytes((folder / "r8.tdtr").read_bytes())
    assert main(["run", str(program), "--memory-budget", "none", "--steps", "1"]) == 0
    capsys.readouterr()
    assert main(["run", str(program), "--memory-budget", "none", "--lr", "0.1"]) == 2
    assert "is a program already" in capsys.readouterr().err
    assert main(["build", str(program)]) == 2
    assert f"{name}' is a program already" in capsys.readouterr().err
    with pytest.raises(ModelError, match="is a program already"):
        make_training_step(program, loss="mse")
    assert os.listdir(tmp_path) == [name]


def test_a_damaged_program_is_one_line(folder, tmp_path, capsys):
    path = tmp_path / "cut.tdtr"
    path.write_bytes((folder / "r8.tdtr").read_bytes()[:-1000])
    assert main(["run", str(path), "--memory-budget", "none"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cut.tdtr" in error and "internal" not in error


def test_an_open_dimension_needs_a_shape(tmp_path, capsys):
    model = str(tmp_path / "mlp.onnx")
    assert main(["models", "make", "mlp", "--batch", "dynamic", "-o", model]) == 0
    capsys.readouterr()
    assert main(["build", model]) == 1
    error = capsys.readouterr().err
    assert "'x'" in error and "internal" not in error
    assert main(["build", model, "--shape", "x=2,784"]) == 0
    assert (tmp_path / "mlp.tdtr").exists()


def test_learning_rate_without_optimizer_is_wrong_usage(folder, capsys):
    options = ["--optimizer", "none", "--lr", "0.1"]
    assert main(["build", str(folder / "r8.onnx"), *options]) == 2
    assert "--lr needs an optimizer" in capsys.readouterr().err


def test_unknown_policy_is_wrong_usage(folder, capsys):
    options = ["--memory-budget", "none", "--policy", "fifo"]
    assert main(["run", str(folder / "r8.tdtr"), *options]) == 2
    assert "unknown policy 'fifo'" in capsys.readouterr().err


@contextlib.contextmanager
def started(tmp_path, *arguments, **environment):
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), **environment},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(process, folder, pattern):
    while process.poll() is None and not list(folder.glob(pattern)):
        time.sleep(0.02)


ENDLESS = ["--memory-budget", "none", "--steps", "1000000", "--verify", "--json", "t.json"]
COMPARING = "tvm-dtr-verify-*/inputs.npz"  # there once the first step is being compared


def test_an_interrupt_is_one_line_and_leaves_nothing(folder, tmp_path):
    with started(tmp_path, "run", str(folder / "r8.tdtr"), *ENDLESS) as process:
        wait_for(process, tmp_path, COMPARING)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "tvm-dtr: interrupted\n"
    assert process.returncode == 130
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "working"),
    [
        (["run", "r8.tdtr", *ENDLESS], COMPARING),
        (["build", "r8.onnx", "-o", "new.tdtr", "--jobs", "2"], "tvm-dtr-*/*.json"),
    ],
    ids=["run", "build"],
)
def test_termination_is_one_line_and_leaves_nothing(folder, tmp_path, arguments, working):
    command, name, *options = arguments
    given = [command, str(folder / name), *options]
    with started(tmp_path, *given, TVM_DTR_CACHE_DIR="none") as process:
        wait_for(process, tmp_path, working)
        process.terminate()
        assert process.communicate(timeout=60)[1] == "tvm-dtr: terminated\n"
    assert process.returncode == 143
    assert os.listdir(tmp_path) == []
    with pytest.raises(ProcessLookupError):  # no child is left in its session
        os.killpg(process.pid, 0)


def test_verify_leaves_no_temporary_files(folder, tmp_path):
    options = ["--memory-budget", "none", "--steps", "1", "--verify"]
    with started(tmp_path, "run", str(folder / "r8.tdtr"), *options) as process:
        assert (process.communicate()[1], process.returncode) == ("", 0)
    assert os.listdir(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_one_warning(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path / "file"))
    model = str(tmp_path / "mlp.onnx")
    assert main(["models", "make", "mlp", "--batch", "1", "-o", model]) == 0
    assert main(["build", model]) == 0
    error = capsys.readouterr().err
    assert error.startswith("tvm-dtr: warning: the kernel cache") and error.count("\n") == 1
