"""Unpack an archive completely or not at all."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from fedbench.core.errors import RequestError


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar archive into the directory ``target``.

    Everything is unpacked into a temporary directory in ``target`` and then moved by renames: files of the same name
    are replaced, others stay. Members that lead out of the directory are refused by tarfile's data filter, and renamed
    by zipfile.

    Raises:
        RequestError: If the archive is corrupt or of another format, has a member that the filter refuses, or
            ``target`` cannot be written.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as file:
            start = file.read(2)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target) as folder:
            content = Path(folder) / "content"  # with the usual permissions, unlike a temporary directory
            if start == b"PK":
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(content)
            else:
                with tarfile.open(archive) as members:
                    members.extractall(content, filter="data")
            shutil.copytree(content, target, dirs_exist_ok=True, copy_function=os.replace)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0]
        raise RequestError(
            f"{archive} is corrupt or not an archive ({reason}); remove it to download it again"
        ) from error
    except OSError as error:
        raise RequestError(f"{archive} cannot be unpacked into {target}: {error}") from error
