"""Comparisons read from the directories that ``fedbench compare`` leaves."""

import json

import pytest
from command_line import fed  # noqa: F401 (a fixture)

from fedbench.core.errors import RequestError
from fedbench.runs.comparisons import collect, load, save


@pytest.fixture
def compared(fed, tmp_path):  # noqa: F811
    def compare(name, *args):
        tiny = ["data=synthetic_1_1", "data.clients=4", "rounds=2", "budget=2", "seeds=2", "--jobs=1"]
        status, _, err = fed("compare", "methods=fedavg,fedprox", *tiny, f"results_dir={name}", *args)
        assert status == 0, err
        return tmp_path / name

    return compare


def test_a_comparison_is_read_whole(compared, tmp_path):
    folder = compared("one")
    (folder / "refused.json").write_text('{"stem": "why not"}')
    found = collect([folder])
    assert found.settings == ["synthetic_1_1"]
    assert found.methods() == ["fedavg", "fedprox", "stem"]
    assert found.runs[["method", "seed", "outcome"]].to_numpy().tolist() == [
        [m, s, "done"] for m in ("fedavg", "fedprox") for s in (0, 1)
    ]
    tuning = found.tuning["synthetic_1_1"]
    assert tuning["refused"] == {"stem": "why not"}
    study = tuning["studies"]["fedprox"]
    assert set(study["chosen"]) == {"local.lr", "algo.mu"}
    best = max(study["trials"], key=lambda t: t["score"])
    assert study["chosen"] == best["values"]
    assert found.values("synthetic_1_1", "accuracy_mean", ["fedavg"]).shape == (2, 1)
    save(found, tmp_path / "out")
    assert load(tmp_path / "out").runs.equals(found.runs)
    assert json.loads((tmp_path / "out/tuning.json").read_text())["synthetic_1_1"]["clients"] == 4


def test_what_is_no_single_comparison_is_refused(compared, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="no runs of a comparison"):
        collect([tmp_path / "empty"])
    folder = compared("one")
    with pytest.raises(RequestError, match="one directory per setting"):
        collect([folder, folder])
    compared("one", "local.lr=0.3")
    with pytest.raises(RequestError, match="different budgets or spaces"):
        collect([folder])
    with pytest.raises(RequestError, match=r"needs runs\.parquet and tuning\.json"):
        load(tmp_path)
