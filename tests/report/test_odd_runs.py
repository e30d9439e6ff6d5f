"""One odd run ends no report: it is left out and named with its reason, and all others are there."""

import contextlib
import io
import json
import os
import shutil

import pandas as pd
import pytest

import fedbench
from fedbench.cli import main
from fedbench.core.sealing import seal, to_text

BASE = "experiment=adafedadam/table5_synthetic rounds=2 data.clients=6 local.steps=1"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Six small runs of a paper's table, made by fedbench."""
    root = tmp_path_factory.mktemp("real") / "runs"
    for algo in ("fedavg", "qfedavg"):
        for seed in range(3):
            fedbench.run(f"{BASE} algo={algo} seed={seed} results_dir={root}")
    return root


def whole(change):
    """A change of a file's bytes."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def fact(**facts):
    """Other facts in meta.json."""
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def without(key):
    def change(path):
        facts = json.loads(path.read_text())
        del facts[key]
        path.write_text(json.dumps(facts))

    return change


def last(**values):
    """Other values in the last round."""

    def change(path):
        *lines, end = path.read_text().splitlines()
        path.write_text("\n".join([*lines, json.dumps(json.loads(end) | values)]) + "\n")

    return change


def raw(text):
    """A last line of any text."""
    return lambda path: path.write_text("\n".join([*path.read_text().splitlines()[:-1], text]) + "\n")


def table(change):
    return lambda path: change(pd.read_parquet(path)).to_parquet(path, index=False)


def pipe(path):
    path.unlink()
    os.mkfifo(path)  # a reader that opens it waits for ever


def folder(path):
    path.unlink()
    path.mkdir()


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
MUTATIONS = {
    "config.yaml empty": ("config.yaml", whole(lambda b: b"")),
    "config.yaml half": ("config.yaml", whole(lambda b: b[: len(b) // 2] + b"\n  - [")),
    "config.yaml list": ("config.yaml", whole(lambda b: b"- 1\n- 2\n")),
    "config.yaml not UTF-8": ("config.yaml", whole(lambda b: b + b"note: \xff\xfe\n")),
    "config.yaml tabs": ("config.yaml", whole(lambda b: b.replace(b"\n", b"\n\t"))),
    "config.yaml laughs": ("config.yaml", whole(lambda b: b + LAUGHS.encode())),
    "config.yaml nested": ("config.yaml", whole(lambda b: b + b"deep: " + b"[" * 100_000 + b"]" * 100_000)),
    "config.yaml itself": ("config.yaml", whole(lambda b: b + b"ring: &r [*r]\n")),
    "config.yaml date": ("config.yaml", whole(lambda b: b + b"day: 2024-01-01\n")),
    "config.yaml no integer": ("config.yaml", whole(lambda b: b + b"number: !!int ''\n")),
    "config.yaml huge number": ("config.yaml", whole(lambda b: b + b"number: 1" + b"0" * 400 + b"\n")),
    "config.yaml rounds": ("config.yaml", whole(lambda b: b.replace(b"rounds: 2", b"rounds: many"))),
    "config.yaml clients": ("config.yaml", whole(lambda b: b.replace(b"clients: 6", b"clients: [6]"))),
    "config.yaml large": ("config.yaml", whole(lambda b: b + b"# " + b"x" * 5_000_000)),
    "config.yaml pipe": ("config.yaml", pipe),
    "meta.json empty": ("meta.json", whole(lambda b: b"")),
    "meta.json half": ("meta.json", whole(lambda b: b[: len(b) // 2])),
    "meta.json list": ("meta.json", whole(lambda b: b"[]")),
    "meta.json not UTF-8": ("meta.json", whole(lambda b: b.replace(b'"cpu"', b'"\xff"', 1))),
    "meta.json nested": ("meta.json", whole(lambda b: b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    "meta.json folder": ("meta.json", folder),
    "algo null": ("meta.json", fact(algo=None)),
    "algo number": ("meta.json", fact(algo=7)),
    "algo long": ("meta.json", fact(algo="x" * 300)),
    "algo NUL": ("meta.json", fact(algo="fed\0avg")),
    "experiment list": ("meta.json", fact(experiment=["adafedadam"])),
    "experiment long": ("meta.json", fact(experiment="x" * 300)),
    "seed text": ("meta.json", fact(seed="1")),
    "seed true": ("meta.json", fact(seed=True)),
    "seed huge": ("meta.json", fact(seed=10**30)),
    "status unknown": ("meta.json", fact(status="fine")),
    "status list": ("meta.json", fact(status=[])),
    "departures list": ("meta.json", fact(departures=["rounds"])),
    "departures single": ("meta.json", fact(departures={"rounds": 2})),
    "departures words": ("meta.json", fact(departures={"rounds": [1000, "few"]})),
    "departures missing": ("meta.json", without("departures")),
    "model missing": ("meta.json", without("model")),
    "overrides null": ("meta.json", fact(overrides=None)),
    "overrides numbers": ("meta.json", fact(overrides=[1, 2])),
    "files unknown": ("meta.json", fact(files={"data.nowhere": "abc"})),
    "versions list": ("meta.json", fact(versions=["1"])),
    "unofficial number": ("meta.json", fact(unofficial=3)),
    "started words": ("meta.json", fact(started="yesterday")),
    "half a surrogate": ("meta.json", fact(sources=["\ud800"])),
    "rounds of the run": ("meta.json", fact(rounds="2")),
    "other end": ("meta.json", fact(rounds=3)),
    "rounds.jsonl empty": ("rounds.jsonl", whole(lambda b: b"")),
    "rounds.jsonl half": ("rounds.jsonl", whole(lambda b: b[:-40])),
    "rounds.jsonl not UTF-8": ("rounds.jsonl", whole(lambda b: b[:-3] + b"\xff}\n")),
    "rounds.jsonl zeros": ("rounds.jsonl", whole(lambda b: b[:-64] + b"\0" * 64)),
    "rounds.jsonl twice": ("rounds.jsonl", whole(lambda b: b + b)),
    "rounds.jsonl pipe": ("rounds.jsonl", pipe),
    "rounds.jsonl gone": ("rounds.jsonl", lambda path: path.unlink()),
    "line a number": ("rounds.jsonl", raw("5")),
    "line two objects": ("rounds.jsonl", raw('{"round": 2} {"round": 3}')),
    "line nested": ("rounds.jsonl", raw("[" * 100_000)),
    "round text": ("rounds.jsonl", last(round="2")),
    "round half": ("rounds.jsonl", last(round=1.5)),
    "round null": ("rounds.jsonl", last(round=None)),
    "accuracy text": ("rounds.jsonl", last(accuracy_mean="high")),
    "accuracy list": ("rounds.jsonl", last(accuracy_mean=[0.5])),
    "accuracy true": ("rounds.jsonl", last(accuracy_mean=True)),
    "accuracy 7": ("rounds.jsonl", last(accuracy_mean=7)),
    "accuracy NaN": ("rounds.jsonl", last(accuracy_mean=float("nan"))),
    "loss infinite": ("rounds.jsonl", last(train_loss=float("inf"))),
    "loss 1e999": ("rounds.jsonl", raw('{"round": 2, "train_loss": 1e999}')),
    "bytes of 100 digits": ("rounds.jsonl", last(bytes_up=10**100)),
    "bytes of 5000 digits": ("rounds.jsonl", raw('{"round": 2, "bytes_up": 1' + "0" * 5000 + "}")),
    "clients.parquet half": ("clients.parquet", whole(lambda b: b[: len(b) // 2])),
    "clients.parquet empty": ("clients.parquet", whole(lambda b: b"")),
    "clients.parquet text": ("clients.parquet", whole(lambda b: b"PAR1" + b"x" * 100 + b"PAR1")),
    "clients without accuracy": ("clients.parquet", table(lambda t: t.rename(columns={"round": "turn"}))),
    "accuracies of text": ("clients.parquet", table(lambda t: t.assign(accuracy="high"))),
    "no client": ("clients.parquet", table(lambda t: t.iloc[:0])),
    "DONE folder": ("DONE", folder),
    "DONE half": ("DONE", whole(lambda b: b"{" + b[:20])),
}
# without checksums, as runs of fedbench 0.1.0 are, these are runs like any other
PLAIN_WITHOUT = {"DONE half"}


def unseal(path):
    """Make a run one of fedbench 0.1.0, whose DONE is empty."""
    (path / "DONE").write_text("")
    facts = json.loads((path / "meta.json").read_text())
    facts.pop("sealed", None)
    (path / "meta.json").write_text(json.dumps(facts))


def reseal(path):
    """Give the files of a run the checksums of what they are now."""
    names = [f.name for f in path.iterdir() if f.is_file() and f.name != "DONE"]
    (path / "DONE").write_text(to_text({"sealed": {name: seal(path / name) for name in names}}))


@pytest.fixture
def odd(real, tmp_path):
    """Copies of the runs, and the directory of one of them."""
    root = tmp_path / "runs"
    shutil.copytree(real, root)
    (path,) = root.glob("adafedadam/table5_synthetic/qfedavg/*/seed_1")
    return root, path


def mutated(odd, kind):
    """Add an odd run per mutation to the runs, and return their names below the directory by mutation."""
    root, path = odd
    names = {}
    for i, (mutation, (file, change)) in enumerate(MUTATIONS.items()):
        if kind == "unsealed" and mutation in PLAIN_WITHOUT:
            continue
        other = path.parent.with_name(f"{kind}{i}") / "seed_1"
        shutil.copytree(path, other)
        if kind == "unsealed":
            unseal(other)
        change(other / file)
        if kind == "resealed" and file != "DONE":
            reseal(other)
        names[mutation] = other.relative_to(root).as_posix()
    return names


def call(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(args)
    return status, out.getvalue(), err.getvalue()


def reasons(err):
    """The runs that are left out, with their reasons."""
    found = [
        line.removeprefix("fedbench: left out: ").split(": ", 1) for line in err.splitlines() if "left out: " in line
    ]
    assert "Traceback" not in err
    assert len(found) == len({name for name, _ in found}), "a run is named twice"
    assert all(len(why) < 400 for _, why in found)
    return dict(found)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("kind", ["sealed", "unsealed"])
def test_odd_runs_are_left_out_and_named_by_every_command(odd, kind):
    root, _ = odd
    names = mutated(odd, kind)
    status, _, err = call("report", str(root))
    assert status == 0, err
    missed = {m for m, name in names.items() if name not in reasons(err)}
    assert missed == set()
    assert len(pd.read_parquet(root / "report" / "runs.parquet")) == 6
    page = (root / "report" / "index.html").read_text()
    assert [m for m, name in names.items() if name not in page] == []
    status, out, err = call("report", str(root), "--compare", "algo")
    assert (status, {*names.values()} - reasons(err).keys()) == (0, set())
    assert "fedavg" in out
    found = fedbench.load_results(root)
    assert len(found.runs) == 6
    assert len(found.damaged) == len(names)
    assert all(any(why.startswith(f"{name}: ") for why in found.damaged) for name in names.values())
    status, out, err = call("reproduce", "adafedadam/table5", "--plan", f"results_dir={root}")
    assert (status, {*names.values()} - reasons(err).keys()) == (0, set())
    assert "adafedadam/table5" in out


@pytest.mark.usefixtures("no_figures")
def test_checksums_of_odd_files_do_not_help(odd):
    """No command ends in an error; only clients and models are not read before they are drawn."""
    root, _ = odd
    names = mutated(odd, "resealed")
    read = {name for m, name in names.items() if MUTATIONS[m][0] != "clients.parquet"}
    for command in (["report", str(root)], ["report", str(root), "--compare", "algo"],
                    ["reproduce", "adafedadam/table5", "--plan", f"results_dir={root}"]):  # fmt: skip
        status, _, err = call(*command)
        assert (status, read - reasons(err).keys()) == (0, set()), command
    assert len(fedbench.load_results(root).damaged) >= len(read)


def test_clients_that_are_odd_are_found_when_they_are_drawn(odd):
    root, path = odd
    (path / "clients.parquet").write_bytes(b"PAR1")
    reseal(path)
    status, _, err = call("report", str(root))
    assert (status, list(reasons(err))) == (0, [path.relative_to(root).as_posix()])
    assert len(pd.read_parquet(root / "report" / "runs.parquet")) == 5


@pytest.mark.parametrize(
    "values", [{"train_loss": 1e300, "test_loss": -1e300}, {"own": "text"}, {"own": [1, {"a": None}]}]
)
def test_what_is_only_unusual_is_shown(odd, values):
    """A loss may overflow float32, and users' own metrics are anything."""
    root, path = odd
    last(**values)(path / "rounds.jsonl")
    reseal(path)
    status, _, err = call("report", str(root))
    assert (status, "left out" in err) == (0, False), err
    assert len(pd.read_parquet(root / "report" / "runs.parquet")) == 6


def test_a_run_that_changes_while_the_report_is_written_is_left_out(odd, monkeypatch):
    root, path = odd
    from fedbench.report import write

    page = write.page

    def meanwhile(view):
        (path / "rounds.jsonl").write_text("torn")
        monkeypatch.setattr(write, "page", page)
        return page(view)

    monkeypatch.setattr(write, "page", meanwhile)
    status, _, err = call("report", str(root))
    assert status == 0
    assert f"left out: {path.relative_to(root).as_posix()}: rounds.jsonl has 4 bytes" in err
    assert len(pd.read_parquet(root / "report" / "runs.parquet")) == 5
