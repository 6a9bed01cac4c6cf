"""File functions with separate names in TensorFlow 1: `gfile`, `python_io`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from toolkit.compat.tensorflow import io


def _walk(top: Any, in_order: bool = True) -> Any:
    """Yield the results of `tf.io.gfile.walk`; `in_order` is its `topdown`."""
    return io.gfile.walk(top, topdown=in_order)


_gfile: SimpleNamespace = SimpleNamespace(
    Copy=io.gfile.copy,
    DeleteRecursively=io.gfile.rmtree,
    Exists=io.gfile.exists,
    FastGFile=io.gfile.GFile,
    GFile=io.gfile.GFile,
    Glob=io.gfile.glob,
    IsDirectory=io.gfile.isdir,
    ListDirectory=io.gfile.listdir,
    MakeDirs=io.gfile.makedirs,
    MkDir=io.gfile.mkdir,
    Open=io.gfile.GFile,
    Remove=io.gfile.remove,
    Rename=io.gfile.rename,
    Walk=_walk,
)
FILES: dict[str, Any] = {
    "FixedLenFeature": io.FixedLenFeature,
    "FixedLenSequenceFeature": io.FixedLenSequenceFeature,
    "VarLenFeature": io.VarLenFeature,
    "gfile": _gfile,
    "parse_example": io.parse_example,
    "parse_single_example": io.parse_single_example,
    "python_io": SimpleNamespace(TFRecordWriter=io.TFRecordWriter),
}
