"""The page of a benchmark, its files and its table on the terminal."""

import json
import re

import pytest
import vl_convert
from benchmark_entries import benchmark, entries
from browsing import fits
from page_example import HOSTILE
from table_readers import read_csv

from fedbench.benchmarks.entries import Entry, Trial
from fedbench.reports.benchmark import _View, benchmark_text, write_benchmark
from fedbench.reports.charts import VEGA_LITE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("benchmark") / "page"
    write_benchmark(benchmark(), entries(), ["own"], place, ("2 of 2 runs are the same",))
    return place


@pytest.fixture(scope="module")
def words(folder):
    """The text of the page, without charts, styles and scripts."""
    text = (folder / "index.html").read_text(encoding="utf-8")
    return re.sub(r"<style>.*?</style>|<script.*?</script>", "", text, flags=re.S)


@pytest.fixture(scope="module")
def charts(folder):
    """The specifications of the charts of each figure."""
    text = (folder / "index.html").read_text(encoding="utf-8")
    return [
        json.loads(spec) for spec in re.findall(r'<script type="application/json">(.*?)<', text)
    ]


def values(spec):
    return spec["data"]["values"]


def test_every_missing_number_has_a_reason(words):
    cells = re.findall(r"<(?:td|dd)\b.*?</(?:td|dd)>", words, re.S)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(cells))
    for wanted in (
        "seed 0 diverged",
        "b needs all clients",
        "every trial diverged",
        "setting two in words",
        "2 of 2 runs are the same",
        "version 2",
        "24 runs, 24.0 hours",  # of the method of its own, with the held-out ones
        "fedbench 9.9",
        "unofficial data",
        "algo.mu (upper)",
        "▸ own",
    ):
        assert wanted in words, wanted
    ids = re.findall(r' id="([^"]*)"', words)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]*)"', words)) <= set(ids)


def test_vega_lite_draws_every_chart(charts):
    specs = [spec for figure in charts for spec in figure]
    for spec in specs:
        # an SVG is drawn to the end, unlike a specification that is only translated
        vl_convert.vegalite_to_svg(spec | {"width": 400}, vl_version=VEGA_LITE)
    # bars and maps per variant, profiles per side, and three per setting
    assert len(specs) == 4 + 2 * 2 * 2 + 2 * 2 + 3 * 2


def test_bars_are_ranked_with_a_diverged_method_and_a_refused_one_last(charts):
    one, two, *_ = charts[0]
    assert [bar["name"] for bar in values(one)] == ["b", "a", "fedavg", "▸ own"]
    assert [bar["role"] for bar in values(one)][2:] == ["baseline", "own"]
    assert values(one)[2] | {"low": 0, "high": 0} == {
        "name": "fedavg",
        "role": "baseline",
        "seeds": 6,
        "note": "",
        "mean": 52.5,
        "low": 0,
        "high": 0,
    }
    assert [bar["name"] for bar in values(two)][2:] == ["a", "b"]


def test_gains_are_grey_unless_decided(charts):
    """The first two maps are those of the method of its own over the others."""
    tuned, _ = charts[3]
    cells = {(cell["setting"], cell["name"]): cell for cell in values(tuned)}
    assert cells["one", "a"]["text"] == "+10.0"
    states = {place: cell["state"] for place, cell in cells.items()}
    assert states == {
        ("one", "a"): "ahead",
        ("one", "b"): "open",
        ("one", "▸ own"): "open",
        ("two", "▸ own"): "ahead",
        ("two", "a"): "behind",
    }
    over_others, _ = charts[1]
    assert {cell["name"] for cell in values(over_others)} == {"a", "b", "fedavg"}


def test_lines_of_few_methods_are_shown_at_first(tmp_path):
    made = entries()
    many = [entry for entry in made if entry.method == "fedavg"]
    for number in range(12):
        many += [
            type(e)(**vars(e) | {"method": f"m{number:02}"}) for e in made if e.method == "fedavg"
        ]
    text = write_benchmark(benchmark(), many, ["m11"], tmp_path).read_text()
    hidden = json.loads(re.search(r'"params":\s*(\[.*?\]\})', text)[1] + "]")[0]["value"]
    # all are tied, so that the first six by name are shown, and the method of its own
    assert hidden == [f"m{number:02}" for number in range(5, 11)]


def test_tables_as_csv(folder):
    gains = read_csv((folder / "gains.csv").read_text())
    places = {(g["setting"], g["side"], g["metric"], g["method"]): g for g in gains}
    assert len(places) == len(gains) == 2 * 2 * 5
    a = places["one", "held out", "accuracy_worst10", "a"]
    assert (float(a["mean"]), a["verdict"]) == (pytest.approx(-10), "behind")
    numbers = read_csv((folder / "numbers.csv").read_text())
    (row,) = (n for n in numbers if (n["table"], n["method"]) == ("one", "a"))
    assert float(row["mean accuracy (%), held out"]) == pytest.approx(52.5)
    assert float(row["mean accuracy (%), tuned STD"]) == pytest.approx(3.5**0.5)
    assert row["mean accuracy: tuned / held out"] == "ahead / ahead"


def test_trials_until_a_method_is_above_the_baseline():
    """FedAvg expects 0.3 of one trial, and 0.4 of two and more.

    The early method expects 0.35, 0.53 and 0.65; the late one at last 0.4, a tie up to rounding;
    and the lucky one is above FedAvg after one trial alone.
    """
    scores = {
        "fedavg": (0.2, 0.4),
        "early": (0.1, 0.3, 0.65),
        "late": (0.1, 0.1, 0.4 + 1e-12, 0.1, 0.1),
        "lucky": (0.35, 0.35, 0.35),
    }
    made = []
    for method, of_method in scores.items():
        trials = tuple(Trial({"local.lr": lr}, score) for lr, score in enumerate(of_method))
        made.append(Entry("one", method, trials=trials, chosen={"local.lr": 1}))
    settings = {"one": benchmark().settings["one"]}
    best, same = _View(benchmark(settings=settings), made, []).trials_tables()

    def cells(table):
        return {row[0].text: row[1].text for row in table.rows}

    assert cells(best) == {"early": "2 of 3", "late": "> 5", "lucky": "> 3"}
    assert cells(same) == {"early": "1 of 3", "late": "> 5", "lucky": "> 3"}


def test_the_text_has_the_leads_of_the_method_of_its_own_or_those_over_the_baseline():
    own = benchmark_text(benchmark(), entries(), ["own"])
    assert own.startswith("## made_up@2")
    assert "Gain of own in mean accuracy (%), held out" in own
    assert re.search(r"\| a +\| .* open +\| +other diverged, ahead \|", own)
    assert re.search(r"\| fedavg +\| .* open +\| \+10.00 \[\+10.00, \+10.00\] ahead \|", own)
    every = benchmark_text(benchmark(), entries(), [])
    assert "Gain over fedavg in worst 10 % (%), tuned" in every
    assert re.search(r"\| a +\| -10.00 \[-10.00, -10.00\] behind \| +diverged, behind \|", every)


def test_without_held_out_runs_and_with_one_setting(tmp_path):
    """The page is that of a benchmark with this setting alone, and names the other one."""
    made = [type(e)(**vars(e) | {"held_out": ()}) for e in entries() if e.setting == "one"]
    text = write_benchmark(benchmark(), made, [], tmp_path / "both").read_text()
    assert "Average ranks" not in text
    assert "held out:" not in text
    note = '<p class="caption">Without runs here, and left out below: two.</p>\n'
    settings = {"one": benchmark().settings["one"]}
    alone = write_benchmark(benchmark(settings=settings), made, [], tmp_path / "one")
    assert text.count(note) == 1
    assert text.replace(note, "\n") == alone.read_text()


def test_ranks_are_over_the_settings_in_which_the_baseline_has_been_run():
    """Runs of the own method alone in the second setting change no rank."""

    def ranks(kept):
        rows = _View(benchmark(), kept, ["own"]).rank_table().rows
        return {row[0].text: row[1].text for row in rows}

    one = [entry for entry in entries() if entry.setting == "one"]
    (own,) = (entry for entry in entries() if (entry.setting, entry.method) == ("two", "own"))
    assert "1.00" in ranks(one).values()
    assert ranks([*one, own]) == ranks(one)


# ---- in a browser


@pytest.fixture
def visit(browser):
    seen = []

    def opened(path, width):
        tab = browser.new_context(viewport={"width": width, "height": 900}).new_page()
        tab.on("console", lambda message: seen.append(message.text))
        tab.on("pageerror", lambda error: seen.append(f"{error}"))
        tab.goto(path.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        return tab

    yield opened
    assert not seen


@pytest.mark.processes
@pytest.mark.parametrize("width", [1280, 400])
def test_all_charts_are_drawn_and_fit(visit, folder, width):
    tab = visit(folder / "index.html", width)
    for plate in tab.locator(".plate").all():
        plate.scroll_into_view_if_needed()
        plate.locator(".charts .marks").last.wait_for()
    assert tab.locator(".charts .marks").count() == 22
    assert fits(tab)


@pytest.mark.processes
def test_hostile_texts_do_nothing_and_fit(visit, tmp_path):
    made = entries(own=HOSTILE.format(1), reason=HOSTILE.format(2))
    hostile = benchmark(title=HOSTILE.format(3), lead=HOSTILE.format(4))
    path = write_benchmark(hostile, made, [HOSTILE.format(1)], tmp_path, [HOSTILE.format(5)])
    tab = visit(path, 400)
    tab.locator(".plate").nth(1).scroll_into_view_if_needed()
    tab.locator(".plate").nth(1).locator(".charts .marks").last.wait_for()
    text = tab.locator("body").inner_text()
    assert all(f"{HOSTILE.format(i)[-3:]}" in text for i in range(1, 6))
    assert fits(tab)
