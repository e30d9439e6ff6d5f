"""Write the references of the net from the present code: python tests/net/make.py
[digests|plan|names ...].

Do that only where a change is meant to change them; the difference belongs into the commit, with
its reason.
"""

import hashlib
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as for the tests

from net import present
from net.present import HERE, PUBLISHED, ROOT


def digests():
    """Every experiment with every algorithm, and the settings that a plan has under any profile."""
    of = present.Digests().of
    names = present.algorithms()
    rows = [
        {"experiment": e, **{a: of(f"experiment={e} algo={a}") for a in names}}
        for e in present.experiments()
    ]
    present.write("digests.csv", rows)
    settings = {}
    for *_, folder, setting in present.planned():
        settings.setdefault((setting, folder))
    rows = [{"setting": s, "config_dir": folder, "digest": of(s, folder)} for s, folder in settings]
    present.write("settings.csv", rows)


def plan():
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


def plans():
    """The settings of the runs of each table and figure, under each profile and reading."""
    found = defaultdict(list)
    for profile, part, reading, _, setting in present.planned():
        found[profile, part, reading].append(setting)
    return found


def hash_of(settings):
    """A hash of settings in any order."""
    return hashlib.sha256("\n".join(sorted(settings)).encode()).hexdigest()[:12]


def names():
    """Arguments of the public functions, and all names that a ``_target_`` of fedbench may have."""
    in_conf = (
        text for file in (ROOT / "conf").rglob("*.yaml") for text in _targets(file.read_text())
    )
    found = {"signatures": present.signatures(), "targets": sorted({*in_conf, *_in_bundles()})}
    (HERE / "names.json").write_text(json.dumps(found, indent=1) + "\n")


def _targets(text):
    return re.findall(r"_target_\"?: \"?(fedbench\.[\w.]+)", text)


def _in_bundles():
    import pandas as pd

    tables = (pd.read_parquet(file) for file in PUBLISHED.glob("*/runs.parquet"))
    columns = (table[name] for table in tables for name in table if "_target_" in str(name))
    values = {value for column in columns for value in column.dropna().unique()}
    return {value for value in values if str(value).startswith("fedbench.")}


if __name__ == "__main__":
    for part in sys.argv[1:] or ("digests", "plan", "names"):
        {"digests": digests, "plan": plan, "names": names}[part]()
