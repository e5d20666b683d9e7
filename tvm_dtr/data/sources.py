"""What ``--data`` and the Trainer's ``data`` may be, and the batches it stands for."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..errors import InputError, UsageError
from ..training import TensorSpec
from .batches import ArrayBatches, Batches, IterableBatches, SyntheticBatches

_KINDS = "FILE.npz, a folder of .npy files or module:function"


def open_data(
    source: Any,
    specs: Sequence[TensorSpec],
    *,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = True,
) -> Batches:
    """The batches of a data source for a program with the inputs ``specs``.

    ``source``: None (made-up data); the path of an ``.npz`` file with an array per input (read
    whole), or of a folder with a ``NAME.npy`` per input (mapped, read batch by batch);
    ``"module:function"``; a mapping of arrays; an iterable of batches or a function that gives
    one (see IterableBatches), such as a PyTorch DataLoader; or Batches as they are. Shuffling and
    what becomes of the last rows are for arrays alone: the others come in their own order.

    Raises:
        UsageError: there is no such file or function.
        InputError: the file cannot be read, or its arrays do not fit the inputs.
    """
    options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
    if source is None:
        return SyntheticBatches(specs, seed=seed)
    if isinstance(source, str | os.PathLike):
        source = os.fspath(source)
        if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", source) and not os.path.exists(source):
            return open_data(load_function("data", source), specs, **options)
        return ArrayBatches(specs, _arrays(Path(source)), name=f"data '{source}'", **options)
    if hasattr(source, "epoch") and hasattr(source, "identity"):
        return source
    if isinstance(source, Mapping):
        arrays = {name: np.asarray(array) for name, array in source.items()}
        return ArrayBatches(specs, arrays, **options)
    if not callable(source) and not hasattr(source, "__iter__"):
        raise UsageError(
            f"data is a {type(source).__name__}, expected {_KINDS}, a mapping of arrays, an "
            "iterable of batches or a function that gives one"
        )
    return IterableBatches(specs, source, seed=seed)


def load_function(what: str, text: str) -> Any:
    """The object ``module:function``; the module is looked for in the current folder as well.

    Raises UsageError, which names ``what`` it was for, where there is none.
    """
    module_name, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{what} '{text}': cannot import '{module_name}' ({error})") from error
    if not hasattr(module, name):
        raise UsageError(f"{what} '{text}': module '{module_name}' has no '{name}'")
    return getattr(module, name)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        if path.is_dir():
            files = sorted(path.glob("*.npy"))
            if not files:
                raise UsageError(f"data '{path}': the folder holds no .npy file")
            return {f.stem: np.load(f, mmap_mode="r", allow_pickle=False) for f in files}
        if not path.exists():
            raise UsageError(f"data '{path}': no such file; expected {_KINDS}")
        if path.suffix != ".npz":
            raise UsageError(f"data '{path}': expected {_KINDS}")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"data '{path}': cannot be read ({first})") from error
