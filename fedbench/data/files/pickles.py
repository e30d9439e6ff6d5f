"""Read untrusted pickles: plain containers and NumPy arrays only, nothing else is built or called.

No library does this: torch's weights-only loader reads torch's own files, and NumPy's loader runs any pickle.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from fedbench.data.files.limits import MOST_DIMENSIONS

_READ = pickle._Unpickler.dispatch  # opcode -> how it is read
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
        return _ArraysOnly(raw, encoding).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a corrupt pickle may fail in any way; callers expect one exception
        fault = " ".join(str(error).split())[:300]
        raise pickle.UnpicklingError(f"it is corrupt ({type(error).__name__}: {fault})") from error


class _ArraysOnly(pickle._Unpickler):
    """The standard library's reader that is written in Python, with stricter opcodes.

    The compiled one cannot be kept from hashing keys of any form, which takes 2^n steps for n tuples that each contain
    the one before twice, nor from setting attributes of what a pickle names.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {**_READ}

    def __init__(self, raw: bytes, encoding: str) -> None:
        super().__init__(io.BytesIO(raw), encoding=encoding)
        self.size = len(raw)

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # renamed in NumPy 2
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module[:100]}.{name[:100]}") from None


def _plain_keys(opcode: bytes, keys: Callable[[list[Any]], list[Any]]) -> Callable[[Any], None]:
    """Return the reader of an opcode that makes keys of values on the stack."""

    def read(self: Any) -> None:
        _refuse_deep(keys(self.stack))
        _READ[opcode[0]](self)

    return read


def _refuse_deep(keys: Iterable[object]) -> None:
    for key in keys:
        if key is not None and not isinstance(key, str | bytes | int | float | np.generic):
            raise pickle.UnpicklingError(f"it is corrupt (a {type(key).__name__} is a key, or in a set)")


def _build(self: Any) -> None:
    if not isinstance(self.stack[-2], _Array | _Dtype):
        raise pickle.UnpicklingError(f"it sets attributes of a {type(self.stack[-2]).__name__}")
    _READ[pickle.BUILD[0]](self)


def _bytearray(self: Any) -> None:
    (declared,) = struct.unpack("<Q", self.read(8))
    if declared > self.size:
        raise pickle.UnpicklingError(f"it is corrupt ({declared} bytes in {self.size})")
    self.append(bytearray(self.read(declared)))


_ArraysOnly.dispatch |= {
    pickle.SETITEM[0]: _plain_keys(pickle.SETITEM, lambda stack: stack[-2:-1]),
    pickle.SETITEMS[0]: _plain_keys(pickle.SETITEMS, lambda stack: stack[::2]),
    pickle.DICT[0]: _plain_keys(pickle.DICT, lambda stack: stack[::2]),
    pickle.ADDITEMS[0]: _plain_keys(pickle.ADDITEMS, lambda stack: stack),
    pickle.FROZENSET[0]: _plain_keys(pickle.FROZENSET, lambda stack: stack),
    pickle.BUILD[0]: _build,
    pickle.BYTEARRAY8[0]: _bytearray,
}


class _Dtype:
    """Stands for a NumPy type while a pickle is read, so that a pickle cannot change the type of an existing array."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self._code, self._order = _text(code), "="
        if not _PLAIN.fullmatch(self._code):
            raise pickle.UnpicklingError(f"it has arrays of type {self._code[:100]!r}; allowed are numbers and text")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = _text(state[1])  # the only fact that the code does not contain

    def real(self) -> np.dtype[Any]:
        found = np.dtype(self._code).newbyteorder(self._order)  # type: ignore[arg-type]
        if not found.itemsize:  # any number of its elements would fit into no bytes
            raise pickle.UnpicklingError(f"it has arrays of type {self._code[:100]!r}, of no bytes")
        return found


class _Array(np.ndarray[Any, Any]):
    """An array filled by the state in a pickle."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, dtype, fortran, content = state
        if len(shape) > MOST_DIMENSIONS:
            raise pickle.UnpicklingError(f"it has an array of {len(shape)} dimensions; at most {MOST_DIMENSIONS}")
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
    if len(shape) > MOST_DIMENSIONS:
        raise pickle.UnpicklingError(f"it has an array of {len(shape)} dimensions; at most {MOST_DIMENSIONS}")
    flat = np.frombuffer(content, dtype.real())
    return flat.reshape(shape).transpose(axes[0]) if axes else flat.reshape(shape, order=order)


def _latin1(text: str, *_: object) -> bytes:
    return text.encode("latin1")


def _ordered(items: Iterable[tuple[Any, Any]] | None = None) -> OrderedDict[Any, Any]:
    pairs = list(items or ())
    _refuse_deep(key for key, _ in pairs)
    return OrderedDict(pairs)


def _set(items: list[Any]) -> set[Any]:
    _refuse_deep(items)
    return set(items)


def _frozenset(items: list[Any]) -> frozenset[Any]:
    _refuse_deep(items)
    return frozenset(items)


def _no_bytes() -> bytes:
    return b""


# Only functions, whose arguments are checked; no attribute of them can be set (``_build``).
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy._core.multiarray", "_reconstruct"): _empty,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): "numpy.ndarray",  # only ever the argument of _reconstruct
    ("numpy", "dtype"): lambda *arguments: _Dtype(*arguments),
    ("_codecs", "encode"): _latin1,  # how Python 3 writes bytes for Python 2
    ("collections", "OrderedDict"): lambda *arguments: _ordered(*arguments),
    **{
        (module, name): made
        for module in ("builtins", "__builtin__")
        for name, made in (("set", _set), ("frozenset", _frozenset), ("bytes", _no_bytes))
    },
}
