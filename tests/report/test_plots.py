"""Pictures: the numbers in the axes, and the same bytes twice."""

from functools import partial

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from fedbench.reports.canvas import STYLE, Look, draw, looks, method_look
from fedbench.reports.plots import Panel, Series, curves, means

NAN = np.nan
A, B, C = Look("#0072B2"), Look("#D55E00", "dashed", "s"), Look("#009E73", "dotted", "^")


def series(label="a", look=A, seeds=3, points=12):
    random = np.random.default_rng(len(label))
    return Series(label, np.arange(1, points + 1), random.random((seeds, points)), look)


def panel(*several, title="data"):
    return Panel(title, several, "round", "accuracy (%)")


def drawn(picture, *arguments, place=False, **options):
    """The figure that would be written; with everything in its place if wanted."""
    with matplotlib.style.context(STYLE):
        figure = picture(options.pop("title", "a title"), *arguments, **options)
        if place:
            figure.draw_without_rendering()
    return figure


def line(axes, label):
    """The data of the line with this label: of curves, or of means with error bars."""
    (x, y) = next((li.get_data() for li in axes.lines if li.get_label() == label), (None, None))
    if x is None:
        x, y = next(c.lines[0].get_data() for c in axes.containers if c.get_label() == label)
    return x, y


def bar_ends(axes, label, which=-1):
    """Lower and upper ends of the error bars with this label, in the direction of the last: y, or x for ``which=0``."""
    (found,) = (c for c in axes.containers if c.get_label() == label)
    column = 0 if which == 0 else 1
    ends = np.array(
        [s[:, column] if len(s) else [NAN, NAN] for s in found.lines[2][which].get_segments()]
    )
    return ends[:, 0], ends[:, 1]


def examples():
    """One call of each function."""
    random = np.random.default_rng(0)
    panels = [panel(series(), series("b", B, seeds=1))]
    plane = [Series("a", random.random((3, 1)), random.random((3, 1)), A)]
    plane.append(Series("c", random.random((2, 3)), random.random((2, 3)), C, ("0", "0.1", "1")))
    return {
        "curves": partial(curves, title="t", panels=panels, log_y=True),
        "means": partial(means, title="t", panels=panels),
        "plane": partial(means, title="t", panels=[panel(*plane)]),
    }


@pytest.mark.parametrize("name", examples())
def test_the_same_data_give_the_same_bytes(name, tmp_path):
    """Whatever the user's settings are, which stay as they were; the text of the SVG is text."""
    first = draw(tmp_path / "new" / "q=0.5", examples()[name], reduced=True)
    assert [p.name for p in first] == ["q=0.5.png", "q=0.5.svg"]
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 30, "lines.linewidth": 9}):
        again = draw(tmp_path / "other", examples()[name], reduced=True)
        assert matplotlib.rcParams["font.size"] == 20
    for one, two in zip(first, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert b"Software" not in first[0].read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert ">reduced setting</text>" in text
    assert "<dc:date>" not in text


def test_reduced_is_said_outside_the_axes_or_not_at_all():
    for call in examples().values():
        for reduced in (True, False):
            figure = drawn(call.func, **call.keywords, reduced=reduced, place=reduced)
            (label,) = [t for t in figure.texts if t.get_text() == "reduced setting"] or [None]
            assert (label is not None) == reduced
            if label is None:
                continue
            box = label.get_window_extent()
            assert all(box.y0 >= axes.get_window_extent().y1 for axes in figure.axes)
            assert figure.bbox.x1 - box.x1 < 20 and figure.bbox.y1 - box.y1 < 20


def test_a_curve_is_the_mean_and_its_band_the_range():
    """Seeds missing at a point are left out there; where all are there is no point, and one seed has no band."""
    y = np.array([[1.0, 2, NAN, NAN, 4], [3.0, 6, 8, NAN, 0]])
    several = Series("a", np.arange(5), y, A), Series("b", np.arange(5), y[:1], B)
    (axes,) = drawn(curves, [panel(*several)]).axes
    x, mean = line(axes, "a")
    kept = [0, 1, 2, 4]
    assert x.tolist() == kept
    np.testing.assert_array_equal(mean, np.nanmean(y[:, kept], 0))
    assert line(axes, "b")[0].tolist() == [0, 1, 4]
    (band,) = axes.collections
    corners = {tuple(p) for p in band.get_paths()[0].vertices}
    low, high = [(0, 1), (1, 2), (2, 8), (4, 0)], [(0, 3), (1, 6), (2, 8), (4, 4)]
    assert corners == {*low, *high}


def test_long_curves_are_thinned_evenly():
    (axes,) = drawn(curves, [panel(series(points=1237), series("b", B, points=400))]).axes
    x, mean = line(axes, "a")
    assert len(x) == 400
    assert (x[0], x[-1]) == (1, 1237)
    assert set(np.diff(x)) == {3, 4}  # 1236 / 399
    np.testing.assert_allclose(mean, series(points=1237).y.mean(0)[x - 1], rtol=1e-15)
    assert line(axes, "b")[0].tolist() == list(range(1, 401))


def test_a_method_looks_the_same_in_every_kind_of_picture():
    own = method_look("qfedavg")
    (axes,) = drawn(curves, [panel(series("4", own), series("11", B))]).axes
    (found,) = (li for li in axes.lines if li.get_label() == "4")
    assert (found.get_color(), found.get_marker()) == (own.colour, own.marker)
    (axes,) = drawn(means, [panel(Series("4", np.ones((2, 1)), np.ones((2, 1)), own))]).axes
    (container,) = axes.containers
    assert (container.lines[0].get_color(), container.lines[0].get_marker()) == (
        own.colour,
        own.marker,
    )


def test_the_subject_is_drawn_last_and_thicker_and_keeps_its_place_in_the_legend():
    given = looks({"AdaFed": "adafed", "FedAvg": "fedavg", "TERM": "term"}, "adafed")
    several = [series(label, look) for label, look in given.items()]
    for figure in (drawn(curves, [panel(*several)]), drawn(means, [panel(*several)])):
        (axes,) = figure.axes
        own = {
            x.get_color(): (x.get_linewidth(), x.get_zorder())
            for x in axes.lines
            if len(x.get_xdata()) > 2
        }
        widest, highest = own[given["AdaFed"].colour]
        assert all(
            widest > w and highest > z for c, (w, z) in own.items() if c != given["AdaFed"].colour
        )
        assert [t.get_text() for t in figure.legends[0].get_texts()][:3] == [
            "AdaFed",
            "FedAvg",
            "TERM",
        ]


def test_bands_and_bars_are_explained():
    """Of one seed there is neither band nor bar, hence nothing to explain."""

    def texts(figure):
        return [t.get_text() for t in figure.legends[0].get_texts()]

    assert texts(drawn(curves, [panel(series(seeds=1))])) == ["a"]
    assert texts(drawn(means, [panel(series(seeds=1))])) == ["a"]
    assert texts(drawn(means, [panel(series())])) == ["a", "bars: ± 1 STD over seeds"]


@pytest.mark.parametrize("name", examples())
def test_nothing_is_cut_off_or_small(name):
    """All text lies in the picture, long titles and labels too, and has 8 pt or more."""
    call, long = examples()[name], "words of a title and of a label that go on " * 3
    options = {**call.keywords, "title": long, "reduced": True}
    if name != "plane":
        options["panels"] = [Panel(long, [series(long), series("b", B)], long[:80], long[:60])]
    with matplotlib.style.context(STYLE):
        figure = drawn(call.func, **options, place=True)
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text))
    assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, box


def test_logarithmic_axes_have_plain_labels():
    y = np.geomspace(1e-4, 1, 9)[None]
    (axes,) = drawn(curves, [panel(Series("a", np.arange(9), y, A))], log_y=True).axes
    assert axes.get_yscale() == "log"
    assert {"0.001", "0.1", "1"} <= {t.get_text() for t in axes.get_yticklabels()}
    (axes,) = drawn(
        curves, [panel(Series("a", np.arange(9), np.full((2, 9), NAN), A))], log_y=True
    ).axes
    assert axes.get_yscale() == "linear"  # of nothing
    (axes,) = drawn(
        curves, [panel(Series("a", np.arange(3), np.array([[4.0, 1, 0]]), A))], log_y=True
    ).axes
    assert axes.get_ylim()[0] > 0
    assert line(axes, "a")[1].tolist() == [4, 1, 0]


def test_means_have_error_bars_of_one_sample_std():
    """Where no seed has a value there is no point; of one seed there is no spread."""
    y = np.array([[0.0, 1, 5, NAN], [NAN, 3, 7, NAN], [NAN, 5, 9, NAN]])
    (axes,) = drawn(means, [panel(Series("a", np.array([0.01, 0.1, 1, 2]), y, A))]).axes
    x, mean = line(axes, "a")
    assert (x.tolist(), mean.tolist()) == ([0.01, 0.1, 1], [0, 3, 7])
    low, high = bar_ends(axes, "a")
    np.testing.assert_allclose(low, [NAN, 1, 5])
    np.testing.assert_allclose(high, [NAN, 5, 9])


def test_points_in_a_plane_have_bars_in_both_directions_and_their_texts():
    x, y = np.array([[1.0], [3]]), np.array([[10.0], [10]])
    several = np.array([[1.0, 5, 8], [3, 5, NAN]])
    swept = [
        Series("b", several, several + 1, B, ("0", "1", "9")),
        Series("c", several, several, C),
    ]
    (axes,) = drawn(means, [panel(Series("a", x, y, A), *swept)]).axes
    assert [v.tolist() for v in line(axes, "a")] == [[2], [10]]
    low, high = bar_ends(axes, "a", 0)
    np.testing.assert_allclose([low, high], [[2 - np.sqrt(2)], [2 + np.sqrt(2)]])
    assert [v.tolist() for v in line(axes, "b")] == [[2, 5, 8], [3, 6, 9]]
    np.testing.assert_allclose(bar_ends(axes, "b", 0)[0], [2 - np.sqrt(2), 5, NAN])
    assert [(t.get_text(), t.xy) for t in axes.texts] == [
        ("0", (2, 3)),
        ("1", (5, 6)),
        ("9", (8, 9)),
    ]
    colours = {c.get_label(): c.lines[0].get_color() for c in axes.containers}
    assert colours == {"a": A.colour, "b": B.colour, "c": C.colour}


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_runs_that_diverged_are_not_in_the_way(value, tmp_path):
    """An infinite mean is not drawn; the others are, without warnings."""
    broken = series()
    broken.y[1, 5:] = value
    for picture in (curves, means):
        draw(tmp_path / "p", picture, "t", [panel(broken, series("b", B))])
    (axes,) = drawn(curves, [panel(broken)]).axes
    assert np.isinf(line(axes, "a")[1]).tolist() == [False] * 5 + [True] * 7
    assert np.isfinite(axes.get_ylim()).all()
    draw(tmp_path / "p", means, "t", [panel(Series("a", broken.y[:, 5:8], broken.y[:, :3], A))])
