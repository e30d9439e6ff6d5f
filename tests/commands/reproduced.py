"""Three runs of ``fedbench reproduce``, and how tests read them."""

from types import SimpleNamespace

import pytest
from command_line import meta_of
from report_runs import call

from fedbench.runs import training

# three runs of generated data, in this process
SMOKE = ["reproduce", "adafedadam/table4", "--profile", "smoke", "--jobs", "1"]
SETUPS = [
    "adafedadam/table5_synthetic",
    "adafedadam/table7_synthetic_momentum",
    "adafedadam/table7_synthetic_nesterov",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty directory, no data, and no lines of progress."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    # a slow machine prints what a fast one does
    monkeypatch.setattr("fedbench.runs.progress.EVERY", 1e6)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The three runs and their report; tests that change them copy them."""
    results = tmp_path_factory.mktemp("done") / "results"
    with pytest.MonkeyPatch.context() as patch:  # tests/report has the figures
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        status, out, err = call(*SMOKE, f"results_dir={results}")
    assert status == 0
    assert err.partition("\n")[0] == "fedbench: 3 runs, one at a time (jobs=1)"
    return SimpleNamespace(results=results, out=out)


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("nothing is left to train"))


def models(results):
    """The files of models by paper and setup."""
    return {p.relative_to(results).parts[:2]: p for p in sorted(results.rglob("model.safetensors"))}


def entries(results):
    """Experiment, algorithm, seed and status of the runs on disk."""
    metas = [meta_of(path.parent) for path in sorted(results.rglob("seed_*/meta.json"))]
    return [(m["experiment"], m["algo"], m["seed"], m["status"]) for m in metas]
