"""Published runs against the experiments as they are now."""

from pathlib import Path

import pytest

from fedbench.analysis.departures import SPLIT, changed_keys
from fedbench.config.compose import Composer
from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.targets import stable
from fedbench.papers.registry import papers
from fedbench.runs.bundle import Bundle

ROOT = Path(__file__).parents[2]


def named(keys):
    """The keys of a setting, with functions by their stable names."""
    return {
        key: stable(value) if key.endswith("_target_") else value
        for key, value in keys.items()
        if key not in REPORTING_KEYS
    }


@pytest.mark.parametrize("name", papers())
def test_a_change_of_an_experiment_is_known(name):
    """A run differs from its experiment in what it has recorded, in what the setup's ``settings``
    tell, and in what a row of the paper sets."""
    paper = papers()[name]
    parts = [*paper.tables, *paper.figures]
    of_rows = {key for part in parts for row in paper.rows(part) for key in paper.overrides(row)}
    composer = Composer()
    baselines = {}
    unknown = set()
    for run in Bundle(ROOT / "results" / "published" / name).runs():
        algo = run.meta["algo"]
        if not (ROOT / "conf" / "algo" / f"{algo}.yaml").exists():
            continue  # a variant of a method in a file of its own
        which = (f"experiment={run.meta['experiment']}", f"algo={algo}")
        if which not in baselines:
            tree, _ = composer.composed(which)
            baselines[which] = named(setting(tree))
        ours = named(setting(run.config))
        theirs = baselines[which]
        for key in (ours.keys() | theirs.keys()) - of_rows - {SPLIT} - changed_keys(run).keys():
            value = theirs.get(key)
            if ours.get(key) != value and "${" not in str(value):
                unknown.add((*which, key))
    assert unknown == set()
