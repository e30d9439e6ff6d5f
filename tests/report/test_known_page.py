"""The page of known numbers: what its sentences say, in the same tone whatever the verdict."""

import math
from dataclasses import replace

import pytest

from fedbench.analysis.known import KnownResult, Tried, TunedGrid
from fedbench.papers.known.plan import Wanted
from fedbench.papers.known.registry import references
from fedbench.report.known import grid_rows, measured_text, sentence, summary_text, write_known

REFERENCE = references()["mcmahan_2nn"]


def result(values, diverged=(), grids=None, seeds=3):
    """A number of rounds within 40 to 160."""
    number = replace(REFERENCE.numbers[0], band=(40.0, 160.0), seeds=seeds)
    return KnownResult(Wanted(REFERENCE, number, seeds, {}), dict(enumerate(values)), diverged, grids or {}, (), 3600.0)


UNPUBLISHED = replace(
    result([80, 90, 100]),
    wanted=replace(result([]).wanted, number=replace(REFERENCE.numbers[0], seeds=3, published=(), band=(None, None))),
)
MISSED = Tried(0.2, math.inf, "done", (math.inf, 0.0, 0.2))
GRID = TunedGrid("local.lr", (Tried(0.1, 90.0, "done", (90.0, 0.0, 0.1)), MISSED))
HALF = TunedGrid("local.lr", (GRID.tried[0], Tried(0.2, None, "not run")))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (result([80, 90, 100]), "The mean over 3 seeds, 90 rounds, lies within the band: 40 to 160."),
        (result([180, 190, 200]), "The mean over 3 seeds, 190 rounds, lies outside the band: 40 to 160."),
        (result([80, 90]), "2 of 3 seeds are done; a number has a verdict once all are."),
        (result([80, 90], (2,)), "1 of 3 seeds diverged."),
        (result([80, math.inf, 90]), "1 of 3 seeds did not reach the target within the rounds on record."),
        (
            replace(result([80, math.inf, 90]), rounds=100),
            "1 of 3 seeds did not reach the target in 100 rounds, fewer than the band allows: 40 to 160.",
        ),
        (result([]), "None of 3 seeds has run."),
        (UNPUBLISHED, "The mean over 3 seeds is 90 rounds; no published number stands beside it."),
        (
            result([], grids={"a method": HALF}),
            "None of 3 seeds has run; 1 of 2 values of local.lr have been tried.",
        ),
    ],
)
def test_what_a_verdict_rests_on(found, said):
    assert sentence(found) == said


def test_the_numbers_in_a_line():
    given = [result([80, 90, 100]), result([80, 90, 101]), result([1, 2, 3]), result([80]), result([])]
    assert summary_text(given) == "5 numbers: 2 agree, 1 differs, 1 incomplete, 1 not run"
    assert summary_text([UNPUBLISHED]) == "1 number: 1 measured"
    assert summary_text(given[:1]) == "1 number: 1 agrees"


def test_a_grid_value_by_value():
    assert grid_rows(GRID) == [("0.1", "90", True), ("0.2", "not reached", False)]
    assert grid_rows(HALF) == [("0.1", "90", False), ("0.2", "not run", False)]


def test_mean_spread_and_range():
    assert measured_text(result([80, 90, 100])) == "90 ± 10 (80 to 100)"
    assert measured_text(result([80, math.inf])) == "reached by 1 of 2 seeds"


def test_a_number_that_differs_is_on_the_page_like_any_other(tmp_path):
    write_known([result([180, 190, 200], grids={"a method": GRID})], tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "lies outside the band" in page
    assert "differs</span>" in page
    assert "+103 (McMahan et al.)" in page  # 190 - 87
    assert "seed 2: 200" in page
    assert "took 1.0 hours" in page
