"""One small run per method: ``python tests/golden/golden.py`` (``make golden``) writes what the
methods give now.

A changed number is a visible diff, which CHANGELOG has to explain under "Changes results".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tools import ALGORITHMS, federation, make, snapshots  # noqa: E402

from fedbench.simulation.local_work import LocalWork  # noqa: E402

NAMES = sorted([*ALGORITHMS, "fedcorr_adafed"])


def outcome(name: str) -> dict[str, list[float]]:
    """The final model of a method at its defaults, and the last of the client states, by name."""
    data = federation()
    options = {"iterations": 1} if name.startswith("fedcorr") else {}
    if name == "fedcorr_adafed":
        name, options = (
            "fedcorr",
            {**options, "server": make("adafed", gamma=5.0, normalize_loss="mean")},
        )
    work = LocalWork(lr=0.1, batch_size=10, epochs=(2, 2))
    last = snapshots(make(name, **options), data, rounds=10, work=work)[-1]
    states = {"w": last.server["w"], **{f"client {k}": v[-1] for k, v in last.clients.items()}}
    return {k: [float(f"{x:.12g}") for x in v.tolist()] for k, v in states.items()}


def main() -> None:
    """Write the files."""
    for name in NAMES:
        (HERE / f"{name}.json").write_text(json.dumps(outcome(name), indent=1) + "\n")


if __name__ == "__main__":
    main()
