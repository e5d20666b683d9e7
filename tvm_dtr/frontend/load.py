"""Reading ONNX files, with errors that name the file."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from ..errors import ModelError, UsageError
from ..program import is_program_file


def load_model(model: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    """The model of a path (external data included) or a ModelProto as it is.

    Raises ModelError for a missing, truncated or foreign file, or one without a graph; UsageError
    for anything else.
    """
    if not isinstance(model, str | os.PathLike | onnx.ModelProto):
        raise UsageError(
            f"model is a {type(model).__name__}, expected the path of an ONNX file or an "
            "onnx.ModelProto"
        )
    if isinstance(model, onnx.ModelProto):
        proto, name = model, "the model"
    else:
        path = Path(model)
        proto, name = _read(path), f"'{path}'"
    if not proto.graph.node:
        raise ModelError(f"{name}: the ONNX graph has no nodes; expected a network to train")
    return _without_functions(proto, name) if proto.functions else proto


def _without_functions(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Calls of the model's own functions replaced by what these do."""
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{name}: its functions cannot be inlined ({first})") from error


def _read(path: Path) -> onnx.ModelProto:
    if not path.exists():
        raise ModelError(f"'{path}': no such file; expected an ONNX model")
    if path.is_dir():
        raise ModelError(f"'{path}': is a directory; expected an ONNX file")
    if is_program_file(path):
        raise ModelError(
            f"'{path}': is a program already, expected an ONNX model; load it with tvm_dtr.load"
        )
    try:
        # Always as protobuf: onnx.load goes by the suffix, and has other errors for text formats.
        proto = onnx.load_model_from_string(path.read_bytes(), format="protobuf")
    except DecodeError as error:
        raise ModelError(
            f"'{path}': not an ONNX file, or a truncated one ({path.stat().st_size} bytes); "
            "expected a model written by onnx.save or an exporter"
        ) from error
    except OSError as error:
        raise ModelError(f"'{path}': cannot be read ({error.strerror})") from error
    if not proto.ir_version and not proto.HasField("graph"):
        raise ModelError(f"'{path}': not an ONNX file; expected a model with a graph")
    try:
        onnx.load_external_data_for_model(proto, str(path.parent))
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"'{path}': its external data cannot be read ({first})") from error
    return proto
