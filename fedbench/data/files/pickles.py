"""Pickles that come from outside: plain containers and NumPy arrays are read, nothing else is built or called."""

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
    """Return what a pickle holds, if that is made of None, numbers, text, bytes, plain containers and NumPy arrays.

    NumPy's own rebuilding of types is not used: it believes what a pickle says about sizes and flags. Arrays come back
    as ``np.ndarray`` (those of the older protocols as a subclass of it: ``np.asarray`` removes that).

    Args:
        raw: The pickle, of any protocol.
        encoding: Of the text of Python 2; "latin1" for arrays, "bytes" leaves keys and names as bytes.

    Raises:
        pickle.UnpicklingError: If it is damaged, or asks for anything else.
    """
    try:
        _look_through(raw)
        return _ArraysOnly(io.BytesIO(raw), encoding=encoding).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle may fail in any way; callers need one
        raise pickle.UnpicklingError(f"it is damaged ({type(error).__name__}: {error})") from error


def _look_through(raw: bytes) -> None:
    """Refuse numbers that would have the reader take memory for what is not there."""
    for code, argument, _ in pickletools.genops(raw):  # finds every content that is shorter than it says
        if "PUT" in code.name and argument is not None and argument > len(raw):
            raise pickle.UnpicklingError(f"it is damaged (object {argument} in {len(raw)} bytes)")


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # renamed in NumPy 2
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


class _Dtype:
    """Stands for a NumPy type while a pickle is read, so that nothing can change that of an array that is made."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self._code, self._order = _text(code), "="
        if not _PLAIN.fullmatch(self._code):
            raise pickle.UnpicklingError(f"it has arrays of type {self._code!r}; allowed are numbers and text")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = _text(state[1])  # the only fact that the code does not have

    def real(self) -> np.dtype[Any]:
        return np.dtype(self._code).newbyteorder(self._order)  # type: ignore[arg-type]


class _Array(np.ndarray[Any, Any]):
    """An array that is filled by the state in a pickle."""

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


# Functions without default values and built-in classes: a pickle can set attributes of what it names.
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
