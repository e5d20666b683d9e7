"""One fused primitive function -> one object file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # else TVM tries to download tuned schedules

import tvm
from tvm import relay
from tvm.relay.backend import te_compiler

from tvm_dtr import relay_ops  # noqa: F401  registers the kernels that are not TVM's

from .schedules import with_key
from .workspace import Workspace, workspace_of

OPT_LEVEL = 3
# TVM's own elimination of common subexpressions makes vector variables, whose debug records LLVM
# refuses; LLVM finds the same subexpressions again.
CONFIG = {"tir.disable_cse_tir": True}


def compile_primitive(
    primitive: relay.Function, name: str, target: tvm.target.Target, object_path: str
) -> Workspace:
    """Compile `primitive` as a packed function called `name` and return its workspace bound."""
    target = with_key(target)
    context = tvm.transform.PassContext(opt_level=OPT_LEVEL, config=CONFIG)
    with quiet(), context, target:
        compiler = te_compiler.get()
        lowered = compiler.lower(primitive, target)
        functions = [f for _, f in lowered.funcs.functions.items()]
        if len(functions) != 1:
            raise RuntimeError(f"{name}: lowered to {len(functions)} functions, expected one")
        function = functions[0].with_attr("global_symbol", name)
        library = tvm.build(tvm.IRModule({name: function}), target=target)
    library.save(object_path, "o")
    return workspace_of(function)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps TVM's advice about tuning off the terminal."""
    loggers = [logging.getLogger(name) for name in ("autotvm", "strategy", "te_compiler", "topi")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def reason_of(error: BaseException) -> str:
    """The one line of TVM's long error text that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*Error: ", line)]
    return (named or lines or [type(error).__name__])[0 if named else -1]
