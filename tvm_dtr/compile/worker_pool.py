"""A pool of kernel compiler processes.

They are plain subprocesses, not multiprocessing: they need neither fork, which TVM's threads do
not survive, nor a `__main__` guard in the user's script.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Protocol

import tvm

from tvm_dtr.errors import ProgramError

from .workspace import Workspace


class _Job(Protocol):
    name: str
    primitive: Any
    object_path: Path
    workspace: Workspace


class WorkerPool:
    """`workers` processes; a context manager that ends them."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.folder = folder
        self.workers = workers
        self.processes: list[subprocess.Popen] = []
        self.log: IO[bytes] | None = None

    def __enter__(self) -> WorkerPool:
        self.log = open(self.folder / "workers.log", "wb")
        for _ in range(self.workers):
            self.processes.append(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.terminate()
            process.wait()
            process.stdout.close()
        if self.log is not None:
            self.log.close()

    def run(self, jobs: Sequence[_Job], target: str, finished: Callable[[Any], None]) -> None:
        """Compile every job; `finished` is called in this thread as each is done."""
        idle: SimpleQueue[subprocess.Popen] = SimpleQueue()
        for process in self.processes:
            idle.put(process)

        def one(job: _Job) -> _Job:
            process = idle.get()
            try:
                job.workspace = self._ask(process, job, target)
            finally:
                idle.put(process)
            return job

        with ThreadPoolExecutor(self.workers) as threads:
            futures = [threads.submit(one, job) for job in jobs]
            try:
                for future in as_completed(futures):
                    finished(future.result())
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _start(self) -> subprocess.Popen:
        package_root = str(Path(__file__).resolve().parents[2])
        path = os.environ.get("PYTHONPATH")
        environment = dict(os.environ)
        environment["PYTHONPATH"] = package_root + (os.pathsep + path if path else "")
        # A folder of ours as working directory: a user's tvm.py must not shadow the package.
        return subprocess.Popen(
            [sys.executable, "-m", "tvm_dtr.compile.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=self.folder,
            env=environment,
        )

    def _ask(self, process: subprocess.Popen, job: _Job, target: str) -> Workspace:
        assert process.stdin is not None and process.stdout is not None
        function = self.folder / f"{job.name}.json"
        function.write_text(tvm.ir.save_json(job.primitive))
        request = {
            "function": str(function),
            "name": job.name,
            "target": target,
            "object": str(job.object_path),
        }
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = ""
        function.unlink()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise ProgramError(f"TVM cannot compile the kernel {job.name}: {answer['error']}")
        return Workspace(*answer["workspace"])

    def _last_words(self) -> str:
        text = (self.folder / "workers.log").read_text(errors="replace").strip()
        return "the compiler process ended; " + (text.splitlines()[-1] if text else "no message")
