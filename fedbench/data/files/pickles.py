"""Read untrusted pickles: plain containers and NumPy arrays only, nothing else is built or called.

No library does this: torch's weights-only loader reads torch's own files, and NumPy's loader runs any pickle.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections import OrderedDict
from typing import Any

import numpy as np

_PLAIN = re.compile(r"[biufc][0-9]{1,2}|[SU][0-9]{1,9}")  # types of elements without objects, fields or units


def arrays_only(raw: bytes, encoding: str = "latin1") -> Any:
    """Return the content of a pickle made of None, numbers, text, bytes, plain containers and NumPy arrays.

    NumPy's own reconstruction of types is not used: it trusts the sizes and flags in a pickle. Arrays come back
    as ``np.ndarray`` (those of the older protocols as a subclass of it: ``np.asarray`` removes that).

    Args:
        raw: The pickle, of any protocol.
        encoding: Encoding of text written by Python 2; "latin1" for arrays, "bytes" leaves keys and names as bytes.

    Raises:
        pickle.UnpicklingError: If it is corrupt, or refers to anything else.
    """
    try:
        _look_through(raw)
        return _ArraysOnly(io.BytesIO(raw), encoding=encoding).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a corrupt pickle may fail in any way; callers expect one exception
        raise pickle.UnpicklingError(f"it is corrupt ({type(error).__name__}: {error})") from error


def _look_through(raw: bytes) -> None:
    """Reject numbers that would make the reader allocate memory for content that does not exist."""
    for code, argument, _ in pickletools.genops(raw):  # notices content that is shorter than declared
        if "PUT" in code.name and argument is not None and argument > len(raw):
            raise pickle.UnpicklingError(f"it is corrupt (object {argument} in {len(raw)} bytes)")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # renamed in NumPy 2
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}") from None


class _Dtype:
    """Stands for a NumPy type while a pickle is read, so that a pickle cannot change the type of an existing array."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self._code, self._order = _text(code), "="
        if not _PLAIN.fullmatch(self._code):
            raise pickle.UnpicklingError(f"it has arrays of type {self._code!r}; allowed are numbers and text")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = _text(state[1])  # the only fact that the code does not contain

    def real(self) -> np.dtype[Any]:
        return np.dtype(self._code).newbyteorder(self._order)  # type: ignore[arg-type]


class _Array(np.ndarray[Any, Any]):
    """An array filled by the state in a pickle."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, dtype, fortran, content = state
        if isinstance(content, str):  # as Python 2 wrote it
            content = content.encode("latin1")
        super().__setstate__((version, shape, dtype.real(), fortran, content))  # compares the sizes


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value


def _empty(*_: object) -> _Array:
    return _Array(0, np.uint8)


def _scalar(dtype: _Dtype, content: bytes | str) -> Any:
    content = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(content, dtype.real(), 1)[0]


def _from_buffer(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any, *axes: tuple[int, ...]) -> Any:
    flat = np.frombuffer(content, dtype.real())
    return flat.reshape(shape).transpose(axes[0]) if axes else flat.reshape(shape, order=order)


def _latin1(text: str, *_: object) -> bytes:
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


# Only functions without defaults and built-in classes: a pickle can set attributes of anything it names.
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): "numpy.ndarray",  # only ever the argument of _reconstruct
    ("numpy", "dtype"): lambda *arguments: _Dtype(*arguments),
    ("_codecs", "encode"): _latin1,  # how Python 3 writes bytes for Python 2
    ("collections", "OrderedDict"): OrderedDict,
    **{
        (module, name): made
        for module in ("builtins", "__builtin__")
        for name, made in (("set", set), ("frozenset", frozenset), ("bytes", _no_bytes))
    },
}
