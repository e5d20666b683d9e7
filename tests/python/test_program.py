"""tvm_dtr/program.py and program_file.py: round trips, and each refusal in one line."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tvm
from random_steps import arrays_for, random_step, run_stock, same_bits

import tvm_dtr
import tvm_dtr.program_file as program_file
from tvm_dtr.compile import compile_step
from tvm_dtr.errors import ProgramError, UsageError
from tvm_dtr.program import Program


@pytest.fixture(scope="module")
def step():
    return random_step(11, calls=10)


@pytest.fixture(scope="module")
def program(step, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return compile_step(step)


@pytest.fixture
def saved(program, tmp_path):
    path = tmp_path / "small.tdtr"
    program.save(path)
    return path


def rewritten(path, sealed=True, **changes):
    """Replace entries of the manifest, and its checksum with ``sealed``."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        seal = archive.comment
    manifest = {**json.loads(members["manifest.json"]), **changes}
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = program_file.manifest_seal(members["manifest.json"]) if sealed else seal


def refusal(path):
    with pytest.raises(ProgramError) as error:
        Program.load(path)
    message = str(error.value)
    assert "\n" not in message and str(path) in message
    assert message.count("expected") <= 1
    return message


def test_round_trip(program, step, saved):
    loaded = Program.load(saved)
    assert same_bits(run_stock(loaded.executable, step), run_stock(program.executable, step))
    assert loaded.graph == program.graph
    for name in ("inputs", "state", "results", "parameter_names", "target"):
        assert getattr(loaded, name) == getattr(program, name)
    assert loaded.initial_state.keys() == program.initial_state.keys()
    for name, array in program.initial_state.items():
        assert same_bits([loaded.initial_state[name]], [array])


def test_same_program_gives_same_bytes(program, saved, tmp_path):
    again = tmp_path / "again.tdtr"
    Program.load(saved).save(again)
    assert again.read_bytes() == saved.read_bytes()


RUN = """
import sys, numpy, tvm
from tvm_dtr.program import Program
program = Program.load(sys.argv[1])
arrays = numpy.load(sys.argv[2])
vm = tvm.runtime.vm.VirtualMachine(program.executable, tvm.cpu())
numpy.savez(sys.argv[3], *[r.numpy() for r in vm.invoke("main", *[arrays[n] for n in arrays])])
print(program.library_path)
"""


def test_runs_in_another_process_which_cleans_up(program, step, saved, tmp_path):
    arrays = {**arrays_for(step.inputs, 1), **step.initial_state}
    np.savez(tmp_path / "in.npz", **arrays)
    command = [sys.executable, "-c", RUN, saved, tmp_path / "in.npz", tmp_path / "out.npz"]
    environment = {**os.environ, "PYTHONPATH": str(Path(tvm_dtr.__file__).parents[1])}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    with np.load(tmp_path / "out.npz") as found:
        assert same_bits([found[n] for n in found], run_stock(program.executable, step))
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).parent.exists()


def test_missing_file(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.tdtr")


def test_folder(tmp_path):
    assert "cannot read" in refusal(tmp_path)


def test_not_a_program(tmp_path):
    path = tmp_path / "text.tdtr"
    path.write_text("hello")
    assert "not a whole program file" in refusal(path)


def test_other_zip(tmp_path):
    path = tmp_path / "other.tdtr"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    assert "not a program file" in refusal(path)


@pytest.mark.parametrize("kept", [0.999, 0.5, 0.01])
def test_truncated(saved, kept):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * kept)])
    assert "rebuild it with `tvm-dtr build`" in refusal(saved)


def test_flipped_bit(saved):
    content = bytearray(saved.read_bytes())
    content[content.index(b"ELF") + 2000] ^= 1
    saved.write_bytes(content)
    assert "rebuild" in refusal(saved)


def test_wrong_checksum(saved):
    with zipfile.ZipFile(saved) as archive:
        sums = json.loads(archive.read("manifest.json"))["sha256"]
    rewritten(saved, sha256={**sums, "kernels.so": "0" * 64})
    message = refusal(saved)
    assert "'kernels.so' has checksum" in message and "expected 000000000000" in message


def test_changed_manifest(saved):
    rewritten(saved, sealed=False)
    assert "manifest does not match its checksum" in refusal(saved)
    rewritten(saved, results=[])
    with zipfile.ZipFile(saved, "a") as archive:
        archive.comment = b""
    assert "manifest does not match its checksum" in refusal(saved)


def test_lost_member(saved):
    rewritten(saved, sha256={"state/99.npy": "0" * 64})
    assert "lost members" in refusal(saved)


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({"format_version": 99}, "format version 99", "expected 1"),
        ({"tvm_version": "0.18.0 (abc)"}, "TVM 0.18.0 (abc)", "expected 0.19.0"),
        ({"machine": "sparc"}, "machine sparc", "expected"),
        ({"cpu": "future", "cpu_features": ["sse2", "no-such"]}, "", ""),
    ],
)
def test_other_versions(saved, change, found, expected):
    rewritten(saved, **change)
    if "cpu" in change:
        Program.load(saved)  # a feature that LLVM does not know is no reason to refuse
        return
    message = refusal(saved)
    assert found in message and expected in message and "rebuild" in message


def test_missing_cpu_feature(saved, monkeypatch):
    monkeypatch.setattr(program_file, "missing_features", lambda features: ["avx9"])
    message = refusal(saved)
    assert "has no avx9" in message


def test_incomplete_manifest(saved):
    rewritten(saved, graph={})
    assert "manifest is not complete" in refusal(saved)


def test_only_the_file_required(saved):
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    assert tvm_dtr.load(saved, require_sha256=digest.upper()).inputs
    other = "0" * 64
    with pytest.raises(ProgramError, match=f"found SHA-256 {digest}, expected {other}"):
        tvm_dtr.load(saved, require_sha256=other)
    with pytest.raises(UsageError, match="expected the 64 hexadecimal digits"):
        tvm_dtr.load(saved, require_sha256=digest[:63])


def archive_with(path, name, content=b"x", compression=zipfile.ZIP_STORED):
    """The program with one more member."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, content, compression)


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "state/../kernels.so", "x.py"])
def test_members_that_no_program_has(saved, name):
    archive_with(saved, name)
    assert f"it has a member '{name}', which no program has" in refusal(saved)


def test_a_member_twice(saved):
    with pytest.warns(UserWarning, match="Duplicate"):
        archive_with(saved, "kernels.so")
    assert "several members of one name" in refusal(saved)


def test_oversized_members(saved):
    archive_with(saved, "state/77.npy", bytes(1 << 22), zipfile.ZIP_DEFLATED)
    assert "compressed or encrypted" in refusal(saved)


def test_members_that_claim_more_than_the_file_has(saved):
    with zipfile.ZipFile(saved) as archive:
        start = archive.getinfo("kernels.so")
        size = start.file_size.to_bytes(4, "little")
    content = bytearray(saved.read_bytes())
    at = content.rindex(b"kernels.so") - 46  # its entry in the directory at the end
    assert content[at + 24 : at + 28] == size
    content[at + 20 : at + 28] = (2**31).to_bytes(4, "little") * 2
    saved.write_bytes(content)
    assert "larger than the file" in refusal(saved)


def with_member(path, name, content):
    """The program with a member replaced, all checksums in order."""
    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()} | {name: content}
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
    with zipfile.ZipFile(path, "w") as archive:
        for n, data in members.items():
            archive.writestr(n, data)
    rewritten(path, sha256=manifest["sha256"])


def test_an_array_that_says_it_is_larger_than_it_is(saved):
    stream = io.BytesIO()
    shape = (1 << 40,)
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with_member(saved, "state/0.npy", stream.getvalue())
    assert "has not the bytes of" in refusal(saved)


def test_native_code_that_is_none(saved):
    with_member(saved, "kernels.so", b"not a library")
    assert "its native code cannot be loaded" in refusal(saved)


def test_bytecode_that_is_none(saved):
    with_member(saved, "bytecode.ro", b"not bytecode")
    assert "its native code cannot be loaded" in refusal(saved)


def test_more_threads_need_more_workspace(program, saved):
    kernels = program.graph.to_dict()["kernels"]
    graph = {**program.graph.to_dict(), "kernels": [{**kernels[0], "thread_workspace_bytes": 640}]}
    rewritten(saved, graph=graph, threads=tvm.runtime.num_threads() - 2)
    (kernel,) = Program.load(saved).graph.kernels
    assert kernel.workspace_bytes == kernels[0]["workspace_bytes"] + 2 * 640


def test_unwritable(program, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError, match="cannot write"):
        program.save(tmp_path / "file" / "x.tdtr")


def test_failed_save_keeps_the_old_file(program, saved, monkeypatch):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ProgramError, match="No space left"):
        program.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]
