"""Published runs of a benchmark: what is written, read by another checkout, and refused."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from loopback import serving
from published_runs import BENCHMARK, METHODS, files_of, forge, run_methods, sha256, shared_of
from tools import rejected

from fedbench.benchmarks import check_entry
from fedbench.benchmarks.bundle import read_baselines, write_baselines
from fedbench.benchmarks.definition import Search
from fedbench.benchmarks.entries import Entry
from fedbench.data.files import fetch
from fedbench.tuning.space import Axis

MANIFEST = "evidence/bundle.json"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A results directory with all methods."""
    folder = tmp_path_factory.mktemp("results")
    run_methods(folder)
    return folder


@pytest.fixture(scope="module")
def entries(results):
    return run_methods(results)  # finished runs are read


@pytest.fixture(scope="module")
def original(entries, results, tmp_path_factory):
    """A published folder."""
    folder = tmp_path_factory.mktemp("published") / "small"
    write_baselines(entries, folder, shared_of(results))
    return folder


@pytest.fixture
def bundle(original, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(original, tmp_path / "bundle")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("FEDBENCH_OFFLINE", raising=False)
    monkeypatch.delenv("FEDBENCH_MIRRORS", raising=False)
    with serving() as running:
        yield running


def read(place, tmp_path, config_dir=None, without=(), **changes):
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    shared = shared_of(tmp_path / "other", config_dir, **changes)
    return read_baselines(place, shared, data, without)


# ---- writing


def test_a_directory_is_read_as_it_was_written(original, entries, tmp_path):
    shown = read(original, tmp_path)
    assert [entry.method for entry in shown] == list(METHODS)
    for entry, own in zip(shown, entries, strict=True):
        assert entry.published
        plain = replace(entry, published=False, runs=(), held_out=())
        assert plain == replace(own, runs=(), held_out=())
        pairs = zip(entry.runs + entry.held_out, own.runs + own.held_out, strict=True)
        for run, ran in pairs:
            assert run.last_round() == ran.last_round()
            pd.testing.assert_frame_equal(run.last_clients(), ran.last_clients())
            assert run.meta["versions"] == ran.meta["versions"]
        assert [run.meta["seed"] for run in entry.runs] == [0, 1]
    digests = {run.meta["hash"] for e in shown for run in e.runs + e.held_out}
    assert len(digests) == 4  # two methods in two variants
    assert [e.method for e in read(original, tmp_path, without=["fedavg"])] == ["fedprox"]


def test_a_published_folder_is_the_same_in_every_writing_and_names_no_place(
    original, entries, results, tmp_path
):
    reason = f"its file {results}/list.txt is missing"
    planned = shared_of(results).planned("one", "fedsps")
    space = tuple(planned.axes.values())
    refused = Entry("one", "fedsps", space, reason=reason, digests=planned.digests)
    for name in "12":
        write_baselines(
            [*entries, refused][:: 1 if name == "1" else -1], tmp_path / name, shared_of(results)
        )
    files = files_of(tmp_path / "1")
    assert files_of(tmp_path / "2") == files
    tables = {name for name in files if name.endswith(".parquet")}
    assert {name: files[name] for name in tables}.items() <= files_of(original).items()
    text = files["evidence/benchmark.json"].decode()
    assert "its file list.txt is missing" in text
    for run in read(tmp_path / "1", tmp_path)[0].runs:
        assert str(results.parent) not in json.dumps([text, run.config, run.meta])


def test_more_methods_add_files_and_change_no_other(entries, results, tmp_path):
    folder = tmp_path / "folder"
    write_baselines(entries[:1], folder, shared_of(results))
    first = files_of(folder)
    write_baselines(entries, folder, shared_of(results))
    tables = {name: c for name, c in first.items() if name.endswith(".parquet")}
    more = files_of(folder)
    assert tables.items() < more.items()
    assert len(more) == len(first) + 1


def test_other_files_are_never_replaced(bundle, entries, results, tmp_path):
    shared = shared_of(results)
    (bundle / "page.html").write_text("of another")
    with rejected("page.html is no part of published runs; name another folder"):
        write_baselines(entries, bundle, shared)
    (bundle / "page.html").unlink()
    with rejected("of 'small@1' instead of small@2"):
        write_baselines(entries, bundle, shared_of(results, version=2))
    with rejected("is no part"):
        write_baselines(entries, results, shared)
    file = tmp_path / "file"
    file.write_text("")
    with rejected("is no part"):
        write_baselines(entries, file, shared)
    write_baselines(entries, bundle, shared)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: {"runs": e.runs[:1]}, "the number of runs in the setting is 1 instead of 2"),
        (lambda e: {"held_out": ()}, "the number of held-out runs is 0 instead of 2"),
        (lambda e: {"runs": (e.runs[0], unfinished(e.runs[1]))}, "seed_1: it is not finished"),
        (lambda e: {"chosen": None}, "the choice of the best trial is None instead of"),
        (lambda e: {"method": "unknown"}, "it is no method of this version"),
    ],
)
def test_wrong_entries_are_not_published(entries, results, tmp_path, change, message):
    wrong = replace(entries[1], **change(entries[1]))
    with rejected(f"(fedprox|unknown) in one cannot be published .*{message}"):
        write_baselines([entries[0], wrong], tmp_path / "out", shared_of(results))
    assert not (tmp_path / "out").exists()


def unfinished(run):
    return replace(run, meta=run.meta | {"status": "running"})


def test_results_are_no_published_folder(results, tmp_path):
    with rejected("has no folder evidence .*fedbench publish .* --into FOLDER publishes results"):
        read(results, tmp_path)
    with rejected("--baselines=.*nowhere is not a directory"):
        read(tmp_path / "nowhere", tmp_path)


# ---- over http


def serve(server, folder, below="small/"):
    server.files = {f"{below}{name}": content for name, content in files_of(folder).items()}
    return f"{server.root}/{below}".rstrip("/")


def cached(tmp_path):
    """The complete copies below the data directory."""
    return list((tmp_path / "data").rglob("bundle.json"))


def test_an_address_is_read_like_the_directory_and_downloaded_once(
    server, original, tmp_path, monkeypatch
):
    url = serve(server, original)
    for address in (url, f"{url}/"):
        shown = read(address, tmp_path)
        assert [entry.method for entry in shown] == list(METHODS)
        assert shown[0].runs[0].last_round() == read(original, tmp_path)[0].runs[0].last_round()
    assert sorted(server.asked) == sorted([*server.files, f"small/{MANIFEST}"])
    server.asked.clear()
    read(url, tmp_path)
    assert server.asked == [f"small/{MANIFEST}"]

    server.asked.clear()
    pin = sha256(server.files[f"small/{MANIFEST}"])
    read(f"{url}#sha256={pin}", tmp_path)
    monkeypatch.setenv("FEDBENCH_OFFLINE", "1")
    assert len(read(url, tmp_path)) == len(METHODS)
    assert server.asked == []
    with rejected("has not been downloaded, and FEDBENCH_OFFLINE disables downloads; unset it"):
        read(f"{url}#sha256={'0' * 64}", tmp_path)


def test_a_pin_is_the_only_manifest_that_is_read(server, original, tmp_path):
    url = serve(server, original)
    with rejected("bundle.json could not be downloaded .*SHA256 hash of downloaded file"):
        read(f"{url}#sha256={'0' * 64}", tmp_path)
    assert not cached(tmp_path)
    with rejected("after # must be sha256= and 64 digits"):
        read(f"{url}#sha1=abc", tmp_path)


def test_only_files_that_changed_are_downloaded_again(server, original, entries, results, tmp_path):
    folder = tmp_path / "first"
    write_baselines(entries[:1], folder, shared_of(results))
    url = serve(server, folder)
    read(url, tmp_path)
    server.asked.clear()
    write_baselines(entries, folder, shared_of(results))
    serve(server, folder)
    assert len(read(url, tmp_path)) == 2
    tables = [name for name in server.asked if name.endswith(".parquet")]
    assert len(tables) == 1  # of the second method
    others = {f"small/{MANIFEST}", "small/evidence/benchmark.json"}
    assert sorted(server.asked) == sorted([*tables, *others])
    write_baselines(entries[1:], folder, shared_of(results))
    serve(server, folder)
    assert len(read(url, tmp_path)) == 1
    (copy,) = cached(tmp_path)
    assert set(files_of(copy.parent)) == set(files_of(folder / "evidence"))


def half(handler):
    """Announce more bytes than are sent, and hang up."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")


def endless(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            handler.wfile.write(b"x" * 100_000)


def silent(handler):
    handler.rfile.read(1)


def redirect(target):
    def answer(handler):
        handler.wfile.write(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\n\r\n".encode())

    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (404, "404"),
        (503, "503"),
        (half, "IncompleteRead|Connection broken"),
        (endless, "stopped, as the server sends more than"),
        (silent, "timed out"),
        (b"", "SHA256 hash|cannot be read"),
        (b"<html>sign in</html>", "SHA256 hash|cannot be read"),
        (redirect("file:///etc/passwd"), "No connection adapters"),
        (redirect("/small/elsewhere"), "SHA256 hash|cannot be read"),
    ],
)
@pytest.mark.parametrize("name", [MANIFEST, "evidence/benchmark.json", "parquet"])
def test_a_failed_download_leaves_nothing_and_works_when_repaired(
    server, original, tmp_path, monkeypatch, answer, message, name
):
    monkeypatch.setattr(fetch, "_TIMEOUT", (5.0, 0.3))
    monkeypatch.setattr("fedbench.benchmarks.bundle.MOST_BYTES", 10**6)
    url = serve(server, original)
    whole = dict(server.files)
    (wrong,) = [path for path in whole if path.endswith(name)][:1]
    server.files |= {wrong: answer, "small/elsewhere": b'{"format": 1}'}
    with rejected(message) as caught:
        read(url, tmp_path)
    assert server.root in str(caught.value)
    assert not cached(tmp_path)
    server.files = whole
    assert len(read(url, tmp_path)) == len(METHODS)


def test_a_mirror_of_data_sets_without_the_files_does_not_matter(
    server, original, tmp_path, monkeypatch
):
    monkeypatch.setenv("FEDBENCH_MIRRORS", f"{server.root}/mirror")
    url = serve(server, original)
    assert len(read(url, tmp_path)) == len(METHODS)
    server.files["small/evidence/benchmark.json"] = 404
    server.files[f"small/{MANIFEST}"] += b" "
    assert len(read(url, tmp_path)) == len(METHODS)  # the file is there already


def test_a_redirect_to_another_server_is_followed(server, original, tmp_path):
    url = serve(server, original, "moved/")
    for name in list(server.files):
        server.files[name.replace("moved/", "small/")] = redirect(f"{server.root}/{name}")
    assert len(read(url.replace("moved", "small"), tmp_path)) == len(METHODS)


def test_a_redirect_that_ends_encryption_is_refused():
    def response(target):
        headers = {"Location": target}
        return SimpleNamespace(is_redirect=True, url="https://host/bundle.json", headers=headers)

    fetch._refuse_unencrypted(response("https://other/bundle.json"))
    with pytest.raises(ValueError, match="redirected to http://host/bundle.json, which is not"):
        fetch._refuse_unencrypted(response("http://host/bundle.json"))
    with pytest.raises(ValueError, match="redirected to HTTP://host, which is not"):
        fetch._refuse_unencrypted(response("HTTP://host"))


def test_a_limit_of_no_bytes_is_a_limit(server, tmp_path):
    server.files = {"file": b"x"}
    remote = fetch.Remote("file", (f"{server.root}/file",), None, 0)
    (failure,) = fetch.retrieve(remote, tmp_path / "file")
    assert "more than 0 bytes" in failure


def test_a_server_that_cannot_be_reached_is_named(tmp_path, server, original):
    with rejected("http://127.0.0.1:9/evidence/bundle.json: no connection.*try again later"):
        read("http://127.0.0.1:9", tmp_path)
    with rejected("data_dir=.*typo is not a directory"):
        read_baselines(serve(server, original), shared_of(tmp_path), tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_damaged_copy_is_repaired_from_the_address(server, original, tmp_path):
    url = serve(server, original)
    pin = f"{url}#sha256={sha256(server.files[f'small/{MANIFEST}'])}"
    read(pin, tmp_path)
    (copy,) = cached(tmp_path)
    (copy.parent / "benchmark.json").write_text("{}")
    with rejected(f"benchmark.json is not the file .*remove {copy.parents[1]} to download it"):
        read(pin, tmp_path)
    assert len(read(url, tmp_path)) == len(METHODS)


# ---- bundles with right checksums and wrong content


def each(**changes):
    """Change all entries."""

    def document(tree):
        for entry in tree["entries"]:
            entry.update(changes)

    return {"document": document}


def definition(**changes):
    return {"document": lambda tree: tree["benchmark"].update(changes)}


def first_entry(change):
    return {"document": lambda tree: change(tree["entries"][0])}


def facts(**changes):
    """Change the facts of all runs."""
    return {"row": lambda row: row["meta"].update(changes)}


def config(**changes):
    return {"row": lambda row: row["config"].update(changes)}


def last(**changes):
    """Change the last round of all runs."""
    return {"row": lambda row: row["rounds"][-1].update(changes)}


def swap(name):
    """Give every entry the runs of the other one, or the seeds in the other order."""

    def document(tree):
        one, other = tree["entries"]
        if name == "methods":
            one["runs"], other["runs"] = other["runs"], one["runs"]
        elif name == "variants":
            one["runs"], one["held_out"] = one["held_out"], one["runs"]
        elif name == "seeds":
            one["runs"].reverse()
        else:
            one["runs"][1] = one["runs"][0]

    return {"document": document}


def overrate(entry):
    """Choose the worst trial."""
    scored = [trial for trial in entry["trials"] if trial["score"] is not None]
    entry["chosen"] = min(scored, key=lambda trial: trial["score"])["values"]
    scored[0]["score"] += 1e-3


def one_trial(entry):
    (best,) = [trial for trial in entry["trials"] if trial["values"] == entry["chosen"]]
    entry["trials"] = [best]


def trial_of_fedprox(number, key, value):
    def document(tree):
        tree["entries"][1]["trials"][number]["values"][key] = value

    return {"document": document}


NOT_JSON = {"document": lambda tree: tree.update(entries=[float("nan")])}
WRONG = {
    "another benchmark": (definition(name="large"), "'large@1' instead of small@1"),
    "another version": (definition(version=2), "'small@2' instead of small@1; .*never compared"),
    "another budget": (
        definition(search=vars(BENCHMARK.search) | {"budget": 50}),
        "search.budget of its definition is 50 instead of 2, without another version",
    ),
    "another setting": (
        definition(settings={"one": vars(BENCHMARK.settings["one"]) | {"digests": ["a", "c"]}}),
        "settings.one.digests of its definition is",
    ),
    "another format": ({"document": lambda tree: tree.update(format=2)}, "format 2 instead of 1"),
    "no entries": ({"document": lambda tree: tree.pop("entries")}, "'entries'"),
    "no numbers": (NOT_JSON, "benchmark.json is refused"),
    "unknown setting": (each(setting="two"), "in two is refused .the setting is unknown"),
    "a method twice": (each(method="fedprox"), "fedprox in one .*or has the method twice"),
    "another table": (swap("methods"), "fedavg in one .*algo is 'fedprox' instead of 'fedavg'"),
    "held-out runs": (swap("variants"), "data is 'synthetic_iid' instead of 'synthetic_leaf'"),
    "swapped seeds": (swap("seeds"), "seed is 1 instead of 0"),
    "a seed twice": (swap("twice"), "seed is 0 instead of 1"),
    "a missing seed": (
        first_entry(lambda entry: entry["runs"].pop()),
        "the number of runs in the setting is 1 instead of 2",
    ),
    "a missing run": (first_entry(lambda entry: entry.update(runs=["a", "b"])), "'a'"),
    "a worse trial": (first_entry(overrate), "the choice of the best trial is {.* instead of {"),
    "infinite score": (
        first_entry(lambda entry: entry["trials"][0].update(score=float("inf"))),
        "val_accuracy_mean is inf; it must be a number from 0 to 1",
    ),
    "more trials": (
        first_entry(lambda entry: entry.update(trials=entry["trials"] * 9)),
        "the number of trials is 18 instead of 2",
    ),
    "a trial of many": (first_entry(one_trial), "the number of trials is 1 instead of 2"),
    "a rate twice": (
        first_entry(lambda entry: entry["trials"][0].update(entry["trials"][1])),
        "the same values are tried twice",
    ),
    "another default": (
        trial_of_fedprox(0, "algo.mu", 7),
        "algo.mu of a trial is 7, which its axis does not have",
    ),
    "another rate": (
        trial_of_fedprox(2, "local.lr", 0.05),
        "local.lr of a trial is 0.05, which its axis does not have",
    ),
    "a run twice": ({"twice": True}, "two runs have the same path"),
    "no runs": (each(chosen=None, trials=[], runs=[], held_out=[]), "either runs or the reason"),
    "another digest": (facts(hash="0" * 10), "hash is '0000000000' instead of"),
    "another label": (facts(seed=7), "seed is 7 instead of 0"),
    "another experiment": (facts(experiment="other"), "experiment is 'other' instead of 'smoke'"),
    "another seed": (config(seed=7), "in its configuration, seed is 7 instead of 0"),
    "another configuration": (config(rounds=6), "in its configuration, rounds is 6 instead of 5"),
    "code of its own": (
        config(algo={"_target_": "os.system", "command": "exit"}),
        "in its configuration, algo._target_ is 'os.system' instead of",
    ),
    "unfinished": (facts(status="running"), "it is not finished; it must be finished"),
    "an earlier round": (last(round=4), "the last round is 4 instead of 5"),
    "a missing metric": (last(accuracy_worst10=None), "accuracy_worst10 is None; it must be a"),
    "no number": (last(accuracy_mean=float("nan")), "accuracy_mean is nan; it must be a"),
    "no clients": (
        {"row": lambda row: row.update(clients=[])},
        "it has no table of its clients",
    ),
    "more than all": (last(accuracy_mean=60.0), "accuracy_mean is 60.0; it must be"),
    "no start": ({"row": lambda row: row["meta"].pop("started")}, "its facts: lacks started"),
    "no time": (facts(ended="foo"), "its facts: ended: Invalid isoformat string: 'foo'"),
    "no time zone": (facts(ended="2026-01-01T00:00:00"), "ended: must have a time zone"),
    "versions as a list": (facts(versions=["1"]), "its facts: versions: must be a section"),
    "no facts": ({"row": lambda row: row.update(meta=[])}, "evidence cannot be read"),
    "a path upwards": (
        {"row": lambda row: row.update(path="../" + row["path"])},
        "the name '../smoke/.*' does not lead to a place below the folder",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_bundle_is_refused_and_read_when_repaired(
    server, original, bundle, tmp_path, change, message
):
    forge(bundle, **change)
    url = serve(server, bundle)
    for place in (bundle, url):
        with rejected(message) as caught:
            read(place, tmp_path)
        assert "ask the publisher" in str(caught.value)
    serve(server, original)
    assert len(read(url, tmp_path)) == len(METHODS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"algo._target_": "os.system"},
            "the list of a trial's keys is .'algo._target_'. instead of",
        ),
        ({"local.lr": 0.1, "data_dir": "/etc"}, "the list of a trial's keys is "),
        ({}, "the list of a trial's keys is "),
        ({"local.lr": "${oc.env:HOME}"}, "local.lr of a trial is '.*HOME}', which its axis"),
        ({"local.lr": {"a": 1}}, "local.lr of a trial is {'a': 1}, which its axis"),
    ],
)
def test_values_that_the_search_cannot_have_are_never_composed(bundle, tmp_path, values, message):
    """Not even if they are those of the best trial."""
    trial = {"values": values, "score": 2.0}
    forge(bundle, **first_entry(lambda entry: entry.update(chosen=values, trials=[trial])))
    with rejected(message):
        read(bundle, tmp_path)


def test_a_search_ends_after_its_rates_if_all_diverged(entries, results, tmp_path):
    trials = tuple(replace(trial, score=None) for trial in entries[1].trials)
    fields = {"chosen": None, "reason": "every trial diverged", "runs": (), "held_out": ()}
    diverged = replace(entries[1], trials=trials[:2], **fields)
    write_baselines([diverged], tmp_path / "out", shared_of(results))
    assert read(tmp_path / "out", tmp_path)[0].trials == trials[:2]
    with rejected("the number of trials is 4 instead of 2"):
        write_baselines([replace(diverged, trials=trials)], tmp_path / "more", shared_of(results))


def test_values_on_a_range_have_three_digits():
    axis = Axis("algo.mu", low=0.01, high=1.0, log=True)
    tried = [0.01, 0.123, 1.0, 0.1234, 2.0, 0.0, float("nan"), 1, True, "0.5", None]
    assert [value for value in tried if check_entry._is_on(axis, value)] == [0.01, 0.123, 1.0]


@pytest.mark.parametrize(
    ("last", "clients", "message"),
    [
        ({"other": [1.0]}, {}, "other is .1.0.; it must be a number"),
        ({}, {"accuracy": [[0.5]]}, "the table of its clients has lists"),
    ],
)
def test_lists_are_no_numbers(last, clients, message):
    table = pd.DataFrame({"round": [5], "client": [0], "accuracy": [0.5]} | clients)
    run = SimpleNamespace(last_round=lambda: {"round": 5} | last, clients=lambda: table)
    with pytest.raises(ValueError, match=message):
        check_entry._check_numbers(run, 5, ())


def test_values_off_the_axis_are_refused(bundle, tmp_path):
    values = {"local.lr": 0.05}
    trial = {"values": values, "score": 2.0}
    forge(bundle, **first_entry(lambda entry: entry.update(chosen=values, trials=[trial])))
    with rejected("local.lr of a trial is 0.05, which its axis does not have"):
        read(bundle, tmp_path)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"method": "later"}, "later in one is left out: it is no method of this version"),
        ({"method": "../fedavg"}, "../fedavg in one is left out: it is no method of this"),
        (
            {"space": ["local.lr=1,2"]},
            "fedprox in one is left out: space is ('local.lr=1,2',), and",
        ),
        ({"digests": ["0", "1"]}, "fedprox in one is left out: digests is ('0', '1'), and"),
    ],
)
def test_what_this_version_does_not_have_is_left_out_with_a_note(
    bundle, tmp_path, capsys, change, note
):
    forge(bundle, document=lambda tree: tree["entries"][1].update(change))
    assert [entry.method for entry in read(bundle, tmp_path)] == ["fedavg"]
    assert note in capsys.readouterr().err


def test_another_definition_of_the_reader_is_refused(original, tmp_path):
    other = Search((0.01, 0.1), 3, (1000,), "val_accuracy_mean")
    with rejected("search.budget of its definition is 2 instead of 3"):
        read(original, tmp_path, search=other)
    texts = {"title": "Another title", "changes": {1: "the first version"}}
    assert len(read(original, tmp_path, **texts)) == len(METHODS)
