"""Published files: where they belong, their addresses and their checksums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        path: Where the file belongs, below the data directory.
        urls: Addresses in the order to try: the official one and public mirrors, those that work best first. Empty for
            a file that is not public.
        md5: Checksum, if known; of several checksums all must match.
        sha1: Checksum, if known.
        sha256: Checksum, if known.
        size: Size in bytes, if known.
    """

    path: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None
    size: int | None = None
    sha1: str | None = None

    @property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """Kind and value of every known checksum."""
        kinds = (("md5", self.md5), ("sha1", self.sha1), ("sha256", self.sha256))
        return tuple((kind, value.lower()) for kind, value in kinds if value)

    def wanted(self, data_dir: Path) -> str:
        """Return a description of the file for messages: its place, its addresses and its checksums."""
        sums = [f"{kind} {value}" for kind, value in self.sums]
        facts = ", ".join([*sums, *([f"{self.size} bytes"] if self.size is not None else [])])
        source = f"from {' or '.join(self.urls)}" if self.urls else "which has no public address"
        return f"{data_dir / self.path} {source}" + (f" ({facts})" if facts else "")

    def fault(self, path: Path) -> str | None:
        """Return how the file at ``path`` differs from the known size and checksums, None if it does not."""
        if self.size is not None and path.stat().st_size != self.size:
            return f"{path.stat().st_size} bytes instead of {self.size}"
        for kind, value in self.sums:
            if (got := checksum(path, kind)) != value:
                return f"{kind} {got} instead of {value}"
        return None


def checksum(path: Path, kind: str = "md5") -> str:
    """Return the checksum of a file, in hexadecimal digits; ``kind`` is "md5", "sha1" or "sha256"."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
