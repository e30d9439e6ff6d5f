"""The known numbers on record: their experiments exist, their bands are tolerances around what was published."""

from dataclasses import replace

import pytest

from fedbench.core.errors import RequestError
from fedbench.papers.known.plan import wanted
from fedbench.papers.known.registry import Measure, chosen_references, references
from fedbench.papers.reading import fill

NUMBERS = [(r, n) for r in references().values() for n in r.numbers]
by_name = pytest.mark.parametrize(("reference", "number"), NUMBERS, ids=[f"{r.id}-{n.id}" for r, n in NUMBERS])


@by_name
@pytest.mark.parametrize("profile", ["full", "cpu", "smoke"])
def test_every_run_composes_and_measures_rounds_that_are_evaluated(reference, number, profile, composer):
    (w,) = [w for w in wanted([reference], profile) if w.number is number]
    for algo in number.algos:
        for run in (w.grid(algo) or w.runs(algo, None))[:1]:
            config = composer.config(run.experiment, run.algo, run.keys)
            assert config.task_name == number.experiment
            if profile == "full":
                assert max(number.measure.first or 0, number.measure.last or 0) <= config.rounds
                assert config.eval_every == 1 or number.measure.kind == "mean"


@by_name
def test_published_values_are_inside_the_band(reference, number):
    low, high = number.band
    for published in number.published:
        if published.value is not None:
            assert low is None or low < published.value
            assert high is None or published.value < high


def test_within_a_factor_of_two_of_either():
    for number in references()["mcmahan_2nn"].numbers:
        values = [p.value for p in number.published]
        assert number.band == (min(values) / 2, max(values) * 2)


def test_the_model_of_mcmahan_and_the_batches_of_an_epoch(composer):
    tree = composer.config("known/mcmahan_2nn_iid", "fedavg", {}).tree
    assert tree["model"]["hidden"] == [200, 200]
    assert (tree["local"]["batch_size"], tree["local"]["epochs"], tree["participation"]) == (10, 1, 10)
    niid = composer.config("known/niid_bench_labels2", "fedprox", {}).tree
    assert (niid["local"]["momentum"], niid["local"]["weight_decay"], niid["algo"]["mu"]) == (0.9, 1e-5, 0.01)
    assert niid["data"]["partition"]["classes_per_client"] == 2


def test_names():
    assert chosen_references(["known"]) == list(references().values())
    assert chosen_references(["known/niid_bench", "known/niid_bench"]) == [references()["niid_bench"]]
    with pytest.raises(RequestError, match="unknown reference 'known/niid'; did you mean known/niid_bench"):
        chosen_references(["known/niid"])


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ({"kind": "rounds_to", "field": "accuracy_mean"}, "rounds_to needs target"),
        ({"kind": "mean", "field": "accuracy_mean", "first": 3}, "mean needs last"),
        ({"kind": "best", "field": "accuracy_mean", "first": 3}, "best has no first"),
        ({"kind": "at", "field": "accuracy", "first": 3}, "field"),
    ],
)
def test_measures_without_what_they_need_are_refused(measure, message):
    with pytest.raises(RequestError, match=message):
        fill(Measure, measure, "measure", {})


def test_a_band_that_is_none_or_without_need_and_a_tuning_seed_among_the_results_are_refused():
    number = references()["mcmahan_2nn"].numbers[0]
    with pytest.raises(RequestError, match=r"band must be \[low, high\]"):
        replace(number, band=(3.0, 2.0)).validate("number", {})
    for lacks in ({"band": (None, None)}, {"published": ()}):
        with pytest.raises(RequestError, match="a number has a band if it has published values, and only then"):
            replace(number, **lacks).validate("number", {})
    with pytest.raises(RequestError, match="grid: seed must be 5 or above, got 4"):
        replace(number, grid=replace(number.grid, seed=4)).validate("number", {})
