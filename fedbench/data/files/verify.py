"""Compare the files on disk with the official ones; nothing is downloaded or changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedbench.data.files.download import Remote, checksum


class Finding(NamedTuple):
    """The result of the comparison for one file.

    Attributes:
        path: Path of the file.
        verdict: Result in words, with the checksums.
        wrong: Whether it differs from the official file.
    """

    path: Path
    verdict: str
    wrong: bool


def verify(known: Sequence[Remote], data_dir: Path) -> list[Finding]:
    """Compare each of the ``known`` files that exists below ``data_dir`` with its published size and checksums.

    A packed file is skipped if it also exists unpacked, since only the unpacked one is read then.
    """
    findings = []
    existing = {remote.path for remote in known if (data_dir / remote.path).is_file()}
    for remote in known:
        path = data_dir / remote.path
        if remote.path not in existing or (path.suffix == ".gz" and remote.path.removesuffix(".gz") in existing):
            continue
        if fault := remote.fault(path):
            findings.append(Finding(path, f"WRONG: {fault}", True))
        elif remote.sums:
            findings.append(
                Finding(path, "official: " + ", ".join(f"{kind} {sum}" for kind, sum in remote.sums), False)
            )
        else:
            findings.append(Finding(path, f"no published checksum: md5 {checksum(path)}", False))
    return findings
