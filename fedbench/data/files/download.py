"""Official files, downloaded once: missing ones are fetched, verified, and put in place by a rename."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fedbench.core.errors import RequestError
from fedbench.data.files.archives import unpack
from fedbench.data.files.remote import Remote, checksum

__all__ = ["MissingFiles", "Remote", "checksum", "ensure", "offline", "unpack", "unpacked"]


def ensure(remotes: Sequence[Remote], data_dir: Path, *, download: bool, what: str) -> list[Path]:
    """Download the missing files and return the paths of all.

    A file that exists is used as it is; a downloaded one is verified first. Parallel processes that need the same file
    download it once. An interrupted download (``<name>.part``) is resumed by the next call.

    Args:
        remotes: The files.
        data_dir: Directory of all data sets.
        download: Whether downloads are allowed; the environment variable FEDBENCH_OFFLINE=1 disables them too.
        what: Name of the data set, for messages.

    Raises:
        RequestError: If files are missing and cannot be downloaded; the message lists the place, the addresses and the
            checksums of each.
    """
    missing = _missing(remotes, data_dir)
    if missing and (offline() or not download):
        cause, remedy = ("FEDBENCH_OFFLINE", "unset it") if offline() else ("data.download=false", "set it to true")
        raise MissingFiles(what, f"downloads are disabled by {cause}; {remedy}", missing, data_dir)
    if missing:
        from fedbench.data.files.transfer import fetch  # late: most runs find their files
    for remote in missing:
        path = data_dir / remote.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                failures = [] if path.is_file() else fetch(remote, path)
        except OSError as error:
            why = error.strerror or error
            raise RequestError(
                f"{what}: {path} cannot be written ({why}); free some space or change data_dir"
            ) from error
        if failures or not path.is_file():
            tried = "; ".join(failures) or "it has no public address"
            problem = f"{path.name} could not be downloaded ({tried}); try again later, name a mirror in data.mirrors"
            raise MissingFiles(what, problem, _missing(remotes, data_dir), data_dir)
    return [data_dir / remote.path for remote in remotes]


def unpacked(
    remotes: Sequence[Remote], data_dir: Path, target: Path, *, download: bool, what: str, most_bytes: int
) -> list[Path]:
    """Download the missing official archives, unpack all into ``target``, and return the paths of the archives.

    Raises:
        RequestError: If an archive is missing and cannot be downloaded, is not the official file, or cannot be
            unpacked.
    """
    archives = ensure(remotes, data_dir, download=download, what=what)
    for remote, archive in zip(remotes, archives, strict=True):
        if fault := remote.fault(archive):
            raise RequestError(
                f"{what}: {archive} is not the official file: {fault}; remove it to download it again, or unpack it "
                f"yourself into {target}"
            )
        unpack(archive, target, most_bytes=most_bytes)
    return archives


def offline() -> bool:
    """Return whether the environment variable FEDBENCH_OFFLINE disables downloads."""
    return os.environ.get("FEDBENCH_OFFLINE", "").lower() not in ("", "0", "false", "no")


def _missing(remotes: Sequence[Remote], data_dir: Path) -> list[Remote]:
    return [remote for remote in remotes if not (data_dir / remote.path).is_file()]


class MissingFiles(RequestError):
    """Official files are missing.

    Attributes:
        wanted: Description of the files and of where they belong, for messages.
    """

    def __init__(self, what: str, problem: str, missing: Sequence[Remote], data_dir: Path) -> None:
        self.wanted = "; ".join(remote.wanted(data_dir) for remote in missing)
        count = "1 file" if len(missing) == 1 else f"{len(missing)} files"
        super().__init__(f"{what}: {count} missing: {problem}, or download yourself: {self.wanted}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from downloading the same file at the same time."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"fedbench: waiting for another process that is downloading {path}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        if path.is_file():  # a process that waits holds on to this very lock, and finds the file
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
