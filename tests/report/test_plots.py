"""Pictures: the numbers in the axes, and the same bytes twice."""

from functools import partial

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

from fedbench.reports.canvas import STYLE, Look, draw, looks
from fedbench.reports.panels import Panel, Series
from fedbench.reports.plots import curves, means

NAN = np.nan
A = Look("#0072B2")
B = Look("#D55E00", "dashed", "s")
C = Look("#009E73", "dotted", "^")


def series(label="a", look=A, seeds=3, points=12):
    random = np.random.default_rng(len(label))
    x = np.arange(1, points + 1)
    return Series(label, x, random.random((seeds, points)), look)


def panel(*lines, title="data"):
    return Panel(title, lines, "round", "accuracy (%)")


def drawn(picture, *arguments, place=False, **options):
    """The figure that would be written; with everything in its place if wanted."""
    title = options.pop("title", "a title")
    with matplotlib.style.context(STYLE):
        figure = picture(title, *arguments, **options)
        if place:
            figure.draw_without_rendering()
    return figure


def axes_of(picture, *lines, **options):
    """The axes of a figure with one panel."""
    (axes,) = drawn(picture, [panel(*lines)], **options).axes
    return axes


def bars(axes, label):
    """The points with error bars with this label."""
    (container,) = [x for x in axes.containers if x.get_label() == label]
    return container


def curve(axes, label):
    """The data of the curve with this label."""
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line.get_data()


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def ends(container, direction):
    """Lower and upper ends of error bars along x (0) or y (1); NaN where there is none."""
    segments = container.lines[2][direction].get_segments()
    none = [NAN, NAN]
    return np.array([x[:, direction] if len(x) else none for x in segments]).T


def plane():
    random = np.random.default_rng(0)
    points = [random.random((3, 1)) for _ in range(2)]
    swept = [random.random((2, 3)) for _ in range(2)]
    return [
        Series("a", *points, A),
        Series("c", *swept, C, ("0", "0.1", "1")),
    ]


TWO = [panel(series(), series("b", B, seeds=1))]
EXAMPLES = {
    "curves": partial(curves, panels=TWO, log_y=True),
    "means": partial(means, panels=TWO),
    "plane": partial(means, panels=[panel(*plane())]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_data_give_the_same_bytes(name, tmp_path):
    """For all settings of the user, which stay as they were; the text of the SVG is text."""
    picture = partial(EXAMPLES[name], title="t")
    first = draw(tmp_path / "new" / "q=0.5", picture, reduced=True)
    assert [path.name for path in first] == ["q=0.5.png", "q=0.5.svg"]
    with matplotlib.rc_context({"font.size": 20, "savefig.dpi": 30, "lines.linewidth": 9}):
        again = draw(tmp_path / "other", picture, reduced=True)
        assert matplotlib.rcParams["font.size"] == 20
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    png, svg = (path.read_bytes() for path in first)
    assert png.startswith(b"\x89PNG")
    assert b"Software" not in png
    assert b">reduced setting</text>" in svg
    assert b"<dc:date>" not in svg


@pytest.mark.parametrize("name", EXAMPLES)
def test_reduced_is_said_outside_the_axes(name):
    figure = drawn(EXAMPLES[name], reduced=True, place=True)
    (label,) = [text for text in figure.texts if text.get_text() == "reduced setting"]
    box = label.get_window_extent()
    assert box.y0 >= max(axes.get_window_extent().y1 for axes in figure.axes)
    assert figure.bbox.x1 - box.x1 < 20
    assert figure.bbox.y1 - box.y1 < 20


def test_a_curve_is_the_mean_and_its_band_the_range():
    """Missing seeds are left out, points without any seed are not drawn, and one has no band."""
    y = np.array(
        [
            [1.0, 2, NAN, NAN, 4],
            [3.0, 6, 8, NAN, 0],
        ]
    )
    x = np.arange(5)
    axes = axes_of(
        curves,
        Series("a", x, y, A),
        Series("b", x, y[:1], B),
    )
    kept, mean = curve(axes, "a")
    assert kept.tolist() == [0, 1, 2, 4]
    assert mean.tolist() == [2, 4, 8, 2]
    assert curve(axes, "b")[0].tolist() == [0, 1, 4]
    (band,) = axes.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
    low = {
        (0, 1),
        (1, 2),
        (2, 8),
        (4, 0),
    }
    high = {
        (0, 3),
        (1, 6),
        (2, 8),
        (4, 4),
    }
    assert corners == low | high


def test_long_curves_are_thinned_evenly():
    long = series(points=1237)
    axes = axes_of(curves, long, series("b", B, points=400))
    x, mean = curve(axes, "a")
    assert len(x) == 400
    assert (x[0], x[-1]) == (1, 1237)
    assert set(np.diff(x)) == {3, 4}  # 1236 / 399
    np.testing.assert_allclose(
        mean,
        long.y.mean(0)[x - 1],
        rtol=1e-15,
    )
    assert curve(axes, "b")[0].tolist() == list(range(1, 401))


@pytest.mark.parametrize("picture", [curves, means])
def test_the_subject_is_drawn_last_and_thicker_and_keeps_its_place_in_the_legend(picture):
    names = ["AdaFed", "FedAvg", "TERM"]
    given = looks({name: name.lower() for name in names}, "adafed")
    figure = drawn(
        picture,
        [panel(*(series(name, look) for name, look in given.items()))],
    )
    (axes,) = figure.axes
    lines = {line.get_color(): line for line in axes.lines if len(line.get_xdata()) > 2}
    subject = lines.pop(given["AdaFed"].colour)
    assert len(lines) == 2
    assert subject.get_linewidth() > max(line.get_linewidth() for line in lines.values())
    assert subject.get_zorder() > max(line.get_zorder() for line in lines.values())
    assert legend(figure)[:3] == names


def test_bands_and_bars_are_explained():
    """One seed has neither band nor bar, hence nothing to explain."""
    for picture in (curves, means):
        figure = drawn(picture, [panel(series(seeds=1))])
        assert legend(figure) == ["a"]
    assert legend(
        drawn(
            means,
            [panel(series())],
        )
    ) == ["a", "bars: ± 1 STD over seeds"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_is_cut_off_or_small(name):
    """All text lies in the picture, also long titles and labels, and has 8 pt or more."""
    long = "words of a title and of a label that go on " * 3
    options = {"title": long, "reduced": True}
    if name != "plane":
        lines = [series(long), series("b", B)]
        options["panels"] = [
            Panel(
                long,
                lines,
                long[:80],
                long[:60],
            )
        ]
    with matplotlib.style.context(STYLE):
        figure = drawn(EXAMPLES[name], **options, place=True)
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text))
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height


def test_logarithmic_axes_have_plain_labels():
    y = np.geomspace(1e-4, 1, 9)[None]
    x = np.arange(9)
    axes = axes_of(curves, Series("a", x, y, A), log_y=True)
    assert axes.get_yscale() == "log"
    assert {"0.001", "0.1", "1"} <= {text.get_text() for text in axes.get_yticklabels()}
    nothing = axes_of(
        curves,
        Series("a", x, NAN * y, A),
        log_y=True,
    )
    assert nothing.get_yscale() == "linear"
    zero = Series(
        "a",
        np.arange(3),
        np.array([[4.0, 1, 0]]),
        A,
    )
    axes = axes_of(curves, zero, log_y=True)
    assert axes.get_ylim()[0] > 0
    assert curve(axes, "a")[1].tolist() == [4, 1, 0]


def test_means_have_error_bars_of_one_sample_std():
    """Values that no seed has are not drawn; one seed has no spread."""
    y = np.array(
        [
            [0.0, 1, 5, NAN],
            [NAN, 3, 7, NAN],
            [NAN, 5, 9, NAN],
        ]
    )
    axes = axes_of(
        means,
        Series(
            "a",
            np.array([0.01, 0.1, 1, 2]),
            y,
            A,
        ),
    )
    points = bars(axes, "a")
    x, mean = points.lines[0].get_data()
    assert x.tolist() == [0.01, 0.1, 1]
    assert mean.tolist() == [0, 3, 7]
    np.testing.assert_allclose(
        ends(points, -1),
        [[NAN, 1, 5], [NAN, 5, 9]],
    )


def test_points_in_a_plane_have_bars_in_both_directions_and_their_texts():
    several = np.array(
        [
            [1.0, 5, 8],
            [3, 5, NAN],
        ]
    )
    axes = axes_of(
        means,
        Series("b", several, several + 1, B, ("0", "1", "9")),
    )
    points = bars(axes, "b")
    line = points.lines[0]
    assert line.get_xydata().tolist() == [
        [2, 3],
        [5, 6],
        [8, 9],
    ]
    assert (
        line.get_color(),
        line.get_marker(),
    ) == (B.colour, B.marker)
    low, high = ends(points, 0)
    np.testing.assert_allclose(
        low,
        [2 - np.sqrt(2), 5, NAN],
    )
    np.testing.assert_allclose(
        high,
        [2 + np.sqrt(2), 5, NAN],
    )
    texts = {text.get_text(): text.xy for text in axes.texts}
    assert texts == {
        "0": (2, 3),
        "1": (5, 6),
        "9": (8, 9),
    }


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_runs_that_diverged_are_not_in_the_way(value, tmp_path):
    """An infinite mean is not drawn; the others are, without warnings."""
    broken = series()
    broken.y[1, 5:] = value
    for picture in (curves, means):
        draw(
            tmp_path / "p",
            picture,
            "t",
            [panel(broken, series("b", B))],
        )
    axes = axes_of(curves, broken)
    assert np.isinf(curve(axes, "a")[1]).tolist() == [False] * 5 + [True] * 7
    assert np.isfinite(axes.get_ylim()).all()
    points = Series(
        "a",
        broken.y[:, 5:8],
        broken.y[:, :3],
        A,
    )
    draw(tmp_path / "p", means, "t", [panel(points)])
