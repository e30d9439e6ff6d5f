"""The GPU suite at its small size on a CPU: what is done is kept, what does not fit is left, what is wrong is found."""

import json
import os
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from pretend_gpu import PretendGpu
from test_scripts import script
from tools import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from suite import correctness, form_times, memory, parts, rows, workloads
from suite.parts import Part, Piece, Setting, carry_out
from suite.record import PROCESS, Record, code_digest
from suite.subjects import composed, last_model, pictures, prepared
from suite.summary import is_wrong, summary

from fedbench.simulation.forms import Form

CPU = torch.device("cpu")
LOOP = Form("loop")


class Clock:
    """A clock that the tests set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def setting(tmp_path, clock):
    return Setting(CPU, tmp_path, None, (), lambda: 700.0 - clock())  # ten minutes


def record(folder, code="x", keep=False):
    return Record(folder, "z", CPU, code, keep)


def planned(clock, begun, seconds=60.0, outcomes=None, minutes=2.0):
    """A part of three pieces that note that they have begun."""

    def piece(name, setting):
        begun.append(name)
        clock.now += seconds
        return (outcomes or {}).get(name, {"value": name})

    def pieces(setting):
        return [Piece(name, minutes, partial(piece, name)) for name in ("one", "two", "three")]

    return Part("z", "Last", pieces, lambda found: [f"{len(found)} found"])


def test_what_is_done_is_kept_and_the_rest_is_carried_out(setting, clock, tmp_path):
    begun = []
    part = planned(clock, begun, outcomes={"two": {"wrong": ["off by 3"]}, "three": {"unfinished": True}})
    carry_out(part, setting, record(tmp_path), clock)
    assert begun == ["one", "two", "three"]
    found = json.loads((tmp_path / "z.json").read_text())
    assert (found["seconds"], found["code"], found["device"]) == (180.0, "x", "cpu")
    assert {"torch", "python"} < set(found["versions"])
    assert found["pieces"]["one"]["value"] == "one"
    clock.now = 100.0
    carry_out(part, setting, record(tmp_path), clock)
    assert begun[3:] == ["two", "three"]  # wrong, and not finished
    carry_out(planned(clock, begun), setting, record(tmp_path, code="y"), clock)
    assert begun[5:] == ["one", "two", "three"]
    clock.now = 100.0
    carry_out(part, setting, record(tmp_path, code="z", keep=True), clock)
    assert len(begun) == 8
    assert not Record(tmp_path, "z", CPU, "y", True).done("four")


def test_results_of_another_device_are_measured_again(setting, clock, tmp_path):
    begun = []
    carry_out(planned(clock, begun), setting, record(tmp_path), clock)
    found = json.loads((tmp_path / "z.json").read_text())
    found["pieces"]["two"]["device_name"] = "another"
    (tmp_path / "z.json").write_text(json.dumps(found))
    clock.now = 100.0
    carry_out(planned(clock, begun), setting, record(tmp_path, keep=True), clock)
    assert begun[3:] == ["two"]


def test_a_piece_does_not_begin_when_it_no_longer_fits(setting, clock, tmp_path, capsys):
    """Of ten minutes, two pieces take four each; the third needs three and has two."""
    begun = []
    carry_out(planned(clock, begun, seconds=240.0, minutes=3.0), setting, record(tmp_path), clock)
    assert begun == ["one", "two"]
    assert "z, three: not begun, about 3 min do not fit into the time that is left" in capsys.readouterr().out
    text = summary([(planned(clock, []), record(tmp_path))], setting)
    assert "2 found" in text
    assert "- Not done: three" in text


def test_an_error_is_wrong_and_leaves_the_other_pieces(setting, clock, tmp_path, capsys):
    def failing(setting):
        raise RuntimeError("no kernel image\nsecond line")

    part = Part("z", "Last", lambda s: [Piece("bad", 0, failing), Piece("good", 0, lambda s: {})], lambda found: [])
    done = record(tmp_path)
    carry_out(part, setting, done, clock)
    assert done.pieces["bad"]["wrong"] == ["RuntimeError: no kernel image"]
    assert [done.done(name) for name in ("bad", "good")] == [False, True]
    assert is_wrong([(part, done)])
    assert "- Wrong: bad: RuntimeError: no kernel image" in summary([(part, done)], setting)
    capsys.readouterr()


@pytest.fixture
def suite(monkeypatch, clock):
    """The script with two parts of the tests' own."""
    made = script("gpu_suite")
    begun, outcomes = [], {}
    first = planned(clock, begun, outcomes=outcomes)
    monkeypatch.setattr(made, "SHARES", {"y": 1, "z": 3})
    monkeypatch.setattr(made, "PARTS", {"y": replace(first, letter="y", title="First"), "z": first})
    made.begun, made.outcomes = begun, outcomes
    return made


def test_a_wrong_result_gives_status_1_until_it_is_mended(suite, clock, tmp_path, capsys):
    asked = ["--device", "cpu", "--out", str(tmp_path), "--only", "z", "--minutes", "100"]
    suite.outcomes["two"] = {"wrong": ["off by 3"]}
    assert suite.main(asked, clock) == 1
    assert "- Wrong: two: off by 3" in (tmp_path / "summary.md").read_text()
    suite.outcomes.clear()
    assert suite.main(asked, clock) == 0
    assert suite.begun == ["one", "two", "three", "two"]
    assert "z, one: done already" in capsys.readouterr().out
    assert suite.main([*asked[:-4], "--list"], clock) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "y  First: about 6 min on a GPU"
    assert [line.split()[0] for line in lines[5:]] == ["done"] * 3


def test_no_time_is_not_wrong(suite, clock, tmp_path):
    assert suite.main(["--device", "cpu", "--out", str(tmp_path), "--only", "z", "--minutes", "1"], clock) == 0
    assert suite.begun == []


def test_a_part_whose_process_dies_is_wrong_and_the_next_one_goes_on(suite, clock, tmp_path, monkeypatch):
    commands = []

    def run_within(command, seconds):
        commands.append((command[command.index("--only") + 1], seconds))
        return -11 if len(commands) == 1 else 0

    monkeypatch.setattr(suite, "run_within", run_within)
    assert suite.main(["--device", "cpu", "--out", str(tmp_path), "--minutes", "10"], clock) == 1
    assert commands == [("y", 150.0 + 30.0), ("z", 600.0 + 30.0)]  # a quarter, and all that is left
    found = json.loads((tmp_path / "y.json").read_text())["pieces"][PROCESS]["wrong"]
    assert found == ["the process of this part ended with exit status -11"]
    assert suite.main(["--device", "cpu", "--out", str(tmp_path), "--only", "y", "--minutes", "10"], clock) == 0


def test_the_rows_get_most_of_the_time():
    shares = script("gpu_suite").SHARES
    assert list(shares) == list("abcde")
    assert 2 * shares["e"] > sum(shares.values())


def test_a_listing_needs_no_gpu(tmp_path, capsys, monkeypatch):
    """What is done on a GPU is seen, too."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    made = script("gpu_suite")
    asked = ["--list", "--out", str(tmp_path)]
    assert made.main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines if line[0] != " "] == list("abcde")
    assert not any("done" in line for line in lines)
    (tmp_path / "c.json").write_text(json.dumps({"pieces": {"W2": {"device_name": "a GPU", "code": code_digest()}}}))
    assert made.main(asked) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "done" in line] == [
        ["done", "1.0", "min", "W2"]
    ]


def test_the_arguments(capsys):
    made = script("gpu_suite")
    for given, message in (
        (["--only", "a,x", "--device", "cpu"], "--only x: the parts are a, b, c, d, e"),
        (["--minutes", "1"], "torch sees no CUDA device; --device cpu shows that the suite runs"),
    ):
        if torch.cuda.is_available() and "--device" not in given:
            continue
        with pytest.raises(SystemExit):
            made.main(given)
        assert message in capsys.readouterr().err


def test_where_the_data_are(monkeypatch, tmp_path, capsys):
    made = script("gpu_suite")
    args = made.arguments(["--device", "cpu", "--out", str(tmp_path / "out")])
    monkeypatch.setattr(made, "ROOT", tmp_path / "checkout")
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    assert made.data_directory(args) is None
    assert "no data: set FEDBENCH_DATA" in capsys.readouterr().out
    pack = tmp_path / "shared" / "data" / "unpack.py"
    pack.parent.mkdir(parents=True)
    pack.write_text("import sys, pathlib\npathlib.Path(sys.argv[1]).mkdir()\nsys.exit(sys.argv[2:] != ['cifar10'])\n")
    args.out.mkdir()
    monkeypatch.setattr(made, "reads_avif", lambda: False)
    with pytest.raises(SystemExit, match=r"part e unpacks pictures with Pillow, .* pip install 'pillow>=11.3'"):
        made.data_directory(args)
    monkeypatch.setattr(made, "reads_avif", lambda: True)
    assert made.data_directory(args) == tmp_path / "out" / "data"
    assert (tmp_path / "out" / "data").is_dir()
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("FEDBENCH_DATA", str(tmp_path))
    assert made.data_directory(args) == tmp_path


def test_the_digest_of_the_code_is_that_of_its_content(monkeypatch, tmp_path):
    (tmp_path / "fedbench").mkdir()
    file = tmp_path / "fedbench" / "a.py"
    monkeypatch.setattr("suite.record.ROOT", tmp_path)
    found = []
    for text in ("1", "2", "1"):
        file.write_text(text)
        found.append(code_digest())
    assert found[0] == found[2] != found[1]


# ---- the parts


def test_correctness_compares_every_form_and_notices_what_is_wrong(setting, monkeypatch):
    subject = correctness.MODELS["linear"]
    for method, precision in (("fedavg", "float64"), ("fedavg", "float32"), ("fedfa", "float64")):
        found = correctness.compare("linear", subject, method, precision, setting)
        assert (found["wrong"], found["unfinished"]) == ([], False)
        assert [r["form"] for r in found["rows"]] == ["loop", "stacked"]  # of a linear model on a CPU
        assert all(r["same"] for r in found["rows"])
        assert max(r["off"] for r in found["rows"]) < (1e-12 if precision == "float64" else 1e-4)
    assert "| linear | float64 | 2 |" in "\n".join(correctness.table({"linear, fedfa, float64": found}))
    true, count = correctness.trained, iter(range(100))

    def compared(change):
        def changed(*given):
            return [change(w) for w in true(*given)] if given[3].mode == "stacked" else true(*given)

        monkeypatch.setattr(correctness, "trained", changed)
        return correctness.compare("linear", subject, "fedavg", "float32", setting)["wrong"]

    (off,) = compared(lambda w: w * 1.1)
    assert off.startswith("linear, fedavg, float32, stacked: ")
    assert off.endswith("at most 0.05")
    (other,) = compared(lambda w: w + 1e-9 * next(count))
    assert other == "linear, fedavg, float32, stacked: other bits after 2 rounds when they are repeated"
    (failed,) = compared(lambda w: 1 / 0)
    assert failed == "linear, fedavg, float32, stacked: ZeroDivisionError: division by zero"


def test_correctness_has_every_method_and_every_model(setting):
    cuda = replace(setting, device=torch.device("cuda"))
    names = [tuple(p.name.rsplit(", ", 2)) for p in correctness.pieces(cuda)]
    assert len(names) == len(set(names))
    methods = {p.stem for p in (ROOT / "conf" / "algo").glob("*.yaml")}
    assert {m for model, m, p in names if (model, p) == ("mlp", "float64")} == methods
    assert {m for model, m, p in names if (model, p) == ("mlp", "float32")} == methods - set(correctness.DISCRETE)
    for model in correctness.MODELS:
        assert {p for name, m, p in names if (name, m) == (model, "fedavg")} == set(correctness.BOUNDS)
        assert {m for name, m, p in names if name == model} == set(correctness.FEW)


def test_forms_go_on_where_the_time_was_used_up(setting, clock, tmp_path):
    """Each takes 280 of 600 seconds, and none begins in the last 30; the next time goes on with the third."""
    begun, forms = [], [Form("loop", workers=n) for n in (1, 2, 3)]

    def row(form):
        begun.append(form.workers)
        clock.now += 280.0 + 5 * form.workers
        return {"n": form.workers}

    part = Part("z", "Last", lambda s: [Piece("p", 0, lambda s: parts.of_each_form(forms, s, row))], lambda f: [])
    for done, order in ((False, [1, 2]), (True, [1, 2, 3])):
        kept = record(tmp_path)
        carry_out(part, setting, kept, clock)
        assert (kept.done("p"), begun, [r["n"] for r in kept.pieces["p"]["rows"]]) == (done, order, order)
        clock.now = 100.0
    carry_out(part, setting, record(tmp_path, code="other"), clock)
    assert begun == [1, 2, 3, 1, 2]


def test_memory_runs_out_and_the_model_is_the_same(setting, monkeypatch):
    found = memory.out_of_memory(setting)
    assert (found["wrong"], found["clients"], found["clients_after"], found["errors"]) == ([], 8, 4, 1)
    monkeypatch.setattr(memory._Failing, "_check", lambda self, w: None)
    assert "memory did not run out" in memory.out_of_memory(setting)["wrong"][0]


def test_failed_captures_are_followed_by_one_that_works(setting, monkeypatch):
    monkeypatch.setattr(memory, "_PLANTED", 2**10)
    monkeypatch.setattr(memory, "_WIDE", (30, 8))
    gpu = replace(setting, device=torch.device("cuda:0"))
    with PretendGpu({}, {}):
        found = memory.failed_capture(gpu)
        assert (found["wrong"], found["failed"], found["leaked"]) == ([], 4, 0)
        grown = iter([0, 4 * 2**10])
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=None: next(grown, 0))
        monkeypatch.setattr(memory, "_fails", lambda run: False)
        wrong = memory.failed_capture(gpu)["wrong"]
    assert len(wrong) == 5
    assert wrong[-1] == "4 failed captures keep 0 MiB"


def test_launches_are_counted_in_every_form(setting):
    found = memory.launches("fedavg", setting)
    assert [r["form"] for r in found["rows"]] == ["loop", "stacked"]
    assert found["rows"][0]["operations"] > found["rows"][1]["operations"] > 0
    assert "| fedavg | loop |" in "\n".join(memory.table({"launches, fedavg": found}))


def test_operations_of_a_step():
    """Of a linear model 20-5 with 8 examples: 2 x 8 x 20 x 5 forward, and as many for the gradient of the weights."""
    config = composed("model=linear", "rounds=1")
    run = prepared(config, pictures((20,), [16]), CPU, LOOP, "float32")
    assert form_times.step_operations(run, 8) == 2 * 2 * 8 * 20 * 5
    last_model(run)


def test_a_form_is_timed_by_its_fastest_round(setting):
    """The clock is read before and after every round: rounds of 5, 2 and 3 seconds."""
    run = prepared(composed("model=linear", "rounds=9"), pictures((20,), [16]), CPU, LOOP, "float32")
    readings = iter([0.0, 5.0, 5.0, 7.0, 7.0, 10.0])
    assert form_times.timed(run, setting, lambda: next(readings)) == 2.0
    run.engine.close()


@pytest.mark.parametrize(("first", "seconds"), [(5.5, 5.5), (4.5, 2.0)])
def test_a_form_whose_first_round_is_long_is_not_timed_again(setting, monkeypatch, first, seconds):
    """Otherwise a second one warms up, and of those after it, of 5, 2 and 3 seconds, the fastest counts."""
    monkeypatch.setattr(parts.Setting, "small", False)
    run = prepared(composed("model=linear", "rounds=9"), pictures((20,), [16]), CPU, LOOP, "float32")
    readings = iter([0.0, first, 6.0, 7.0, 10.0, 15.0, 15.0, 17.0, 17.0, 20.0])
    assert form_times.timed(run, setting, lambda: next(readings)) == seconds
    run.engine.close()


def test_forms_are_compared_and_one_that_fails_is_wrong(setting, monkeypatch):
    subject = form_times.Subject(("model=linear", "local.batch_size=4"), lambda n: pictures((6,), n), 3)
    monkeypatch.setattr(form_times, "matmul_rate", lambda *given: 2.0)
    monkeypatch.setattr(form_times, "step_operations", lambda run, batch: 12.0)
    monkeypatch.setattr(form_times, "timed", lambda run, setting: 6.0 if run.engine.mode == "loop" else 1 / 0)
    found = form_times.compare(subject, "float32", setting)
    (row,) = found["rows"]
    assert (row["form"], row["step"], row["share"]) == ("loop", 2.0, 3.0)  # three clients of one step
    assert found["wrong"] == ["stacked: ZeroDivisionError: division by zero"]
    assert "| linear | loop | 1 | 2000.000 | 300.0% |" in form_times.table({"linear": found})


def test_a_workload_that_is_slower_than_on_the_cpu_is_wrong(setting, monkeypatch):
    facts = {"seconds_fedavg": 0.2, "seconds_loop": 1.0, "ratio_fedavg": 5.0, "share_of_floor": 0.1, "client_steps": 7}
    monkeypatch.setattr(workloads, "measure", lambda *given: facts)
    monkeypatch.setattr(workloads, "matmul_rate", lambda *given: 1e12)
    monkeypatch.setattr(workloads, "_on_cpu", lambda name: 0.1)
    monkeypatch.setattr(parts.Setting, "small", False)
    found = workloads.workload("W1", setting) | {"seconds": 99.0}  # of the piece, which are not those of a round
    assert found["wrong"] == ["200.0 ms on the device, 100.0 ms on the CPU"]
    assert "| 1000.00 | 200.00 | 5.0 | 10.0% | 100.00 |" in "\n".join(workloads.table({"W1": found}))


def test_a_command_is_interrupted_when_the_time_is_used_up(tmp_path):
    mark = tmp_path / "mark"
    text = (
        f"import pathlib, sys, time\ntry:\n    pathlib.Path({str(mark)!r}).write_text('begun')\n    time.sleep(600)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(mark)!r}).write_text('interrupted')\n"
    )
    assert rows.run_within([sys.executable, "-c", text], 5.0) is None
    assert mark.read_text() == "interrupted"
    assert rows.run_within([sys.executable, "-c", "raise SystemExit(3)"], 60.0) == 3
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)"
    assert rows.run_within([sys.executable, "-c", stubborn], 1.0, grace=1.0) is None


@pytest.mark.slow
def test_rows_of_a_paper_are_carried_out(setting):
    """Those of the small size, in a process of their own: five methods, one seed, two rounds."""
    (piece,) = rows.pieces(setting)
    found = piece.run(setting)
    assert (found["wrong"], found["missing_data"], found["unfinished"]) == ([], [], False)
    assert [(r["runs"], r["done"]) for r in found["rows"]] == [(1, 1)] * 5
    assert len(list((setting.out / "results").rglob("DONE"))) == 5
    assert "| adafedadam/table5_synthetic | fedavg | smoke | 1 of 1 |" in "\n".join(rows.table({"": found}))


def test_rows_without_data_are_reported_as_missing(setting, monkeypatch):
    """And those that the end of the time has interrupted as unfinished, which is not wrong."""
    from fedbench.papers.ledger import Entry, write_ledger

    experiment = "adafedadam/table5_synthetic"

    statuses = [None, 1]

    def interrupted(command, seconds):
        entries = [Entry(experiment, "fedavg", {}, 0, "failed", "interrupted")]
        entries += [Entry(experiment, "fedadam", {}, 0, "refused", "no files")]
        (setting.out / "results").mkdir(exist_ok=True)
        write_ledger(setting.out / "results", entries)
        return statuses.pop(0)

    monkeypatch.setattr(rows, "run_within", interrupted)
    for wrong in ([], [f"{experiment}, fedavg, seed 0: interrupted"]):
        found = rows.reproduce(rows.SMALL[0], setting)
        assert (found["wrong"], found["unfinished"]) == (wrong, True)
        assert found["missing_data"] == [f"{experiment}: no files"]
    assert rows.table({"": found})[-1] == f"- No data: {experiment}: no files"


@pytest.mark.slow
def test_the_suite_from_end_to_end(tmp_path):
    """Two parts with processes of their own; FEDBENCH_DATA is not needed."""
    made = script("gpu_suite")
    asked = ["--device", "cpu", "--out", str(tmp_path), "--only", "b,d"]
    before = dict(os.environ)
    assert made.main(asked) == 0
    assert made.main([*asked, "--list"]) == 0
    text = (tmp_path / "summary.md").read_text()
    assert "Out of memory: 8 clients at once" in text
    assert "| simple CNN, float32 | loop" in text
    assert dict(os.environ) == before


def test_forms_on_a_pretended_gpu(setting, monkeypatch):
    """The branches for a GPU; without bfloat16, which needs a CUDA build of torch."""
    gpu = replace(setting, device=torch.device("cuda:0"))
    correctness._reference.cache_clear()
    monkeypatch.setattr(form_times, "matmul_rate", lambda *given: 1.0)
    monkeypatch.setattr(form_times, "_SECONDS", 0.0)
    linear = correctness.Subject(("model=linear",), partial(pictures, (6,), (5, 3)), rounds=2)
    timed = form_times.Subject(("model=linear", "local.batch_size=4"), lambda n: pictures((6,), n), 2)
    with PretendGpu({}, {}):
        same = correctness.compare("linear", linear, "scaffold", "float64", gpu)
        times = form_times.compare(timed, "float32", gpu)
    assert [outcome["wrong"] for outcome in (same, times)] == [[], []]
    plain = ["loop", "loop, graphs", "stacked", "stacked, graphs"]
    assert [r["form"] for r in same["rows"]] == [*plain, "loop, 4 streams", "loop, graphs, 4 streams"]
    streams = [f"loop{graphs}, {n} streams" for graphs in ("", ", graphs") for n in (2, 4)]
    assert [r["form"] for r in times["rows"]] == plain + streams
    assert times["rows"][2]["cohort_size"] == 2  # both clients, by the measured peak
    assert times["gflop"] == 2 * 2 * 4 * 6 * 5 / 1e9
