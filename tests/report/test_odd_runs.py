"""A damaged run ends no command that reads many: it is left out and named with its reason."""

import shutil

import pandas as pd
import pytest
from fake_runs import fake
from report_runs import call_report

import fedbench

DAMAGE = {
    "config.yaml": "rounds: [",
    "meta.json": "{",
    "rounds.jsonl": '{"round": 1',
    "clients.parquet": "PAR1",
    "moments.json": "{",
}


@pytest.fixture
def damaged(tmp_path):
    """Six runs, and one per kind of damage with its directory below the root."""
    root = tmp_path / "runs"
    for algo in ("fedavg", "qfedavg"):
        fake(root, "adafedadam/table5_synthetic", algo)
    path = next(root.glob("*/*/qfedavg/*/seed_1"))
    names = {}
    for file, content in DAMAGE.items():
        other = path.parent.with_name(file.partition(".")[0]) / "seed_1"
        shutil.copytree(path, other)
        (other / file).write_text(content)
        names[file] = other.relative_to(root).as_posix()
    return root, names


@pytest.mark.usefixtures("no_figures")
def test_damaged_runs_are_left_out_and_named(damaged):
    root, names = damaged
    page = root / "report" / "index.html"
    status, _, err = call_report(root)
    assert status == 1
    assert all(err.count(f"fedbench: left out: {name}: ") == 1 for name in names.values())
    assert len(pd.read_parquet(root / "report" / "runs.parquet")) == 6
    assert all(name in page.read_text() for name in names.values())
    with pytest.warns(UserWarning, match=f"left out: {min(names.values())}: "):
        found = fedbench.load_results(root)
    assert len(found.runs) == 6
    assert [why.partition(": ")[0] for why in found.damaged] == sorted(names.values())
