"""tvm_dtr/compile/cache.py and kernels.py: hits, damage, concurrency, compiler processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from random_steps import as_step, random_step, run_stock, same_bits
from tvm import relay

import tvm_dtr
from tvm_dtr.compile import compile_step, kernels
from tvm_dtr.compile.cache import KernelCache, cache_folder
from tvm_dtr.errors import ProgramError, UsageError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled_names(step, **options):
    """The program and the kernels that were really compiled."""
    names = []
    program = compile_step(step, progress=lambda *call: names.append(call[2]), **options)
    kernels_of_it = {kernel.name for kernel in program.graph.kernels}
    return program, [name for name in names if name in kernels_of_it]


def test_put_and_get(folder):
    cache = KernelCache(cache_folder())
    key = "ab" * 32
    assert cache.get(key) is None
    cache.put(key, b"one")
    cache.put(key, b"two\nlines")
    assert cache.get(key) == b"two\nlines"
    assert [p.name for p in folder.rglob("*") if p.is_file()] == ["ab" * 31]


def test_damaged_entry_is_absent(folder):
    cache = KernelCache(folder)
    cache.put("ab" * 32, b"content")
    path = folder / "ab" / ("ab" * 31)
    for damaged in (b"", path.read_bytes()[:-1], path.read_bytes() + b"x", b"no digest"):
        path.write_bytes(damaged)
        assert cache.get("ab" * 32) is None


@pytest.mark.parametrize("value", ["", "none", "None"])
def test_switched_off(monkeypatch, value):
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", value)
    assert cache_folder() is None
    cache = KernelCache(cache_folder())
    cache.put("ab" * 32, b"content")
    assert cache.get("ab" * 32) is None


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("TVM_DTR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tvm-dtr"


def test_relative_default_folder_is_ignored(monkeypatch):
    monkeypatch.delenv("TVM_DTR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path.home() / ".cache" / "tvm-dtr"


def filled(folder, count=10):
    """A cache of ``count`` entries of 1065 bytes, used one second after the other, the last now."""
    cache = KernelCache(folder)
    keys = [f"{i:02d}" * 32 for i in range(count)]
    for age, key in enumerate(reversed(keys)):
        cache.put(key, bytes(1000))
        when = time.time() - age
        os.utime(folder / key[:2] / key[2:], (when, when))
    return cache, keys


def present(folder, keys):
    return [key for key in keys if (folder / key[:2] / key[2:]).exists()]


def test_the_bound_removes_what_was_not_used_for_longest(folder, monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", "8000")
    cache, keys = filled(folder)
    assert cache.get(keys[0]) is not None, "now it is used, and keys[1] is the oldest"
    cache.trim()
    # 10650 bytes are brought under nine tenths of the bound: 6 entries, 6390 bytes.
    assert present(folder, keys) == [keys[0], *keys[5:]]
    assert cache.get(keys[1]) is None
    other = KernelCache(folder)
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", "1")
    other.trim()  # wrote nothing
    assert len(present(folder, keys)) == 6


@pytest.mark.parametrize("size", [None, "none", "1GiB"])
def test_under_the_bound_all_stays(folder, monkeypatch, size):
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", size or "")
    cache, keys = filled(folder)
    cache.trim()
    assert present(folder, keys) == keys


@pytest.mark.parametrize("size", ["much", "50%", "-1"])
def test_bound_that_is_no_size(folder, monkeypatch, size):
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", size)
    with pytest.raises(UsageError, match=f"TVM_DTR_CACHE_SIZE is '{size}', expected"):
        filled(folder, 1)[0].trim()


def test_trim_clears_up_after_killed_builds_and_leaves_what_is_not_its_own(folder, monkeypatch):
    monkeypatch.setenv("TVM_DTR_CACHE_SIZE", "1")
    cache, keys = filled(folder, 2)
    old, new = (folder / keys[0][:2] / name for name in (".writing-old", ".writing-new"))
    foreign = folder / "notes"
    foreign.mkdir()
    for path in (old, new, foreign / "file", folder / "top"):
        path.write_bytes(bytes(5000))
    os.utime(old, (0, 0))
    cache.trim()
    assert present(folder, keys) == []
    assert not old.exists()
    assert new.exists() and (foreign / "file").exists() and (folder / "top").exists()


def test_unwritable_folder_only_costs_time(tmp_path):
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "below")
    with pytest.warns(UserWarning) as caught:
        cache.put("ab" * 32, b"content")
        cache.put("cd" * 32, b"content")
    (warning,) = caught
    assert "cannot be written" in str(warning.message) and "\n" not in str(warning.message)
    assert cache.get("ab" * 32) is None


def test_second_build_compiles_nothing(folder):
    step = random_step(0)
    first, compiled = compiled_names(step)
    assert len(compiled) == len(first.graph.kernels) > 3
    second, compiled_again = compiled_names(step)
    assert compiled_again == []
    assert same_bits(run_stock(first.executable, step), run_stock(second.executable, step))


def test_damaged_object_is_compiled_again(folder):
    step = random_step(0)
    first, _ = compiled_names(step)
    entries = [p for p in folder.rglob("*") if p.is_file() and b"ELF" in p.read_bytes()]
    assert len(entries) == len(first.graph.kernels)
    entries[0].write_bytes(entries[0].read_bytes()[:-100])
    second, compiled = compiled_names(step)
    assert len(compiled) == 1
    assert same_bits(run_stock(first.executable, step), run_stock(second.executable, step))
    assert compiled_names(step)[1] == []


def test_entry_of_another_function_is_not_used(folder, monkeypatch):
    """Even if two functions had one key: here every function does."""
    monkeypatch.setattr(kernels, "kernel_name", lambda primitive, key: f"fused_{key[:12]}")
    monkeypatch.setattr(
        kernels, "kernel_keys", lambda ps, target: [f"{i:064d}"[::-1] for i in range(len(ps))]
    )
    compiled_names(random_step(0))
    step = random_step(1)
    program, compiled = compiled_names(step)
    assert len(compiled) == len(program.graph.kernels)
    monkeypatch.undo()
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    expected = run_stock(compile_step(step).executable, step)
    assert same_bits(run_stock(program.executable, step), expected)


BUILD = """
import sys
from random_steps import as_step, random_step
from tvm_dtr.compile import compile_step
seed, jobs, calls = map(int, sys.argv[1:])
program = compile_step(random_step(seed, calls=calls), jobs=jobs)
sys.stdout.write(program.executable.bytecode)
"""


def build_process(seed, jobs, calls=12):
    """A build in an own process whose script has no __main__ guard."""
    paths = [str(Path(__file__).parent), str(Path(tvm_dtr.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", BUILD, *map(str, (seed, jobs, calls))]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_concurrent_builds(folder):
    builds = [build_process(2, 1) for _ in range(2)]
    answers = [build.communicate() for build in builds]
    assert [build.returncode for build in builds] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    assert [err for _, err in answers] == ["", ""], "nothing of TVM reaches the terminal"
    assert not list(folder.rglob(".writing-*"))
    assert compiled_names(random_step(2, calls=12))[1] == [], "hashes agree across processes"


def entries(folder):
    return [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".writing-")]


def test_killed_builds_leave_a_sound_cache(folder, monkeypatch):
    """kill -9 at random moments, with compiler processes at work; two builds at a time."""
    random = np.random.default_rng(20)
    for _ in range(2):
        builds = [build_process(4, jobs, calls=5) for jobs in (1, 2)]
        _wait_for_entry(folder, builds)  # nothing is written while the processes start
        for build in builds:
            time.sleep(float(random.uniform(0, 0.3)))
            build.kill()
        for build in builds:
            build.communicate()
        cache = KernelCache(folder)
        for path in entries(folder):
            assert cache.get(path.parent.name + path.name) is not None, "each entry is whole"
        assert entries(folder)
    step = random_step(4, calls=5)
    program, _ = compiled_names(step)
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    expected = run_stock(compile_step(step).executable, step)
    assert same_bits(run_stock(program.executable, step), expected)


def _wait_for_entry(folder, builds):
    before = len(entries(folder))
    while len(entries(folder)) == before and any(build.poll() is None for build in builds):
        time.sleep(0.01)


def test_compiler_processes_give_the_same_kernels(folder, monkeypatch):
    monkeypatch.setattr(kernels, "_KERNELS_PER_WORKER", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    step = random_step(3)
    parallel, compiled = compiled_names(step, jobs=2)
    assert len(compiled) == len(parallel.graph.kernels)
    monkeypatch.setenv("TVM_DTR_CACHE_DIR", "none")
    serial = compile_step(step, jobs=1)
    assert Path(parallel.library_path).read_bytes() == Path(serial.library_path).read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_kernel_that_does_not_compile(folder, monkeypatch, jobs):
    monkeypatch.setattr(kernels, "_KERNELS_PER_WORKER", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    x, w = relay.var("x", shape=(3, 8, 8, 2)), relay.var("w", shape=(4, 3, 3, 3))
    layouts = {"data_layout": "CHWN", "kernel_layout": "OIHW"}
    y = relay.nn.conv2d(x, w, channels=4, kernel_size=(3, 3), **layouts)
    step = as_step(relay.Function([x, w], relay.Tuple([relay.nn.softmax(w), y])))
    with pytest.raises(ProgramError, match="TVM cannot compile the kernel fused_nn_conv2d_") as e:
        compile_step(step, jobs=jobs)
    assert "\n" not in str(e.value) and "CHWN" in str(e.value)


def test_no_compiler(folder, monkeypatch):
    monkeypatch.setattr(kernels.cc, "get_cc", lambda: None)
    with pytest.raises(UsageError, match=r"no C\+\+ compiler found.*CXX"):
        compile_step(random_step(0))


def test_broken_compiler(folder, monkeypatch):
    monkeypatch.setattr(kernels.cc, "get_cc", lambda: "/bin/false")
    with pytest.raises(ProgramError, match="/bin/false could not link"):
        compile_step(random_step(0))


@pytest.mark.parametrize(
    "target",
    [7, None, "cuda", "nonsense", "llvm -mcpu", "llvm -mcpu=i486x", "llvm -mtriple=nowhere"],
)
def test_bad_target(target, capfd):
    with pytest.raises(UsageError, match="target"):
        compile_step(random_step(0), target=target)
    assert capfd.readouterr() == ("", "")
