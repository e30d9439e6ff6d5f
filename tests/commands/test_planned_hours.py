"""What ``fedbench reproduce --hours`` takes: the claims that cost least first, runs that claims share counted once."""

import json
import signal
import threading
import time
from dataclasses import replace

import pytest
from fake_runs import fake_row
from test_reproduce import SETUPS, call

from fedbench.commands import planned_runs
from fedbench.commands.deadline import Deadline, checked_hours
from fedbench.commands.plan_text import ShownPlan
from fedbench.commands.planned_claims import Part, PlannedClaim, decided_claims, planned_claims
from fedbench.commands.planned_hours import Step, choose, selection_text
from fedbench.commands.planned_runs import carry_out
from fedbench.commands.readable_runs import ReadableRuns
from fedbench.core.errors import RequestError
from fedbench.papers.durations import Durations
from fedbench.papers.plan import locate, plan
from fedbench.papers.registry import papers
from fedbench.papers.stored_durations import StoredDurations
from fedbench.runs.interrupts import as_exceptions
from fedbench.runs.sweep_notes import Note, leave

NOTHING = StoredDurations("nowhere", {}, {})


def claim(name, *runs, obstacle="", fails=(), holds=()):
    parts = [Part(outcome, frozenset(runs)) for outcome, of in (("fails", fails), ("holds", holds)) for runs in of]
    return PlannedClaim(name, frozenset(runs), obstacle, parts=tuple(parts))


# seconds of six runs. By claims per second: b lacks run 2 alone, 1 in 10 s. a and c share runs 0 and 1, and both are
# decided with the 50 s of run 0, 1 and 3 that c needs: 2 in 50 s, where a alone is 1 in 30 s. d is 1 in 100 s.
CLAIMS = [claim("a", 0, 1), claim("b", 2), claim("c", 0, 1, 3), claim("d", 4)]
SECONDS = {0: 10.0, 1: 20.0, 2: 10.0, 3: 20.0, 4: 100.0}


def test_claims_per_hour_decide():
    """b (1 / 10), then a and c together (2 / 50 > 1 / 30), then d (1 / 100)."""
    found = choose(CLAIMS, SECONDS, 160.0)
    assert found.steps == (
        Step(("b",), (2,), 10.0),
        Step(("a", "c"), (0, 1, 3), 50.0),
        Step(("d",), (4,), 100.0),
    )
    assert found.runs == [2, 0, 1, 3, 4]
    assert found.left == ()


def test_what_does_not_fit_is_left_with_its_time():
    """After b, 35 s are left: c with its 50 s does not fit, a does; run 3 then is too long for the 5 s that remain."""
    found = choose(CLAIMS, SECONDS, 45.0)
    assert [(s.claims, s.runs) for s in found.steps] == [(("b",), (2,)), (("a",), (0, 1))]
    assert dict(found.left) == {
        "c": "takes 20 s of one job",
        "d": "takes 2 min of one job",
    }


def test_a_run_that_is_longer_than_the_hours_is_not_taken_by_several_jobs():
    """Two jobs have 60 s each. Run 4 takes 100 s of one job, so d is not decided; the others take 60 s together."""
    found = choose(CLAIMS, SECONDS, 60.0, 2)
    assert found.runs == [2, 0, 1, 3]
    assert [name for name, _ in found.left] == ["d"]


def test_runs_that_are_done_cost_nothing():
    """With run 0 done, a takes the 20 s of run 1; with all of its runs done it is not taken again."""
    rest = {n: s for n, s in SECONDS.items() if n != 0}
    assert Step(("a",), (1,), 20.0) in choose(CLAIMS, rest, 30.0).steps
    assert choose([claim("a", 0)], {}, 3600.0).steps == ()
    assert choose([claim("a", 0)], {}, 3600.0).left == ()


def test_a_second_call_goes_on_where_the_first_stopped():
    """Two calls of 60 s take what one of 120 s takes, here to the end."""
    first = choose(CLAIMS, SECONDS, 60.0).runs
    second = choose(CLAIMS, {n: s for n, s in SECONDS.items() if n not in first}, 120.0).runs
    assert sorted(first + second) == sorted(choose(CLAIMS, SECONDS, 180.0).runs) == [0, 1, 2, 3, 4]


def test_unknown_times_come_last_and_only_if_time_is_left():
    """u lacks one run of unknown time, v two; both follow b, which is known. Without time left they are not taken."""
    claims = [claim("v", 5, 6), claim("u", 7), claim("b", 2)]
    todo = {2: 10.0, 5: None, 6: None, 7: None}
    found = choose(claims, todo, 11.0)
    assert [s.claims for s in found.steps] == [("b",), ("u",), ("v",)]
    assert [s.seconds for s in found.steps] == [10.0, None, None]
    assert [s.claims for s in choose(claims, todo, 10.0).steps] == [("b",)]
    assert dict(choose(claims, todo, 10.0).left)["v"] == "takes 2 runs of unknown time"


def test_claims_with_an_obstacle_are_left_but_their_runs_fill_the_rest():
    """Run 0 decides nothing, since its claim needs a GPU; it fits into what remains, run 4 does not."""
    found = choose([claim("a", 0, 4, obstacle="needs a GPU"), claim("b", 2)], {0: 10.0, 2: 10.0, 4: 100.0}, 30.0)
    assert found.steps == (Step(("b",), (2,), 10.0), Step((), (0,), 10.0))
    assert found.left == (("a", "needs a GPU"),)


def test_claims_that_can_be_decided_in_one_direction_only_follow_the_others():
    """x and y can be refuted by runs 0 and 1, x also by run 4. b is decided first, though x and y are 2 in 30 s.

    Within 55 s y, which needs 40 s, does not fit next to b; within 160 s it does, and its runs are then those of x.
    """
    hard = [claim("x", 0, 1, 3, 4, obstacle="no data", fails=[(0, 1), (4,)]), claim("y", 0, 1, 2, fails=[(0, 1)])]
    found = choose([*hard, claim("b", 3)], SECONDS, 55.0)
    assert found.steps == (Step(("b",), (3,), 20.0), Step(("x", "y"), (0, 1), 30.0, ("fails", "fails")))
    assert found.left == (("x", "no data"), ("y", "takes 10 s of one job"))
    assert choose(hard, SECONDS, 160.0).steps == (
        Step(("y",), (0, 1, 2), 40.0),
        Step(("x",), (4,), 100.0, ("fails",)),
        Step((), (3,), 20.0),
    )


def test_the_verdicts_are_those_of_the_parts_that_a_step_completes():
    """Run 0 can refute x; with run 1 it can show that x holds. y is taken at once, which allows both verdicts."""
    x = claim("x", 0, 1, obstacle="needs more", fails=[(0,)], holds=[(0, 1)])
    steps = choose([x], {0: 10.0, 1: 20.0}, 60.0).steps
    assert steps == (Step(("x",), (0,), 10.0, ("fails",)), Step(("x",), (1,), 20.0, ("holds",)))
    y = claim("y", 2, obstacle="needs more", fails=[(2,)], holds=[(2,)])
    (step,) = choose([y], {2: 10.0}, 60.0).steps
    assert step == Step(("y",), (2,), 10.0, ("",))


def test_parts_of_unknown_time_follow_those_of_known_time():
    hard = [claim("x", 0, 1, obstacle="no data", fails=[(0,)]), claim("y", 1, obstacle="needs more", holds=[(1,)])]
    steps = choose(hard, {0: None, 1: 20.0}, 30.0).steps
    assert steps == (Step(("y",), (1,), 20.0, ("holds",)), Step(("x",), (0,), None, ("fails",)))


def test_claims_that_finished_runs_decide_need_no_runs():
    """Without a, run 0 decides nothing; it is taken since it fits."""
    found = choose([claim("a", 0, fails=[(0,)]), claim("b", 2)], {0: 10.0, 2: 10.0}, 60.0, decided={"a"})
    assert found.steps == (Step(("b",), (2,), 10.0), Step((), (0,), 10.0))
    assert found.left == (("a", "decided by finished runs"),)


def test_parts_as_text():
    """x is counted once, though two parts can refute it."""
    runs = plan(["adafedadam/table4"], "full", seeds=1)
    x = claim("x", 0, 1, 2, obstacle="no data", fails=[(0,), (1,)])
    y, z = claim("y", 1, 2, obstacle="no data", fails=[(1,)]), claim("z", 1, obstacle="needs more", holds=[(1,)])
    text = selection_text(choose([x], {0: 30.0, 1: 60.0}, 3600.0), runs, 1, 1)
    assert text.splitlines() == [
        "in 1 h: 2 runs, which may decide 1 claim",
        f"  take     1 run, 30 s: x can only be refuted ({SETUPS[0]})",
        f"  take     1 run, 60 s: x can only be refuted ({SETUPS[1]})",
        "  leave x: only in part: no data",
    ]
    text = selection_text(choose([claim("a", 0), x, y, z, claim("w", 2)], {0: 30.0, 1: 60.0}, 95.0), runs, 1, 1)
    assert text.splitlines() == [
        "in 1 h: 2 runs, which decide 1 claim and may decide 3 more",
        f"  take     1 run, 30 s: a ({SETUPS[0]})",
        f"  take     1 run, 60 s: x, y can only be refuted; z can only hold ({SETUPS[1]})",
        "  leave x, y: only in part: no data",
        "  leave z: only in part: needs more",
    ]


def test_the_choice_as_text():
    runs = plan(["adafedadam/table4"], "full", seeds=1)
    gpu = [claim(name, 2, obstacle="needs a GPU") for name in "bc"]
    text = selection_text(choose([claim("a", 0, 1), *gpu], {0: 60.0, 1: 60.0}, 3600.0), runs, 0.5, 2)
    assert text.splitlines() == [
        "in 0.5 h with 2 runs at a time: 2 runs, which decide 1 claim",
        f"  take    2 runs, 60 s: a ({SETUPS[0]}, {SETUPS[1]})",
        "  leave b, c: needs a GPU",
    ]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "one", "1h", ""])
def test_hours_are_a_number_above_0(text):
    with pytest.raises(RequestError, match=f"--hours must be a number above 0, such as 1 or 0.5, got {text}"):
        checked_hours(text)
    status, _, err = call("reproduce", "adafedadam/table4", f"--hours={text}")
    assert status == 2
    assert "--hours must be a number above 0" in err


def test_hours_as_numbers():
    assert (checked_hours(None), checked_hours("1"), checked_hours("0.25")) == (None, 1.0, 0.25)
    status, _, err = call("reproduce", "adafedadam/table4", "--hours=1", "--launcher=joblib")
    assert status == 2
    assert "--hours cannot be combined with --launcher joblib" in err


def test_a_plan_says_what_the_hours_would_take(tmp_path):
    """Table 4 with its 10 seeds: 30 runs of less than a minute each, whose claim fits; nothing is written."""
    status, out, _ = call("reproduce", "adafedadam/table4", "--plan", "--hours=2", f"results_dir={tmp_path / 'r'}")
    assert status == 0
    assert "in 2 h" in out
    assert "30 runs, which decide 1 claim\n" in out
    assert "adafedadam/c14" in out.partition("  take ")[2]
    assert not (tmp_path / "r").exists()


def test_hours_that_no_run_fits_into_are_refused_before_anything_is_written(tmp_path):
    """Unless runs are done: then their report is written."""
    asked = ["reproduce", "adafedadam/table4", "--hours=1e-6", "--jobs=1", f"results_dir={tmp_path / 'r'}"]
    status, out, err = call(*asked)
    assert status == 2
    assert "in 1e-06 h: 0 runs, which decide 0 claims" in out
    assert err.endswith("--hours 1e-6 takes no run, for the reasons above; type more hours\n")
    assert not (tmp_path / "r").exists()


# ---- claims of a plan


def test_the_profile_cpu_decides_every_claim_that_does_not_say_why_not():
    """With all data there, what stands in the way of a claim is what the paper's file says, never the seeds."""
    claims = {c.name: c for c in planned_claims([], plan([], "cpu"), {}, "cpu")}
    for paper in papers().values():
        for c in paper.claims:
            name = f"{paper.id}/{c.id}"
            if name in claims:
                assert claims[name].obstacle == (f"needs {c.needs.removesuffix('.')}" if c.needs else ""), name
            else:
                assert not c.needs, name


def test_obstacles():
    """c14 has 6 comparisons, so 7 seeds: 6 / 2^7 < 0.05 <= 6 / 2^6. c19 is about printed numbers and needs no runs."""
    names = ["adafedadam/table4"]

    def of(seeds, missing=None):
        found = planned_claims(names, plan(names, "full", seeds=seeds), missing or {}, "full")
        return {c.name: c for c in found}

    assert of(7)["adafedadam/c14"].obstacle == ""
    assert len(of(7)["adafedadam/c14"].runs) == 21
    assert of(6)["adafedadam/c14"].obstacle == "6 of 7 seeds"
    assert of(7, {SETUPS[1]: "a.zip"})["adafedadam/c14"].obstacle == "missing data: a.zip"
    assert of(7)["adafedadam/c13"].obstacle == "compares rows that are not in this plan"
    assert "adafedadam/c20" not in of(7)


TABLE_5 = [f"adafedadam/table5_{name}" for name in ("femnist", "cifar10_dir005", "sent140", "synthetic")]
HETERO = "adafedadam/table2_cifar10_hetero"


def parts(paper, profile, missing=None, seeds=None, outcome="fails"):
    """Claim -> experiments of each part that can lead to an outcome."""
    runs = plan([paper], profile, seeds=seeds)
    found = planned_claims([paper], runs, missing or {}, profile)
    return {
        c.name.split("/")[1]: [{runs[n].experiment for n in p.runs} for p in c.parts if p.outcome == outcome]
        for c in found
    }


def test_the_runs_of_one_setup_can_refute_a_claim():
    """Table 5 has four setups, each of which can refute c02; c06 compares setups with one another.

    Reduced runs cannot decide c23: its Synthetic setup is not reduced, and at full settings no setup is.
    """
    assert parts("adafedadam", "cpu")["c02"] == [{name} for name in TABLE_5]
    assert parts("adafedadam", "cpu")["c06"] == []
    assert parts("adafedadam", "cpu")["c23"] == [{TABLE_5[3]}]
    assert parts("adafedadam", "full", seeds=10)["c23"] == [{name} for name in TABLE_5]
    without = parts("adafedadam", "cpu", {TABLE_5[2]: "a.zip"})
    assert without["c02"] == [{TABLE_5[0]}, {TABLE_5[1]}, {TABLE_5[3]}]


def test_a_setup_needs_the_seeds_for_all_setups_that_can_be_run():
    """c02 has 4 comparisons in each of 4 setups: 16 / 2^9 <= 0.05 < 16 / 2^8, and 4 / 2^7 <= 0.05 < 4 / 2^6."""
    assert (parts("adafedadam", "full", seeds=8)["c02"], len(parts("adafedadam", "full", seeds=9)["c02"])) == ([], 4)
    others = dict.fromkeys(TABLE_5[1:], "a.zip")
    assert parts("adafedadam", "full", others, seeds=6)["c02"] == []
    assert parts("adafedadam", "full", others, seeds=7)["c02"] == [{TABLE_5[0]}]


def test_all_runs_can_show_that_a_claim_holds():
    """Reduced runs can only support c26, which needs all its data. With 5 seeds, c02 can hold but not fail for sure."""
    assert parts("adafedadam", "cpu", outcome="holds")["c26"] == [{HETERO, TABLE_5[1]}]
    assert parts("adafedadam", "cpu", outcome="fails")["c26"] == []
    assert parts("adafedadam", "cpu", {HETERO: "b.zip"}, outcome="holds")["c26"] == []
    assert parts("adafedadam", "full", seeds=5, outcome="holds")["c02"] == [{*TABLE_5}]
    assert parts("adafedadam", "full", seeds=4, outcome="holds")["c02"] == []
    assert parts("adafedadam", "full", seeds=10, outcome="holds")["c02"] == []  # they decide it in both directions


def test_settings_that_are_never_full_decide_no_claim_that_needs_them():
    """Clothing1M departs from the print at full settings too, and c36 cannot be decided by reduced runs."""
    runs = plan(["adafed"], "full", seeds=10)
    (c36,) = [c for c in planned_claims(["adafed"], runs, {}, "full") if c.name == "adafed/c36"]
    assert c36.obstacle.startswith("needs ")
    assert c36.parts == ()


@pytest.mark.parametrize("better", [0.1, -0.1])
def test_claims_that_finished_runs_decide(tmp_path, better):
    """c14: accuracy rises, STD falls and the worst 30 % rise with momentum, by the same step with all seeds.

    Or the other way round, which refutes it. For the profile full, runs of fewer rounds do not count.
    """
    paper, names = papers()["adafedadam"], ["adafedadam/table4"]
    assert decided_claims(names, ReadableRuns(tmp_path), "cpu") == frozenset()
    for folder, cut in (("full", None), ("reduced", {"rounds": [1000, 10]})):
        for row in paper.tables["table4"].rows:
            step = 0.0 if row.setup == "synthetic" else better
            for path in fake_row(tmp_path / folder, paper, row, seeds=range(7), cut=cut):
                set_fields(path, accuracy_mean_weighted=0.5 + step, accuracy_std_weighted=0.2 - step,
                           accuracy_worst30_weighted=0.3 + step)  # fmt: skip
        found = {p: decided_claims(names, ReadableRuns(tmp_path / folder), p) for p in ("cpu", "full")}
        assert found["cpu"] == {"adafedadam/c14"}
        assert found["full"] == ({"adafedadam/c14"} if folder == "full" else frozenset())


def set_fields(path, **fields):
    lines = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    (path / "rounds.jsonl").write_text("".join(json.dumps({**r, **fields}) + "\n" for r in lines))


def test_the_hours_leave_out_what_finished_runs_decide(tmp_path):
    """c14 of Table 4 is decided by 7 seeds; the other 3 of the profile decide nothing."""
    paper = papers()["adafedadam"]
    for row in paper.tables["table4"].rows:
        step = 0.0 if row.setup == "synthetic" else 0.1
        for path in fake_row(tmp_path, paper, row, seeds=range(7)):
            set_fields(path, accuracy_mean_weighted=0.5 + step, accuracy_std_weighted=0.2 - step,
                       accuracy_worst30_weighted=0.3 + step)  # fmt: skip
    status, out, _ = call("reproduce", "adafedadam/table4", "--plan", "--hours=2", f"results_dir={tmp_path}")
    assert status == 0
    assert "which decide 0 claims\n" in out
    assert "leave adafedadam/c14: decided by finished runs\n" in out


def test_runs_without_data_are_not_to_do(tmp_path):
    """Of three runs one has no data and one is done: one is left, of unknown time without stored times."""
    runs = locate(plan(["adafedadam/table4"], "full", seeds=1), [f"results_dir={tmp_path}"])
    runs[0].path.mkdir(parents=True)
    (runs[0].path / "DONE").touch()
    shown = ShownPlan([], runs, Durations(tmp_path, NOTHING), [], {SETUPS[1]: "a.zip"}, {}, 1)
    assert shown.to_do() == {2: None}


# ---- the end of the hours


def test_a_deadline_ends_its_block_as_ctrl_c_does():
    with Deadline(0.05) as deadline:
        threading.Event().wait(60)
    assert deadline.over
    with Deadline(3600) as quick:
        pass
    assert not quick.over


def test_a_deadline_ends_its_block_where_ctrl_c_is_ignored():
    """As in the background of a shell script, whose processes ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with as_exceptions(), Deadline(0.05) as deadline:
            threading.Event().wait(20)
            pytest.fail("the time was up, and nothing happened")
        assert deadline.over
        with pytest.raises(RequestError, match="all signals are ignored"), Deadline(0.05):
            pass
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_comes_as_the_block_ends_stays_in_it():
    deadline = Deadline(3600)
    with deadline:
        deadline._timer.cancel()
        deadline._timer = threading.Timer(0, lambda: (time.sleep(0.05), deadline._ring()))
        deadline._timer.start()
        time.sleep(0.02)
    assert deadline.over


def test_an_interruption_by_others_stays_one():
    with pytest.raises(KeyboardInterrupt), Deadline(3600) as deadline:
        signal.raise_signal(signal.SIGINT)
    assert not deadline.over
    with pytest.raises(ValueError, match="wrong"), Deadline(3600):
        raise ValueError("wrong")


def test_runs_that_the_hours_did_not_reach_stay_planned(tmp_path, monkeypatch):
    """The first of three runs is done when the time is up; the others are not started, and the plan is kept."""
    runs = locate(plan(["adafedadam/table4"], "smoke"), [f"results_dir={tmp_path}"])

    def work(job, batch, folder, jobs, gpus):
        runs[0].path.mkdir(parents=True)
        (runs[0].path / "DONE").touch()
        time.sleep(60)

    monkeypatch.setattr(planned_runs, "work_through", work)
    monkeypatch.setattr(planned_runs, "_before", lambda run, faults: ("done" if run.done else "planned", None))
    deadline = Deadline(0.2)
    entries = carry_out(runs, {}, [f"results_dir={tmp_path}"], tmp_path, [], 1, deadline)
    assert deadline.over
    assert [e.status for e in entries] == ["done", "planned", "planned"]


def test_a_run_that_failed_before_the_hours_were_up_has_failed(tmp_path, monkeypatch):
    runs = locate(plan(["adafedadam/table4"], "smoke"), [f"results_dir={tmp_path}"])

    def work(job, batch, folder, jobs, gpus):
        leave(folder, Note(1, list(batch[1]), "failed", None, "ValueError: odd"))
        time.sleep(60)

    monkeypatch.setattr(planned_runs, "work_through", work)
    entries = carry_out(runs, {}, [f"results_dir={tmp_path}"], tmp_path, [], 1, Deadline(0.2))
    assert [(e.status, e.error) for e in entries] == [
        ("planned", None),
        ("failed", "ValueError: odd"),
        ("planned", None),
    ]


def test_the_time_to_decide_counts_the_seeds_that_are_missing(tmp_path):
    """Three rows of 60 s a run; a claim that needs 4 seeds lacks 3 of the row with a run, 4 of the others: 11 min."""
    names = ["adafedadam/table4"]
    runs = locate(plan(names, "full", seeds=4), [f"results_dir={tmp_path}"])
    first = {r.row.setup: r for r in reversed(runs)}
    (c14,) = [c for c in planned_claims(names, runs, {}, "full") if c.name == "adafedadam/c14"]
    done = first["synthetic"]
    done.path.mkdir(parents=True)
    (done.path / "DONE").touch()

    class Known(Durations):
        def of_one(self, run):
            return replace(super().of_one(run), seconds=60.0, unknown=0)

    shown = ShownPlan(names, runs, Known(tmp_path, NOTHING), [replace(c14, seeds=4)], {}, {}, 1)
    line = shown.text("full").splitlines()[2]
    assert line.split()[:7] == ["adafedadam/table4", "12", "1", "11", "min", "11", "min"]
