"""The default number of threads: cores, not processors, and no more than the quota."""

import os
import subprocess
import sys

import pytest

from tvm_dtr.threads import default_threads


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine of eight processors, 0 and 4 on one core and so on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for processor in range(8):
        folder = tmp_path / f"devices/system/cpu/cpu{processor}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{processor % 4},{processor % 4 + 4}\n")
    (tmp_path / "fs/cgroup/cpu").mkdir(parents=True)
    return tmp_path


def test_hyper_threads_of_a_core_count_once(system):
    assert default_threads(system) == 4


def test_processors_count_where_the_system_does_not_tell_cores(system, tmp_path):
    assert default_threads(tmp_path / "nowhere") == 8


def test_affinity_is_kept(system, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4})
    assert default_threads(system) == 2


@pytest.mark.parametrize(
    ("limit", "threads"),
    [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("?", 4)],
)
def test_quota_of_a_control_group(system, limit, threads):
    (system / "fs/cgroup/cpu.max").write_text(limit + "\n")
    assert default_threads(system) == threads


@pytest.mark.parametrize(("quota", "threads"), [("-1", 4), ("300000", 3)])
def test_quota_of_an_old_control_group(system, quota, threads):
    (system / "fs/cgroup/cpu/cpu.cfs_quota_us").write_text(quota)
    (system / "fs/cgroup/cpu/cpu.cfs_period_us").write_text("100000")
    assert default_threads(system) == threads


def test_cores_are_those_of_the_import():
    """TVM's own threads and whatever else changes the affinity later have no say."""
    code = (
        "import os, tvm_dtr; from tvm_dtr.threads import cores, default_threads\n"
        "before = default_threads(); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print(before, default_threads(), cores())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    before, after, cores = map(int, printed.split())
    assert (after, cores) == (1, before)


@pytest.mark.parametrize(
    ("given", "threads"),
    [({}, None), ({"TVM_NUM_THREADS": "1"}, 1), ({"OMP_NUM_THREADS": "1"}, 1)],
)
def test_what_the_environment_asks_for_stays(given, threads):
    environment = {k: v for k, v in os.environ.items() if "NUM_THREADS" not in k} | given
    code = "import tvm_dtr, tvm; print(tvm.runtime.num_threads())"
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert int(printed.stdout) == (threads or default_threads())


@pytest.mark.parametrize("threads", ["1", "2"])
def test_kernels_tie_no_thread_to_a_core(threads):
    """Processes beside each other would share the first cores, and what they start with them."""
    code = """
import os
before = os.sched_getaffinity(0)
import tvm_dtr
from tvm_dtr import models
from tvm_dtr.cli.synthetic import synthetic_inputs
program = tvm_dtr.build(models.make("mlp4", batch=64), loss="cross_entropy")
tvm_dtr.VirtualMachine(program).step(**synthetic_inputs(program, 0))
tied = [os.sched_getaffinity(int(task)) != before for task in os.listdir("/proc/self/task")]
print(any(tied))
"""
    environment = {k: v for k, v in os.environ.items() if k != "TVM_BIND_THREADS"}
    environment |= {"TVM_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "False"
