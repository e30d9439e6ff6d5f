"""Readings: each flips the verdict on accuracies made up here, and what the verdicts come to together."""

import json
from dataclasses import replace

import pytest
import yaml
from fake_runs import nested
from made_up import made_up

from fedbench.analysis.claims.comparison import Comparison, above
from fedbench.analysis.claims.judge import judge
from fedbench.analysis.claims.multiverse import Headline, headline, is_measured, multiverse
from fedbench.analysis.claims.verdict import decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, wanted_under
from fedbench.core.errors import RequestError
from fedbench.papers.checks import Compare, Curves, Selection
from fedbench.papers.parsing import parse
from fedbench.papers.readings import ADOPTED, Reading, Readings, Variant
from fedbench.papers.registry import papers
from fedbench.papers.schema import Claim, Figure, Method, PrintedMetric, Row, Setup, Table
from fedbench.runs.results import Results

EVERY = Readings(
    weighting={"unweighted": ""}, round={"best": ""}, splits={"drawn": ""},
    variants={
        "kept": Variant("kept", "", "", algos={"new": "kept_new", "old": "kept_old"}),
        "slow": Variant("slow", "", "", setups=("one",), set={"local.lr": 0.5}),
    },
)  # fmt: skip
ROWS = tuple(Row(m, s) for s in ("one", "two") for m in ("new", "old"))
AVG = PrintedMetric("avg", "average %", "higher", "accuracy_mean_weighted")


def paper(readings=EVERY):
    return made_up(
        metrics={"avg": AVG}, methods={m: Method(m, m, m) for m in ("new", "old")},
        setups={s: Setup(s, s.upper(), f"made_up/{s}", 10, 3, 1) for s in ("one", "two")},
        tables={"t": Table("t", "", ("one", "two"), ("avg",), ROWS)},
        figures={"f": Figure("f", "", "curves", ("one", "two"), runs=(Row("new"), Row("old")))}, readings=readings,
    )  # fmt: skip


def text(headline):
    """A headline with its axes, those that have not been measured, and which of these are against it."""
    missing = ", ".join(axis + " (so far against)" * (axis in headline.against) for axis in headline.missing)
    axes = f": {', '.join(headline.axes)}" if headline.axes else ""
    return headline.word + axes + (f"; not measured: {missing}" if missing else "")


def claim(*setups):
    return Claim("c", "", "", Compare("t", setups or ("one",), ("avg",), ("new",), ("old",)), "supports")


def write(root, algo, ahead, seeds=range(6), split=0, setup="one", unweighted=None, best=None, **keys):
    """Runs whose weighted mean accuracy is 0.5 and ``ahead`` at the last round, a little apart from seed to seed.

    Args:
        unweighted: By how much the accuracy without weights is above 0.5; like ``ahead`` if it is not given.
        best: By how much the accuracies are above 0.5 in an earlier round, if it is not the same.
        keys: Keys of ``local`` that differ from the experiment.
    """
    for seed in seeds:
        noise = seed / 10000
        last = {"accuracy_mean_weighted": 0.5 + ahead + noise}
        last |= {"accuracy_mean": 0.5 + (ahead if unweighted is None else unweighted) + noise}
        earlier = {k: (v if best is None else 0.5 + best + noise) for k, v in last.items()}
        changes = {f"local.{k}": v for k, v in keys.items()}
        digest = f"{split}_{'_'.join(map(str, changes.values())) or 0}"
        path = root / "made_up" / setup / algo / digest / f"seed_{seed}"
        path.mkdir(parents=True)
        departures = {k: [0.1, v] for k, v in changes.items()} | ({"data.seed": [0, split]} if split else {})
        meta = {
            "status": "done", "seed": seed, "hash": digest, "algo": algo, "experiment": f"made_up/{setup}",
            "data": "toy", "model": "linear", "started": "2024-01-01", "sources": [], "overrides": [],
            "departures": departures,
        }  # fmt: skip
        (path / "meta.json").write_text(json.dumps(meta))
        config = {"rounds": 10, "seed": seed, "data.seed": split, "local.lr": 0.1, **changes}
        (path / "config.yaml").write_text(yaml.safe_dump(nested(config)))
        rounds = [{"round": 0, **earlier}, {"round": 10, **last}]
        (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rounds))
        (path / "DONE").touch()


def verdict(root, reading, **more):
    return judge(paper(**more), claim(), Evidence(Results(root)).under(reading))


def of(root, *setups, **more):
    return multiverse(paper(**more), claim(*setups), Evidence(Results(root)))


# ---- each reading flips the verdict


def test_weighting(tmp_path):
    """Ahead with weights and behind without; the paper's columns have weights."""
    write(tmp_path, "new", 0.1, unweighted=-0.1)
    write(tmp_path, "old", 0.0)
    assert verdict(tmp_path, ADOPTED).verdict == "holds"
    assert verdict(tmp_path, Reading(weighting="weighted")).verdict == "holds"
    v = verdict(tmp_path, Reading(weighting="unweighted"))
    assert (v.verdict, v.worst.mean) == ("fails", pytest.approx(-10))
    m = of(tmp_path)
    assert (text(m.headline), m.headline.axes) == ("depends on: weighting", ("weighting",))


def test_round(tmp_path):
    """Ahead at the end and behind in the best round, which comes earlier."""
    write(tmp_path, "new", 0.1, best=0.2)
    write(tmp_path, "old", 0.0, best=0.3)
    assert verdict(tmp_path, ADOPTED).verdict == "holds"
    assert verdict(tmp_path, Reading(round="last")).verdict == "holds"
    v = verdict(tmp_path, Reading(round="best"))
    assert (v.verdict, v.worst.mean) == ("fails", pytest.approx(-10))
    assert text(of(tmp_path).headline) == "depends on: round"


def test_splits(tmp_path):
    """Ahead by 1 on the split that the experiment draws, with all seeds, and behind by 2 on five others.

    The sums of ±1 ± 2 ± 2 ± 2 ± 2 ± 2 that are at most 1 - 10 are -9 and -11: 2 of 64.
    """
    for split, ahead in enumerate((0.01, *[-0.02] * 5)):
        write(tmp_path, "new", ahead, split=split)
        write(tmp_path, "old", 0.0, split=split)
    fixed, drawn = verdict(tmp_path, ADOPTED), verdict(tmp_path, Reading(splits="drawn"))
    assert (fixed.verdict, fixed.worst.n, fixed.worst.blocks) == ("holds", 6, "seed")
    assert (drawn.verdict, drawn.worst.n, drawn.worst.blocks) == ("fails", 6, "split")
    assert drawn.worst.less == 2 / 64
    assert drawn.worst.differences == pytest.approx({0: 1, **dict.fromkeys(range(1, 6), -2)})
    assert text(of(tmp_path).headline) == "depends on: splits"


def test_variant(tmp_path):
    """Ahead as adopted; behind where both methods are replaced, and where both have another rate."""
    write(tmp_path, "new", 0.1)
    write(tmp_path, "old", 0.0)
    write(tmp_path, "kept_new", 0.0)
    write(tmp_path, "kept_old", 0.1)
    write(tmp_path, "new", 0.0, lr=0.5)
    write(tmp_path, "old", 0.1, lr=0.5)
    assert verdict(tmp_path, ADOPTED).verdict == "holds"
    for name in ("kept", "slow"):
        v = verdict(tmp_path, Reading(variant=name))
        assert (v.verdict, v.reduced) == ("fails", False)  # it is a reading, not a reduction
    assert text(of(tmp_path).headline) == "depends on: variant"


@pytest.mark.parametrize(("common", "lead"), [({}, -5), ({"local.lr": 0.3}, -7)])
def test_a_variant_sets_keys_of_one_method(tmp_path, common, lead):
    """The new method has another rate of its own; the old one keeps that of the row, or has that of all."""
    variant = Variant("own", "", "", set=common, methods={"new": {"local.lr": 0.5}})
    readings = Readings(variants={"own": variant})
    write(tmp_path, "new", 0.1)
    write(tmp_path, "new", 0.2, lr=0.3)
    write(tmp_path, "new", -0.05, lr=0.5)
    write(tmp_path, "old", 0.0)
    write(tmp_path, "old", 0.02, lr=0.3)
    write(tmp_path, "old", 0.4, lr=0.5)
    v = verdict(tmp_path, Reading(variant="own"), readings=readings)
    assert (v.verdict, v.worst.mean) == ("fails", pytest.approx(lead))
    rows = {r.algo: wanted_under(paper(readings), r, Reading(variant="own"))[1] for r in ROWS[:2]}
    assert rows["new"] == {"local.lr": 0.5}
    assert rows["old"] == common
    assert variant.changes("old") == bool(common)


def test_a_variant_changes_only_its_setups(tmp_path):
    write(tmp_path, "new", 0.1, setup="two")
    write(tmp_path, "old", 0.0, setup="two")
    evidence = Evidence(Results(tmp_path))
    words = {
        name: judge(paper(), claim("two"), evidence.under(Reading(variant=name))).verdict for name in ("kept", "slow")
    }
    assert words == {"kept": "not run", "slow": "holds"}


# ---- splits and seeds


def test_seeds_of_one_split_are_one_block(tmp_path):
    """Ten seeds on a split are no ten splits: their mean difference is one number."""
    for split in range(2):
        write(tmp_path, "new", 0.1, seeds=range(10), split=split)
        write(tmp_path, "old", 0.0, seeds=range(10), split=split)
    v = verdict(tmp_path, Reading(splits="drawn"))
    assert (v.verdict, v.worst.n, v.worst.greater) == ("undecided", 2, 1 / 4)
    assert (v.worst.n, v.worst.blocks, v.lacking) == (2, "split", ("hold", 5))
    assert not is_measured(v)


def test_a_split_has_the_seeds_that_both_methods_have(tmp_path):
    write(tmp_path, "new", 0.1, seeds=(0, 1, 2))
    write(tmp_path, "new", 0.3, seeds=(3,), split=1)
    write(tmp_path, "old", 0.0, seeds=(2, 5))
    write(tmp_path, "old", 0.0, seeds=(3,), split=1)
    (c,) = verdict(tmp_path, Reading(splits="drawn")).comparisons
    assert c.differences == pytest.approx({0: 10, 1: 30})
    (c,) = verdict(tmp_path, ADOPTED).comparisons
    assert c.differences == pytest.approx({2: 10})


def test_other_splits_are_the_same_setting_and_do_not_count(tmp_path):
    write(tmp_path, "new", 0.1)
    write(tmp_path, "new", 0.1, split=3, seeds=(0, 1))
    found = Evidence(Results(tmp_path)).find(paper(), ROWS[0])
    assert list(found.runs) == [Unit(0, s) for s in range(6)]
    assert (found.reduced, found.cuts, found.splits, len(found.every)) == ((), (), [3], 8)
    drawn = Evidence(Results(tmp_path)).under(Reading(splits="drawn")).find(paper(), ROWS[0])
    assert list(drawn.runs) == [*(Unit(0, s) for s in range(6)), Unit(3, 0), Unit(3, 1)]
    assert (drawn.reduced, drawn.cuts, drawn.splits) == ((), (), [])


def test_only_other_splits_are_not_the_adopted_ones(tmp_path):
    write(tmp_path, "new", 0.1, split=1)
    write(tmp_path, "old", 0.0, split=1)
    assert verdict(tmp_path, ADOPTED).verdict == "not run"
    assert verdict(tmp_path, Reading(splits="drawn")).verdict == "undecided"


# ---- figures


@pytest.mark.parametrize("measure", ["final", "area"])
def test_curves_are_read_too(tmp_path, measure):
    write(tmp_path, "new", 0.1, unweighted=-0.1, best=0.3)
    write(tmp_path, "old", 0.0, best=0.4)
    check = Curves("f", (Selection("new"),), (Selection("old"),), (measure,), ("accuracy_mean_weighted",), ("one",))
    evidence, of_figure = Evidence(Results(tmp_path)), Claim("c", "", "", check, "supports")

    def mean(**reading):
        return judge(paper(), of_figure, evidence.under(Reading(**reading))).worst.mean

    # the area is the mean of -10 and the last value; a round does not change it
    assert mean() == pytest.approx({"final": 10, "area": 0}[measure])
    assert mean(weighting="unweighted") == pytest.approx(-10)
    assert mean(round="best") == pytest.approx({"final": -10, "area": 0}[measure])


def test_a_statistic_that_runs_do_not_have_is_not_run(tmp_path):
    """The tails of 10 % are recorded without weights only; a loss is what it is."""
    assert Reading(weighting="weighted").field("accuracy_worst10") is None
    assert Reading(weighting="weighted").field("train_loss") == "train_loss"
    assert Reading(weighting="unweighted").field("accuracy_worst30_weighted") == "accuracy_worst30"
    assert Reading(weighting="weighted").field("accuracy_min") == "accuracy_min"
    assert Reading().field("accuracy_worst10") == "accuracy_worst10"


# ---- what they come to


RUNS_AGAIN = Readings(weighting=EVERY.weighting, round=EVERY.round)


def test_robust_takes_two_readings_with_numbers_of_their_own(tmp_path):
    write(tmp_path, "new", 0.1)
    write(tmp_path, "old", 0.0)
    m = of(tmp_path, readings=RUNS_AGAIN)
    assert m.adopted.verdict == "holds"
    assert text(m.headline) == "one reading"  # with the same accuracies with and without weights, at both rounds
    write(tmp_path, "new", 0.2, setup="two", unweighted=0.1)
    write(tmp_path, "old", 0.0, setup="two")
    assert text(of(tmp_path, "two", readings=RUNS_AGAIN).headline) == "robust"


def test_robust_takes_every_axis(tmp_path):
    """Whatever has not been measured is named; a variant of another setup is no axis of the claim."""
    write(tmp_path, "new", 0.2, setup="two", unweighted=0.1, best=0.3)
    write(tmp_path, "old", 0.0, setup="two")
    readings = replace(EVERY, variants={"slow": EVERY.variants["slow"]})
    m = of(tmp_path, "two", readings=readings)
    assert m.headline == Headline("robust over", ("weighting", "round"), ("splits",))
    assert text(m.headline) == "robust over: weighting, round; not measured: splits"
    expected = "robust over: weighting, round; not measured: splits, variant"
    assert text(of(tmp_path, "two").headline) == expected  # the other variant has no runs
    for split in range(1, 5):
        write(tmp_path, "new", 0.2, setup="two", unweighted=0.1, best=0.3, split=split)
        write(tmp_path, "old", 0.0, setup="two", split=split)
    assert text(of(tmp_path, "two", readings=readings).headline) == "robust"


@pytest.mark.parametrize(("sign", "word"), [(1, "holds"), (-1, "fails")])
def test_a_reading_without_enough_runs_is_named_and_so_is_whether_it_is_against(tmp_path, sign, word):
    """Two splits cannot decide anything, but what they point to is not hidden."""
    write(tmp_path, "new", 0.1 * sign, unweighted=0.05 * sign)
    write(tmp_path, "old", 0.0)
    write(tmp_path, "new", 0.05 * sign, split=1)
    write(tmp_path, "old", 0.0, split=1)
    readings = replace(RUNS_AGAIN, splits=EVERY.splits)
    m = of(tmp_path, readings=readings)
    assert (m.adopted.verdict, text(m.headline)) == (word, "robust over: weighting; not measured: splits")
    write(tmp_path, "new", -0.4 * sign, split=2)
    write(tmp_path, "old", 0.0, split=2)
    m = of(tmp_path, readings=readings)
    assert m.verdicts[Reading(splits="drawn")].verdict == "undecided"
    assert text(m.headline) == "robust over: weighting; not measured: splits (so far against)"
    assert m.headline.against == ("splits",)
    # without anything else that agrees it is one reading, and says so too
    alone = of(tmp_path, readings=Readings(splits=EVERY.splits)).headline
    assert text(alone) == "one reading; not measured: splits (so far against)"


def verdict_of(word, *differences):
    """A verdict on comparisons with these differences by seed; its word need not be theirs."""
    given = [above(f"c{i}", {Unit(0, seed): d for seed, d in enumerate(ds)}, ()) for i, ds in enumerate(differences)]
    return replace(decide(given), verdict=word)


def test_several_changes_at_a_time_count_only_against():
    """With other settings on two other splits it is behind, with each by itself it is ahead."""
    ahead, less, behind = (verdict_of("holds", [d] * 6) for d in (1, 2, -1))
    found = {ADOPTED: ahead, Reading(splits="drawn"): less, Reading(variant="v"): verdict_of("holds", [3] * 6)}
    assert text(headline(found)) == "robust"
    both = Reading(splits="drawn", variant="v")
    assert text(headline({**found, both: verdict_of("undecided", [1] * 2)})) == "robust"
    few = replace(behind, verdict="undecided", comparisons=verdict_of("", [-1] * 2).comparisons)
    assert headline({**found, both: few}) == Headline("one reading", (), ("splits", "variant"), ("splits", "variant"))


def test_both_outcomes_must_have_been_possible():
    """Five blocks can show four comparisons (4 / 32 against one), seven are sure to refute one of them (4 / 128)."""
    for n, measured in ((4, False), (5, False), (6, False), (7, True)):
        for word in ("holds", "undecided"):
            assert is_measured(verdict_of(word, *[[1.0] * n] * 4)) == measured
    assert is_measured(verdict_of("fails", *[[-1.0] * 5] * 4))
    assert not is_measured(verdict_of("fails", *[[-1.0] * 4] * 4))
    assert verdict_of("holds", *[[1.0] * 6] * 4).lacking == ("fail", 7)
    assert verdict_of("undecided", [1.0] * 6, [1.0]).lacking == ("hold", 5)
    assert verdict_of("holds", *[[1.0] * 6] * 3).lacking is None
    few = headline({ADOPTED: verdict_of("holds", *[[1.0] * 6] * 4), Reading("weighted"): verdict_of("holds", [2] * 6)})
    assert few.word == "few blocks"


def test_open_comparisons_are_not_measured():
    """If runs diverged a comparison may be without blocks: nothing has been shown of it, whatever the others are."""
    nothing = replace(verdict_of("undecided", [1.0]), comparisons=(Comparison("open", 0.0, 1.0, 1.0, 0),))
    assert not is_measured(nothing)
    some = verdict_of("undecided", [1.0] * 10)
    assert is_measured(some)
    assert not is_measured(replace(some, comparisons=(*some.comparisons, *nothing.comparisons)))
    found = {ADOPTED: verdict_of("holds", [1.0] * 10), Reading("weighted"): nothing}
    assert headline(found) == Headline("one reading", (), ("weighting",))


def test_undecided_and_what_decides(tmp_path):
    """As often ahead as behind with weights; ahead without."""
    for seed in range(6):
        write(tmp_path, "new", 0.1 * (-1) ** seed, seeds=(seed,), unweighted=0.1)
    write(tmp_path, "old", 0.0)
    assert text(of(tmp_path, readings=Readings()).headline) == "undecided"
    assert text(of(tmp_path).headline) == "depends on: weighting"


def test_a_claim_over_two_setups_of_which_one_has_run(tmp_path):
    write(tmp_path, "new", 0.1, unweighted=0.05)
    write(tmp_path, "old", 0.0)
    m = of(tmp_path, "one", "two", readings=RUNS_AGAIN)
    assert (m.adopted.verdict, text(m.headline)) == ("partly measured", "partly measured")
    assert {title: text(found) for title, found in m.by_group.items()} == {"ONE": "robust", "TWO": "not run"}
    assert {title: v.verdict for title, v in m.adopted.by_group.items()} == {"ONE": "holds", "TWO": "not run"}
    assert {title: v.verdict for title, v in m.adopted.by_group.items()} == {"ONE": "holds", "TWO": "not run"}


def test_a_measured_setup_that_fails_needs_no_other(tmp_path):
    write(tmp_path, "new", -0.1)
    write(tmp_path, "old", 0.0)
    assert of(tmp_path, "one", "two").adopted.verdict == "fails"


def test_without_runs(tmp_path):
    m = of(tmp_path)
    assert (text(m.headline), list(m.verdicts)) == ("not run", [ADOPTED])


# ---- the section of a paper's file


def test_every_combination_and_the_adopted_one_first():
    every = EVERY.every()
    assert (len(every), len(set(every)), every[0]) == (2 * 2 * 2 * 3, 24, ADOPTED)
    assert Readings().every() == [ADOPTED]
    assert [r.differs_from(ADOPTED) for r in every[:3]] == [[], ["weighting"], ["round"]]


KNOWN = {"setups": {"one": None}, "methods": {"new": None}}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"weighting": {"half": "x"}}, "weighting: half: must be 'unweighted' or 'weighted'; got 'half'"),
        ({"splits": {"fixed": "x"}}, "splits: fixed: must be 'drawn'; got 'fixed'"),
        ({"round": ["best"]}, "round: must be a valid dictionary"),
        ({"seeds": []}, "unknown key 'seeds'"),
        ({"variants": [{"id": "v", "title": "", "why": ""}]}, "it changes nothing"),
        ({"variants": [{"id": "v", "title": "", "why": "", "algos": {"x": "y"}}]}, "must be one of new; got 'x'"),
        ({"variants": [{"id": "v", "title": "", "why": "", "methods": {"x": {"a": 1}}}]}, "be one of new; got 'x'"),
        ({"variants": [{"id": "v", "title": "", "why": "", "methods": {"new": {}}}]}, "it changes nothing"),
        ({"variants": [{"id": "v", "title": "", "why": "", "set": {"a": 1}}] * 2}, "two entries have the id v"),
    ],
    ids=str,
)  # fmt: skip
def test_faults_of_the_section(section, words):
    with pytest.raises(RequestError, match=r"readings") as error:
        parse(Readings, section, "readings", KNOWN)
    assert words in str(error.value)


def test_the_papers_say_why():
    for p in papers().values():
        given = p.readings
        whys = [*given.weighting.values(), *given.round.values(), *given.splits.values()]
        assert all(why.endswith(".") for why in (*whys, *(v.why for v in given.variants.values()))), p.id
