"""Colours of methods: far enough apart where a paper draws them together, also for colour-blind readers."""

from itertools import combinations

import numpy as np
from tools import ROOT

from fedbench.core.config_values import from_yaml
from fedbench.papers.registry import papers
from fedbench.reports.canvas import looks, method_look

COLOURS = from_yaml((ROOT / "fedbench/reports/assets/colours.yaml").read_text())
# linear RGB as it is seen without red and without green cones (Machado et al., 2009, severity 1)
SEEN = {
    "normal": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
# linear RGB to OKLab (Ottosson, 2020)
TO_LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
          [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
TO_LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
          [0.0259040371, 0.7827717662, -0.8086757660]]  # fmt: skip


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def distance(one, two, seen="normal"):
    """OKLab distance, times 100; black and white are 100 apart."""
    lab = [
        np.array(TO_LAB) @ np.cbrt(np.array(TO_LMS) @ (SEEN[seen] @ linear(c)).clip(0, 1))
        for c in (one, two)
    ]
    return 100 * float(np.linalg.norm(lab[0] - lab[1]))


def together():
    """Methods that a table or a figure of some paper shows together."""
    pairs = set()
    for paper in papers().values():
        for part in (*paper.tables.values(), *paper.figures.values()):
            algos = {paper.methods[row.algo].algo for row in part.rows}
            pairs |= set(combinations(sorted(algos), 2))
    return sorted(pairs)


def test_every_method_has_a_colour():
    assert set(COLOURS) == {path.stem for path in (ROOT / "conf/algo").glob("[a-z]*.yaml")}


def test_no_two_methods_look_alike():
    assert min(distance(a, b) for a, b in combinations(COLOURS.values(), 2)) > 8
    marks = [(method_look(a).dashes, method_look(a).marker) for a in COLOURS]
    assert len(set(marks)) == len(marks)


def test_methods_that_are_shown_together_can_be_told_apart_by_everybody():
    for a, b in together():
        one, two = COLOURS[a], COLOURS[b]
        assert distance(one, two) > 14, (a, b)
        assert all(distance(one, two, seen) > 7 for seen in SEEN), (a, b)


def test_every_colour_can_be_seen_on_white():
    for algo, colour in COLOURS.items():
        luminance = float(np.dot([0.2126, 0.7152, 0.0722], linear(colour)))
        assert 1.05 / (luminance + 0.05) > 2.5, algo


def test_a_method_that_is_not_part_of_fedbench_has_one_look_everywhere():
    assert method_look("median") == method_look("median") != method_look("trimmed_mean")
    given = looks({"FedAvg": "fedavg", "Median": "median"})
    assert given["Median"] == method_look("median")


def test_settings_of_one_method_alone_go_from_dark_to_light():
    given = list(looks({f"alpha={k}": "adafedadam" for k in range(8)}, "adafedadam").values())
    light = [float(np.dot([0.2126, 0.7152, 0.0722], linear(look.colour))) for look in given]
    assert light == sorted(light)
    assert len({look.colour for look in given}) == 8


def test_settings_among_other_methods_are_shades_of_their_method():
    lines = {"FedAvg": "fedavg", "q=0.1": "qfedavg", "q=1": "qfedavg", "q=5": "qfedavg"}
    given = looks(lines)
    assert given["FedAvg"] == method_look("fedavg")
    shades = [given[e].colour for e in list(lines)[1:]]
    assert shades[1] == method_look("qfedavg").colour
    assert len({look.colour for look in given.values()}) == 4
