"""Write the references of the net from the present code: python tests/net/make.py
[digests|plan|published|names ...].

Do that only where a change is meant to change them; the difference belongs into the commit, with
its reason.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as for the tests

from net import present
from net.present import HERE, PAPERS, PUBLISHED, ROOT, Row


def digests() -> None:
    """Every experiment with every algorithm, and the settings that a plan has under any profile."""
    of = present.Digests().of
    names = present.algorithms()
    rows = [
        {"experiment": e, **{a: of(f"experiment={e} algo={a}") for a in names}}
        for e in present.experiments()
    ]
    present.write("digests.csv", rows)
    settings: dict[tuple[str, str], None] = {}
    for _, _, reading, folder, setting in present.planned():
        if reading != "split":  # ten settings that differ in data.seed
            settings.setdefault((setting, folder))
    rows = [{"setting": s, "config_dir": folder, "digest": of(s, folder)} for s, folder in settings]
    present.write("settings.csv", rows)


def plan() -> None:
    """The number of runs of each table and figure under each profile and reading, and a hash of
    their overrides.
    """
    rows = [
        {
            "profile": profile,
            "part": part,
            "reading": reading,
            "runs": str(len(settings)),
            "hash": hash_of(settings),
        }
        for (profile, part, reading), settings in plans().items()
    ]
    present.write("plan.csv", rows)


def plans() -> dict[tuple[str, str, str], list[str]]:
    """The settings of the runs of each table and figure, under each profile and reading."""
    found: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for profile, part, reading, _, setting in present.planned():
        found[profile, part, reading].append(setting)
    return found


def hash_of(settings: list[str]) -> str:
    """A hash of settings in any order."""
    return hashlib.sha256("\n".join(sorted(settings)).encode()).hexdigest()[:12]


def published() -> None:
    """What the reports of the published runs say: claims, comparisons, readings and cells."""
    rows: dict[str, list[Row]] = {kind: [] for kind in present.KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for paper in PAPERS:
            tables = present.report(paper, Path(folder) / paper)
            for kind, (read, _) in present.KINDS.items():
                rows[kind] += [{"paper": paper} | row for row in read(tables, paper)]
    for kind, found in rows.items():
        present.write(f"{kind}.csv", found)


def names() -> None:
    """Arguments of the public functions, and all names that a ``_target_`` of fedbench may have."""
    in_conf = (
        text
        for file in (ROOT / "conf").rglob("*.yaml")
        for text in _targets(file.read_text(encoding="utf-8"))
    )
    found = {"signatures": present.signatures(), "targets": sorted({*in_conf, *_in_bundles()})}
    (HERE / "names.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _targets(text: str) -> list[str]:
    return re.findall(r"_target_\"?: \"?(fedbench\.[\w.]+)", text)


def _in_bundles() -> set[str]:
    import pandas as pd

    tables = (pd.read_parquet(file) for file in PUBLISHED.glob("*/runs.parquet"))
    columns = (table[name] for table in tables for name in table if "_target_" in str(name))
    values = {value for column in columns for value in column.dropna().unique()}
    return {value for value in values if str(value).startswith("fedbench.")}


if __name__ == "__main__":
    for part in sys.argv[1:] or ("digests", "plan", "published", "names"):
        {"digests": digests, "plan": plan, "published": published, "names": names}[part]()
