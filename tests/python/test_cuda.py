"""The CUDA arena on this machine's GPU: `pytest -m gpu`. Elsewhere its tests run on a stand-in for
the driver (tests/cuda, part of `make core-test`)."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _no_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver on this machine"
    count = ctypes.c_int(0)
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return None if found and count.value else "no CUDA device on this machine"


@pytest.mark.gpu
def test_arena_on_the_real_driver(tmp_path):
    reason = _no_gpu()
    if reason is None and shutil.which("cmake") is None:
        reason = "cmake is not installed"
    if reason is not None:
        pytest.skip(reason)
    options = ["-DTVM_DTR_PYTHON=OFF", "-DTVM_DTR_TESTS=ON", "-DTVM_DTR_CHECKS=ON"]
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, *options], check=True)
    subprocess.run(["cmake", "--build", tmp_path, "--target", "test_cuda_arena"], check=True)
    subprocess.run([tmp_path / "test_cuda_arena", "--gpu"], check=True)
