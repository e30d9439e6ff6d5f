"""Whatever happens to a file on disk: numbers are right, or there is a clear error.

Files of finished runs and of prepared data are changed at random, and what reads them is asked.
FEDBENCH_MUTATIONS is the number of changes for each reader.
"""

import contextlib
import hashlib
import io
import os
import shutil
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from data_files import leaf_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedbench
from fedbench.cli import main
from fedbench.runs import build_data

pytestmark = pytest.mark.whole

RUN = ["data=femnist", "data.clients=null", "model=linear", "rounds=2", "keep_state=true"]
LONGEST = 600  # characters of an error for one file
CHANGES = int(os.environ.get("FEDBENCH_MUTATIONS", "6"))
bounded = settings(
    max_examples=CHANGES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KINDS = st.sampled_from(["flip", "cut", "empty", "remove", "overwrite", "append"])
PLACES = st.floats(0, 1, exclude_max=True)
changed_at_random = given(data=st.data(), kind=KINDS, where=PLACES)
ANSWERS = {}  # digests of what each reader shows of undamaged runs


def files_in(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())


def change(file, kind, place):
    """Change a file; ``place`` is where, as a share of its length, and which bit."""
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    if kind == "remove":
        file.unlink()
        return
    if kind == "flip" and content:
        content[at] ^= 1 << int(place * 8191) % 8
    elif kind == "overwrite" and content:
        content[at] = ord("7") if content[at] != ord("7") else ord("1")
    elif kind == "append":
        content += content[-at - 1 :]
    else:
        content = content[: at if kind == "cut" else 0]
    file.write_bytes(content)


def call(*args):
    """Return status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    build_data._kept.clear()  # prepared data are read again
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(args))
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Finished runs of two methods with two seeds each, and their prepared data."""
    root = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(0)
    users = {}
    for user in range(4):
        x = rng.integers(0, 256, (12, 784)) / 255
        users[f"writer {user}"] = (x.tolist(), rng.integers(0, 62, 12).tolist())
    for part in ("train", "test"):
        (root / f"femnist/data/{part}").mkdir(parents=True)
        leaf_file(root / f"femnist/data/{part}/all.json", users)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        typed = [*RUN, f"data_dir={root}", "algo=fedavg,fedprox", "seed=0,1"]
        assert call("-m", *typed)[0] == 0
    shutil.rmtree(root / "results" / "sweeps", ignore_errors=True)
    return root


@pytest.fixture
def place(whole, tmp_path, monkeypatch, no_figures):
    """Return an empty directory, which is filled again for every example."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fresh(whole, place):
    """Copy the runs and the prepared data, with the times of the sources, which the cache knows."""
    for entry in place.iterdir():
        shutil.rmtree(entry)
    shutil.copytree(whole / "results", place / "results")


def tables(folder):
    return {p.name: p.read_bytes() for p in sorted((folder / "tables").iterdir())}


def report():
    status, out, err = call("report", "results")
    return status, (out, tables(Path("results/report"))), err


def published():
    status, _, err = call("report", "results", "--into", "published")
    return status, tables(Path("published")), err


def plot():
    Path("drawn").mkdir()
    status, _, err = call("plot", "results", "--out", "drawn/plot.svg")
    return status, Path("drawn/plot.svg").read_bytes(), err


def frames():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = fedbench.load_results("results")
    tables = [table.to_csv() for table in (results.runs, results.rounds, results.clients)]
    return int(bool(caught)), tables, "".join(f"{w.message}\n" for w in caught)


def shown():
    runs = sorted(Path("results").rglob("seed_*"))
    outputs = [call("show", str(run)) for run in runs]
    numbers = [out.partition("\nRound ")[2] for _, out, _ in outputs]
    return max(status for status, *_ in outputs), numbers, "".join(err for *_, err in outputs)


READERS = {
    "report": report,
    "report --into": published,
    "report --compare": partial(call, "report", "results", "--compare", "algo"),
    "report --metric": partial(call, "report", "results", "--metric", "accuracy_worst30"),
    "plot": plot,
    "load_results": frames,
    "show": shown,
}


def ask(reader):
    """Return the status of a reader, a digest of what it shows, and its error."""
    status, shown, err = READERS[reader]()
    return status, hashlib.sha256(repr(shown).encode()).hexdigest(), err


def is_error(status, err, run):
    """Whether a command has failed with a short error that names the run."""
    short = len(err) < LONGEST and "Traceback" not in err
    return status == 1 and str(run) in err and short


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@bounded
@changed_at_random
def test_a_reader_of_runs_shows_the_same_numbers_or_fails(whole, place, reader, data, kind, where):
    if reader not in ANSWERS:
        fresh(whole, place)
        status, ANSWERS[reader], err = ask(reader)
        assert (status, err) == (0, "")
    fresh(whole, place)
    file = Path("results") / data.draw(st.sampled_from(files_in(whole / "results")))
    change(file, kind, where)
    status, found, err = ask(reader)
    run = next(p for p in file.parents if p.name.startswith("seed_")).relative_to("results")
    same = status == 0 and found == ANSWERS[reader]
    assert same or is_error(status, err, run), (file, kind, where, err)


@bounded
@changed_at_random
def test_a_finished_run_that_is_asked_for_has_the_same_model_or_fails(
    whole, place, data, kind, where
):
    fresh(whole, place)
    run = next(Path("results").rglob("fedavg/*/seed_0"))
    model = (run / "model.safetensors").read_bytes()
    file = data.draw(st.sampled_from(files_in(run)))
    change(run / file, kind, where)
    status, out, err = call(*RUN, f"data_dir={whole}", "algo=fedavg", "seed=0")
    if status == 0:
        assert (run / "model.safetensors").read_bytes() == model
        assert out.splitlines()[-1] == str(run)
    else:
        assert is_error(status, err, run), err
        assert "force=true" in err


@bounded
@changed_at_random
def test_prepared_data_are_the_same_or_are_prepared_again(whole, place, data, kind, where):
    expected = next((whole / "results").rglob("fedavg/*/seed_0/model.safetensors")).read_bytes()
    prepared = [p for p in files_in(whole / "prepared") if p.suffix != ".lock"]
    file = whole / "prepared" / data.draw(st.sampled_from(prepared))
    content = file.read_bytes()
    try:
        change(file, kind, where)
        changed = not file.exists() or file.read_bytes().strip() != content.strip()
        keys = [f"data_dir={whole}", "algo=fedavg", "seed=0", "force=true"]
        status, out, err = call(*RUN, *keys)
        assert status == 0, err
        model = Path(out.splitlines()[-1], "model.safetensors").read_bytes()
        assert model == expected, (file, kind, where)
        assert not changed or "preparing femnist" in err, (file, kind, where, err)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("reader", READERS)
def test_a_digit_of_a_finished_run_is_no_other_number(whole, place, reader):
    fresh(whole, place)
    file = next(Path("results").rglob("fedprox/*/seed_1/rounds.jsonl"))
    file.write_text(file.read_text().replace('"accuracy_mean":0.', '"accuracy_mean":7.'))
    status, _, err = ask(reader)
    assert (status, "seed_1: rounds.jsonl: it has changed since it was written" in err) == (1, True)
