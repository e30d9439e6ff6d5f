"""Pictures: the numbers in the axes, the same bytes twice, and nothing written of data that do not fit."""

import itertools
from functools import partial

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from fedbench.report.canvas import STYLE, Look, looks, method_look
from fedbench.report.grids import bars, matrix
from fedbench.report.plots import Clients, Panel, Point, Series, Spread, Swept, curves, distribution, front, sweep

NAN = np.nan
A, B, C = Look("#0072B2"), Look("#D55E00", "dashed", "s"), Look("#009E73", "dotted", "^")


def series(label="a", look=A, seeds=3, points=12):
    random = np.random.default_rng(len(label))
    return Series(label, np.arange(1, points + 1), random.random((seeds, points)), look)


def panel(*several, title="data"):
    return Panel(title, several, "round", "accuracy (%)")


def drawn(picture, *arguments, place=False, **options):
    """The figure that would be written; with everything in its place if wanted."""
    with matplotlib.rc_context(STYLE):
        figure = picture.__wrapped__(options.pop("title", "a title"), *arguments, **options)
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
    ends = np.array([s[:, column] if len(s) else [NAN, NAN] for s in found.lines[2][which].get_segments()])
    return ends[:, 0], ends[:, 1]


def examples():
    """One call of each function, without the path."""
    random = np.random.default_rng(0)
    panels = [panel(series(), series("b", B, seeds=1))]
    accuracies = [Spread("data", [Clients("a", 100 * random.random(30), A), Clients("b", 100 * random.random(30), B)])]
    swept = [Swept("c", random.random((3, 2)), random.random((3, 2)), ["0", "0.1", "1"], C)]
    return {
        "curves": partial(curves, title="t", panels=panels, log_y=True),
        "sweep": partial(sweep, title="t", panels=panels),
        "distribution": partial(distribution, title="t", panels=accuracies),
        "front": partial(front, title="t", points=[Point("a", random.random(3), random.random(3), A)], connected=swept,
                    x_label="x", y_label="y"),
        "bars": partial(bars, title="t", panels=[("few", np.eye(4)), ("many", random.random((70, 11)))]),
        "matrix": partial(matrix, title="t", panels=[("few", random.random((3, 3))), ("many", np.eye(13))]),
    }  # fmt: skip


@pytest.mark.parametrize("name", examples())
def test_the_same_data_give_the_same_bytes(name, tmp_path):
    """Whatever the user's settings are, which stay as they were; the text of the SVG is text."""
    first = examples()[name](tmp_path / "new" / "q=0.5", reduced=True)
    assert [p.name for p in first] == ["q=0.5.png", "q=0.5.svg"]
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 30, "lines.linewidth": 9}):
        again = examples()[name](tmp_path / "other", reduced=True)
        assert matplotlib.rcParams["font.size"] == 20
    for one, two in zip(first, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert b"Software" not in first[0].read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert ">reduced setting</text>" in text
    assert "<dc:date>" not in text


def arrays(value):
    """All arrays in nested arguments."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Series):
        yield from (value.x, value.y)
    elif isinstance(value, Panel):
        yield from arrays(value.series)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays(part)


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
    left, right = drawn(distribution, [Spread("data", [Clients("4", np.arange(3), own)])]).axes
    assert matplotlib.colors.to_hex(left.patches[0].get_edgecolor()).upper() == own.colour
    assert next(li for li in right.lines if li.get_label() == "4").get_color() == own.colour
    (axes,) = drawn(front, [Point("4", np.ones(2), np.ones(2), own)], [], "x", "y").axes
    (container,) = axes.containers
    assert (container.lines[0].get_color(), container.lines[0].get_marker()) == (own.colour, own.marker)


def test_the_subject_is_drawn_last_and_thicker_and_keeps_its_place_in_the_legend():
    given = looks([("adafed", "AdaFed"), ("fedavg", "FedAvg"), ("term", "TERM")], "adafed")
    several = [series(label, look) for (_, label), look in given.items()]
    for figure in (drawn(curves, [panel(*several)]), drawn(sweep, [panel(*several)])):
        (axes,) = figure.axes
        own = {x.get_color(): (x.get_linewidth(), x.get_zorder()) for x in axes.lines if len(x.get_xdata()) > 2}
        widest, highest = own[given["adafed", "AdaFed"].colour]
        assert all(widest > w and highest > z for c, (w, z) in own.items() if c != given["adafed", "AdaFed"].colour)
        assert [t.get_text() for t in figure.legends[0].get_texts()][:3] == ["AdaFed", "FedAvg", "TERM"]


def test_bands_bars_and_smoothed_lines_are_explained():
    """Of one seed there is neither band nor bar, hence nothing to explain."""

    def texts(figure):
        return [t.get_text() for t in figure.legends[0].get_texts()]

    assert texts(drawn(curves, [panel(series(seeds=1))])) == ["a"]
    assert texts(drawn(sweep, [panel(series(seeds=1))])) == ["a"]
    assert texts(drawn(sweep, [panel(series())])) == ["a", "bars: ± 1 STD over seeds"]
    point = Point("a", np.ones(2), np.ones(2), A)
    assert texts(drawn(front, [point], [], "x", "y")) == ["a", "bars: ± 1 STD over seeds"]
    rough = Panel("p", [series()], "round", "y", window=3)
    assert texts(drawn(curves, [rough])) == ["a", "line: mean of 3 evaluations; faint: each"]


def test_a_smoothed_line_is_a_running_mean_over_a_faint_line_of_the_points():
    y = np.array([[0.0, 3, 6, 0, 3], [2.0, 5, 8, 2, 5]])  # means 1, 4, 7, 1, 4
    (axes,) = drawn(curves, [Panel("p", [Series("a", np.arange(5), y, A)], "round", "y", window=3)]).axes
    assert line(axes, "a")[1].tolist() == [2.5, 4, 4, 4, 2.5]
    (faint,) = (li for li in axes.lines if li.get_label() != "a")
    assert faint.get_ydata().tolist() == [1, 4, 7, 1, 4]
    assert faint.get_alpha() < 0.5
    assert not axes.collections  # no band


def test_pooled_clients_are_counted_in_percent_and_called_so():
    """Two seeds of two clients against one seed of two: the same accuracies give the same lines."""
    rows = [Clients("a", np.array([10.0, 10, 90, 90]), A, 2), Clients("b", np.array([10.0, 90]), B, 1)]
    left, right = drawn(distribution, [Spread("data", rows, "not drawn: c (not run)")]).axes
    one, two = (patch.get_data().values for patch in left.patches)
    assert one.tolist() == two.tolist()
    assert (one[2], one.sum()) == (50, 100)
    assert left.get_ylabel() == "clients of all seeds (%)"
    label = right.get_xlabel().replace("\n", " ")
    assert label == "rank among the clients of all seeds (%), worst first not drawn: c (not run)"
    left, _ = drawn(distribution, [Spread("data", rows[1:])]).axes
    assert left.get_ylabel() == "clients (%)"


def test_a_swept_parameter_is_written_at_the_ends_without_overlap():
    several = [Series(str(k), np.arange(20), np.full((1, 20), 0.5 + k / 1000), A, str(k)) for k in range(5)]
    figure = drawn(curves, [panel(*several)], place=True)
    boxes = [t.get_window_extent() for t in figure.axes[0].texts]
    assert [t.get_text() for t in figure.axes[0].texts] == list("01234")  # lowest first
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))


@pytest.mark.parametrize("name", examples())
def test_nothing_is_cut_off_or_small(name):
    """All text lies in the picture, long titles and labels too, and has 8 pt or more."""
    call, long = examples()[name], "words of a title and of a label that go on " * 3
    options = {**call.keywords, "title": long, "reduced": True}
    if name in ("curves", "sweep"):
        options["panels"] = [Panel(long, [series(long), series("b", B)], long[:80], long[:60])]
    with matplotlib.rc_context(STYLE):
        figure = drawn(call.func, **options, place=True)
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text))
    assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, box


def test_logarithmic_axes_have_plain_labels():
    y = np.geomspace(1e-4, 1, 9)[None]
    (axes,) = drawn(curves, [panel(Series("a", np.arange(9), y, A))], log_y=True).axes
    assert axes.get_yscale() == "log"
    assert {"0.001", "0.1", "1"} <= {t.get_text() for t in axes.get_yticklabels()}
    (axes,) = drawn(curves, [panel(Series("a", np.arange(9), np.full((2, 9), NAN), A))], log_y=True).axes
    assert axes.get_yscale() == "linear"  # of nothing
    (axes,) = drawn(curves, [panel(Series("a", np.arange(3), np.array([[4.0, 1, 0]]), A))], log_y=True).axes
    assert axes.get_ylim()[0] > 0
    assert line(axes, "a")[1].tolist() == [4, 1, 0]


def test_a_sweep_has_the_mean_and_one_sample_std():
    """In the order of the parameter; of one seed there is no spread."""
    y = np.array([[5.0, 1, 0], [7.0, 3, NAN], [9.0, 5, NAN]])
    (axes,) = drawn(sweep, [panel(Series("a", np.array([1.0, 0.1, 0.01]), y, A))]).axes
    x, mean = line(axes, "a")
    assert (x.tolist(), mean.tolist()) == ([0.01, 0.1, 1], [0, 3, 7])
    low, high = bar_ends(axes, "a")
    np.testing.assert_allclose(low, [NAN, 1, 5])
    np.testing.assert_allclose(high, [NAN, 5, 9])
    np.testing.assert_allclose(high[1:] - mean[1:], y.std(0, ddof=1)[[1, 0]])


def test_a_distribution_counts_every_client_and_sorts_them():
    values = np.array([100, 100 + 1e-9, 0, 4.99, 5, 62, 61, NAN])
    rows = [Clients("a", values, A), Clients("b", np.arange(100), B)]
    left, right = drawn(distribution, [Spread("data", rows)]).axes
    shares, edges, _ = left.patches[0].get_data()
    counts = shares * 7 / 100
    assert counts.sum() == pytest.approx(7)
    assert counts[[0, 1, 12, 19]].tolist() == pytest.approx([2, 1, 2, 2])
    np.testing.assert_allclose(edges, np.arange(0, 101, 5))
    assert left.patches[1].get_data().values.tolist() == [5] * 20
    rank, accuracy = line(right, "a")
    assert rank == pytest.approx(100 * np.arange(1, 8) / 7)
    assert accuracy.tolist() == sorted(values[:7])


def test_a_front_has_means_spreads_and_the_parameter():
    x, y = np.array([1.0, 3]), np.array([10.0, 10])
    several = np.array([[1.0, 3], [5, 5], [8, NAN]])
    swept = [Swept("b", several, several + 1, ["0", "1", "9"], B), Swept("c", several, several, ["0", "1", "9"], C)]
    (axes,) = drawn(front, [Point("a", x, y, A)], swept, "x", "y").axes
    assert [v.tolist() for v in line(axes, "a")] == [[2], [10]]
    assert line(axes, "a")[0].tolist() == [2]
    low, high = bar_ends(axes, "a", 0)
    np.testing.assert_allclose([low, high], [[2 - np.sqrt(2)], [2 + np.sqrt(2)]])
    assert [v.tolist() for v in line(axes, "b")] == [[2, 5, 8], [3, 6, 9]]
    np.testing.assert_allclose(bar_ends(axes, "b", 0)[0], [2 - np.sqrt(2), 5, NAN])
    assert [(t.get_text(), t.xy) for t in axes.texts[:3]] == [("0", (2, 3)), ("1", (5, 6)), ("9", (8, 9))]
    colours = {c.get_label(): c.lines[0].get_color() for c in axes.containers}
    assert colours == {"a": A.colour, "b": B.colour, "c": C.colour}


def test_bars_are_stacked_to_the_counts():
    counts = np.array([[3, 0, 2], [1, 5, 0]])
    figure = drawn(bars, [("data", counts)])
    (axes,) = figure.axes
    heights = np.array([[p.get_height() for p in group] for group in axes.containers])
    bottoms = np.array([[p.get_y() for p in group] for group in axes.containers])
    assert heights.T.tolist() == counts.tolist()
    assert bottoms.T.tolist() == [[0, 3, 3], [0, 1, 6]]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["0", "1", "2"]
    assert len({p.get_facecolor() for p in drawn(bars, [("t", np.ones((1, 10)))]).axes[0].patches}) == 10


def test_the_sixty_largest_clients_are_drawn_in_the_order_of_their_numbers():
    counts = np.ones((100, 2), dtype=int)
    counts[40:] = 2
    (axes,) = drawn(bars, [("data", counts)]).axes
    assert "the 60 largest of 100" in axes.get_xlabel()
    assert [p.get_height() for p in axes.containers[0]] == [2] * 60
    assert [t.get_text() for t in axes.get_xticklabels()] == ["40", "50", "60", "70", "80", "90"]
    (axes,) = drawn(bars, [("data", counts[:60])]).axes
    assert axes.get_xlabel() == "client"


def test_a_matrix_has_one_scale_and_small_ones_their_values():
    small = np.array([[1.0, 0.25], [NAN, 0.5]])
    big = np.full((13, 13), 3.0)
    few, many, scale = drawn(matrix, [("few", small), ("many", big)]).axes
    assert [t.get_text() for t in few.texts] == ["1.0", ".25", "–", ".50"]
    assert [t.get_position() for t in few.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]  # x is the column
    assert not many.texts
    assert [i.get_clim() for i in (few.images[0], many.images[0])] == [(0, 1)] * 2
    assert scale.get_ylim() == (0, 1)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_runs_that_diverged_are_not_in_the_way(value, tmp_path):
    """An infinite mean is not drawn; the others are, without warnings."""
    broken = series()
    broken.y[1, 5:] = value
    for call in (curves, sweep):
        call(tmp_path / "p", "t", [panel(broken, series("b", B))])
    (axes,) = drawn(curves, [panel(broken)]).axes
    assert np.isinf(line(axes, "a")[1]).tolist() == [False] * 5 + [True] * 7
    assert np.isfinite(axes.get_ylim()).all()
    front(
        tmp_path / "p",
        "t",
        [Point("a", broken.y[:, 6], broken.y[:, 0], A), Point("b", np.ones(2), np.ones(2), B)],
        [],
        "x",
        "y",
    )


WRONG = {
    "y is a vector": lambda p: curves(p, "t", [panel(Series("a", np.arange(3), np.ones(3), A))]),
    "x too short": lambda p: curves(p, "t", [panel(series(), Series("a", np.arange(3), np.ones((2, 4)), A))]),
    "transposed": lambda p: sweep(p, "t", [panel(Series("a", np.arange(3), np.ones((3, 2)), A))]),
    "no seeds": lambda p: sweep(p, "t", [panel(Series("a", np.arange(3), np.ones((0, 3)), A))]),
    "x is missing": lambda p: sweep(p, "t", [panel(Series("a", np.array([1, NAN]), np.ones((1, 2)), A))]),
    "no panels": lambda p: curves(p, "t", []),
    "no series": lambda p: curves(p, "t", [panel()]),
    "not above 0": lambda p: curves(p, "t", [panel(Series("a", np.arange(2), np.zeros((1, 2)), A))], log_y=True),
    "a matrix of values": lambda p: distribution(p, "t", [Spread("d", [Clients("a", np.ones((2, 2)), A)])]),
    "a value of 101": lambda p: distribution(p, "t", [Spread("d", [Clients("a", np.array([101.0]), A)])]),
    "no methods": lambda p: distribution(p, "t", [Spread("d", [])]),
    "other seeds": lambda p: front(p, "t", [Point("a", np.ones(3), np.ones(2), A)], [], "x", "y"),
    "a vector to connect": lambda p: front(p, "t", [], [Swept("a", np.ones(3), np.ones(3), "123", A)], "x", "y"),
    "two of three values": lambda p: front(
        p, "t", [], [Swept("a", np.ones((3, 2)), np.ones((3, 2)), "12", A)], "x", "y"
    ),
    "counts of one client": lambda p: bars(p, "t", [("d", np.ones(3))]),
    "a count below 0": lambda p: bars(p, "t", [("d", -np.ones((2, 3)))]),
    "not square": lambda p: matrix(p, "t", [("d", np.ones((2, 3)))]),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_does_not_fit_is_said_and_nothing_written(fault, tmp_path):
    with pytest.raises(ValueError, match=r"^'.*': .*(shape|nothing|finite|logarithmic|0\.\.100)"):
        WRONG[fault](tmp_path / "new" / "p")
    assert not list(tmp_path.iterdir())
