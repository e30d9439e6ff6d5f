"""Readings: each flips the verdict on accuracies made up here, and whether they agree."""

from dataclasses import replace

import pytest
from example_paper import example_paper
from fake_runs import write_run

from fedbench.analysis.claims.comparison import above
from fedbench.analysis.claims.judge import differing, judge, judge_readings
from fedbench.analysis.claims.verdict import decide
from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence, MatchedRuns, wanted_under
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
    return example_paper(
        metrics={"avg": AVG}, methods={m: Method(m, m, m) for m in ("new", "old")},
        setups={s: Setup(s, s.upper(), f"made_up/{s}", 10, 3, 1) for s in ("one", "two")},
        tables={"t": Table("t", "", ("one", "two"), ("avg",), ROWS)},
        figures={"f": Figure("f", "", "curves", ("one", "two"), runs=(Row("new"), Row("old")))}, readings=readings,
    )  # fmt: skip


def claim(*setups):
    return Claim(
        "c", "", "", Compare("t", setups or ("one",), ("avg",), ("new",), ("old",)), "supports"
    )


def write(
    root, algo, ahead, seeds=range(6), split=0, setup="one", unweighted=None, best=None, **keys
):
    """Runs whose weighted mean accuracy is 0.5 and ``ahead`` at the last round, a little apart from seed to seed.

    Args:
        unweighted: By how much the accuracy without weights is above 0.5; like ``ahead`` if it is
            not given.
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
        departures = {k: [0.1, v] for k, v in changes.items()} | (
            {"data.seed": [0, split]} if split else {}
        )
        meta = {
            "status": "done", "seed": seed, "hash": digest, "algo": algo, "experiment": f"made_up/{setup}",
            "data": "toy", "model": "linear", "started": "2024-01-01", "sources": [], "overrides": [],
            "departures": departures,
        }  # fmt: skip
        config = {"rounds": 10, "seed": seed, "data.seed": split, "local.lr": 0.1, **changes}
        write_run(path, meta, config, [{"round": 0, **earlier}, {"round": 10, **last}])


def verdict(root, reading, **more):
    return judge(claim(), Evidence(paper(**more), Results(root)).under(reading))


def of(root, *setups, **more):
    return judge_readings(claim(*setups), Evidence(paper(**more), Results(root)))


def tally(v):
    """Comparisons in all, run, shown and refuted."""
    return len(v.comparisons), len(v.run), v.count("shown"), v.count("refuted")


# ---- each reading flips the verdict


def test_weighting(tmp_path):
    """Ahead with weights and behind without; the paper's columns have weights."""
    write(tmp_path, "new", 0.1, unweighted=-0.1)
    write(tmp_path, "old", 0.0)
    assert verdict(tmp_path, ADOPTED).word == "holds"
    assert verdict(tmp_path, Reading(weighting="weighted")).word == "holds"
    v = verdict(tmp_path, Reading(weighting="unweighted"))
    assert (v.word, v.worst.mean) == ("fails", pytest.approx(-10))
    assert differing(of(tmp_path)) == [Reading(weighting="unweighted")]


def test_round(tmp_path):
    """Ahead at the end and behind in the best round, which comes earlier."""
    write(tmp_path, "new", 0.1, best=0.2)
    write(tmp_path, "old", 0.0, best=0.3)
    assert verdict(tmp_path, ADOPTED).word == "holds"
    assert verdict(tmp_path, Reading(round="last")).word == "holds"
    v = verdict(tmp_path, Reading(round="best"))
    assert (v.word, v.worst.mean) == ("fails", pytest.approx(-10))
    assert differing(of(tmp_path)) == [Reading(round="best")]


def test_splits(tmp_path):
    """Ahead by 1 on the split that the experiment draws, with all seeds, and behind by 2 on five others.

    The sums of ±1 ± 2 ± 2 ± 2 ± 2 ± 2 that are at most 1 - 10 are -9 and -11: 2 of 64.
    """
    for split, ahead in enumerate((0.01, *[-0.02] * 5)):
        write(tmp_path, "new", ahead, split=split)
        write(tmp_path, "old", 0.0, split=split)
    fixed, drawn = verdict(tmp_path, ADOPTED), verdict(tmp_path, Reading(splits="drawn"))
    assert (fixed.word, fixed.worst.n, fixed.worst.blocks) == ("holds", 6, "seed")
    assert (drawn.word, drawn.worst.n, drawn.worst.blocks) == ("fails", 6, "split")
    assert drawn.worst.less == 2 / 64
    assert drawn.worst.differences == pytest.approx({0: 1, **dict.fromkeys(range(1, 6), -2)})
    assert differing(of(tmp_path)) == [Reading(splits="drawn")]


def test_variant(tmp_path):
    """Ahead as adopted; behind where both methods are replaced, and where both have another rate."""
    write(tmp_path, "new", 0.1)
    write(tmp_path, "old", 0.0)
    write(tmp_path, "kept_new", 0.0)
    write(tmp_path, "kept_old", 0.1)
    write(tmp_path, "new", 0.0, lr=0.5)
    write(tmp_path, "old", 0.1, lr=0.5)
    assert verdict(tmp_path, ADOPTED).word == "holds"
    for name in ("kept", "slow"):
        v = verdict(tmp_path, Reading(variant=name))
        assert (v.word, v.scaled) == ("fails", None)  # it is a reading, not a reduction
    assert differing(of(tmp_path)) == [Reading(variant="kept"), Reading(variant="slow")]


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
    assert (v.word, v.worst.mean) == ("fails", pytest.approx(lead))
    rows = {r.algo: wanted_under(paper(readings), r, Reading(variant="own"))[1] for r in ROWS[:2]}
    assert rows["new"] == {"local.lr": 0.5}
    assert rows["old"] == common
    assert variant.changes("old") == bool(common)


def test_a_variant_changes_only_its_setups(tmp_path):
    write(tmp_path, "new", 0.1, setup="two")
    write(tmp_path, "old", 0.0, setup="two")
    evidence = Evidence(paper(), Results(tmp_path))
    words = {
        name: judge(claim("two"), evidence.under(Reading(variant=name))).word
        for name in ("kept", "slow")
    }
    assert words == {"kept": "not run", "slow": "holds"}


# ---- splits and seeds


def test_seeds_of_one_split_are_one_block(tmp_path):
    """Ten seeds on a split are no ten splits: their mean difference is one number."""
    for split in range(2):
        write(tmp_path, "new", 0.1, seeds=range(10), split=split)
        write(tmp_path, "old", 0.0, seeds=range(10), split=split)
    v = verdict(tmp_path, Reading(splits="drawn"))
    assert (v.word, v.worst.n, v.worst.greater) == ("undecided", 2, 1 / 4)
    assert (v.worst.blocks, v.lacking[::2], v.counts) == ("split", ("hold", 5), False)


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
    found = Evidence(paper(), Results(tmp_path)).find(ROWS[0])
    assert list(found.runs) == [Unit(0, s) for s in range(6)]
    assert (found.reduced, found.cuts, found.splits, len(found.every)) == ((), (), [3], 8)
    drawn = Evidence(paper(), Results(tmp_path)).under(Reading(splits="drawn")).find(ROWS[0])
    assert list(drawn.runs) == [*(Unit(0, s) for s in range(6)), Unit(3, 0), Unit(3, 1)]
    assert (drawn.reduced, drawn.cuts, drawn.splits) == ((), (), [])


def test_only_other_splits_are_not_the_adopted_ones(tmp_path):
    write(tmp_path, "new", 0.1, split=1)
    write(tmp_path, "old", 0.0, split=1)
    assert verdict(tmp_path, ADOPTED).word == "not run"
    assert verdict(tmp_path, Reading(splits="drawn")).word == "undecided"


# ---- figures


@pytest.mark.parametrize("measure", ["final", "area"])
def test_curves_are_read_too(tmp_path, measure):
    write(tmp_path, "new", 0.1, unweighted=-0.1, best=0.3)
    write(tmp_path, "old", 0.0, best=0.4)
    check = Curves(
        "f",
        (Selection("new"),),
        (Selection("old"),),
        (measure,),
        ("accuracy_mean_weighted",),
        ("one",),
    )
    evidence, of_figure = (
        Evidence(paper(), Results(tmp_path)),
        Claim("c", "", "", check, "supports"),
    )

    def mean(**reading):
        return judge(of_figure, evidence.under(Reading(**reading))).worst.mean

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


TWICE = Readings(weighting=EVERY.weighting, round=EVERY.round)


def test_a_reading_that_changes_no_number_is_none(tmp_path):
    """With the same accuracies with and without weights, at both rounds, there is nothing else to read."""
    write(tmp_path, "new", 0.1)
    write(tmp_path, "old", 0.0)
    found = of(tmp_path, readings=TWICE)
    assert (list(found), differing(found)) == ([ADOPTED], None)


def test_readings_that_agree_and_those_that_are_not_run(tmp_path):
    """Of the splits one has been run, which decides nothing; a variant of another setup is no reading of the claim."""
    write(tmp_path, "new", 0.2, setup="two", unweighted=0.1, best=0.3)
    write(tmp_path, "old", 0.0, setup="two")
    found = of(tmp_path, "two", readings=replace(EVERY, variants={"slow": EVERY.variants["slow"]}))
    assert {v.word for v in found.values()} == {"holds", "undecided"}
    assert [r for r, v in found.items() if v.word == "holds"] == [
        ADOPTED, Reading("unweighted"), Reading(round="best"),
    ]  # fmt: skip
    assert differing(found) == []


def judged(leads, n=10, found=()):
    """A verdict on a comparison whose leads are all alike."""
    return decide([above("c", {Unit(0, seed): float(leads) for seed in range(n)}, found)])


@pytest.mark.parametrize(("leads", "n", "others"), [
    (-1, 10, [Reading("weighted")]), (0, 10, [Reading("weighted")]), (2, 10, []),
    (-1, 4, None), (0, 4, None),  # four seeds decide nothing
])  # fmt: skip
def test_a_reading_counts_if_its_seeds_could_decide_it(leads, n, others):
    found = {ADOPTED: judged(1), Reading("weighted"): judged(leads, n)}
    assert differing(found) == others
    assert differing({ADOPTED: judged(leads, n), Reading("weighted"): judged(1)}) == others


def test_of_the_readings_that_differ_the_nearest_are_named():
    ahead, behind, both = judged(1), judged(-1), Reading("weighted", "best")
    found = {ADOPTED: ahead, Reading("weighted"): ahead, Reading(round="best"): ahead, both: behind}
    assert differing(found) == [both]
    assert differing({**found, Reading("weighted"): behind}) == [Reading("weighted")]


def test_a_reading_at_reduced_settings_does_not_count_beside_a_verdict():
    """It is a scaled-down check, which is compared with scaled-down checks alone."""
    cut = [MatchedRuns({}, departs=("rounds 2 (paper 9)",))]
    full, less = judged(1), judged(-1, found=cut)
    assert (less.word, less.scaled.word) == ("not run", "fails")
    assert differing({ADOPTED: full, Reading("weighted"): less}) is None
    assert differing({ADOPTED: less, Reading("weighted"): full}) is None
    ahead = judged(1, found=cut)
    assert differing({ADOPTED: less, Reading("weighted"): ahead, Reading(round="best"): full}) == [
        Reading("weighted")
    ]


def test_a_claim_over_two_setups_of_which_one_has_run(tmp_path):
    for lead, kind in ((0.1, "holds"), (-0.1, "fails")):
        root = tmp_path / kind
        write(root, "new", lead)
        write(root, "old", 0.0)
        v = of(root, "one", "two", readings=TWICE)[ADOPTED]
        assert (v.word, tally(v)) == ("not run", (2, 1, int(lead > 0), int(lead < 0)))
        assert {title: part.word for title, part in v.by_group.items()} == {
            "ONE": kind,
            "TWO": "not run",
        }


def test_without_runs(tmp_path):
    found = of(tmp_path)
    assert ([v.word for v in found.values()], differing(found)) == (["not run"], None)


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
        ({"weighting": {"half": "x"}}, "weighting: half: must be one of unweighted, weighted; got 'half'"),
        ({"splits": {"fixed": "x"}}, "splits: fixed: must be drawn, got 'fixed'"),
        ({"round": ["best"]}, "round: must be a section with keys"),
        ({"seeds": []}, "unknown key 'seeds'"),
        ({"variants": [{"id": "v", "title": "", "why": ""}]}, "v changes nothing"),
        ({"variants": [{"id": "v", "title": "", "why": "", "algos": {"x": "y"}}]}, "must be new, got 'x'"),
        ({"variants": [{"id": "v", "title": "", "why": "", "methods": {"x": {"a": 1}}}]}, "be new, got 'x'"),
        ({"variants": [{"id": "v", "title": "", "why": "", "methods": {"new": {}}}]}, "v changes nothing"),
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
        assert all(
            why.endswith(".") for why in (*whys, *(v.why for v in given.variants.values()))
        ), p.id
