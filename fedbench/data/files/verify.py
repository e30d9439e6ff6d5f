"""Are the files on disk the official ones? Nothing is fetched and nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedbench.data.files.download import Remote, checksum


class Finding(NamedTuple):
    """What was found out about one file.

    Attributes:
        path: Of the file.
        verdict: In words, with the checksums.
        wrong: It is not the official file.
    """

    path: Path
    verdict: str
    wrong: bool


def verify(known: Sequence[Remote], data_dir: Path) -> list[Finding]:
    """Compare every one of the ``known`` files that is below ``data_dir`` with its published size and checksums.

    A file that is there unpacked is not looked at in its packed form, of which nothing is read then.
    """
    findings = []
    there = {remote.path for remote in known if (data_dir / remote.path).is_file()}
    for remote in known:
        path = data_dir / remote.path
        if remote.path not in there or (path.suffix == ".gz" and remote.path.removesuffix(".gz") in there):
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
