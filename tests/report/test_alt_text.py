"""Alternative texts: what is seen in a picture, worked out by hand."""

import numpy as np

from fedbench.report.alt_text import of_clients, of_curves, of_front, of_labels, of_matrices, of_sweep
from fedbench.report.looks import Look
from fedbench.report.plots import Clients, Panel, Point, Series, Spread, Swept

LOOK = Look("#000000")
NAN = np.nan


def panel(*ends, note=""):
    rows = [Series(name, np.arange(3), np.array([[0.0, 1, end]]), LOOK) for name, end in ends]
    return Panel("CIFAR-10", rows, "round", "mean accuracy (%)", note)


def test_curves_are_ranked_by_their_means_at_the_end():
    assert of_curves([panel(("A", 50.0), ("B", 70.0), ("C", 60.0))]) == (
        "CIFAR-10, mean accuracy (%). Lines over the rounds; at the end: B 70 (highest), C 60, A 50 (lowest)."
    )
    two = Series("A", np.arange(3), np.array([[1.0, 2, 3], [3.0, 6, NAN]]), LOOK)
    assert "at the end: A 3." in of_curves([Panel("", [two], "round", "loss")])


def test_ends_that_are_level_are_neither_highest_nor_lowest():
    text = of_curves([panel(("A", 1.0), ("B", 1.0))])
    assert "A 1, B 1." in text
    assert "highest" not in text


def test_what_is_not_drawn_is_part_of_the_text():
    assert of_curves([panel(("A", 1.0), note="not drawn: B (diverged)")]).endswith(" Not drawn: B (diverged).")


def test_of_many_lines_the_first_and_the_last_are_named():
    text = of_curves([panel(*((f"m{k}", float(k)) for k in range(12)))])
    assert "m11 11 (highest), m10 10" in text
    assert text.endswith("4 more, m0 0 (lowest).")


def test_a_sweep_names_its_extremes():
    series = Series("FedFa", np.array([0.0, 0.5, 1]), np.array([[10.0, 30, NAN], [20.0, 40, 5]]), LOOK)
    text = of_sweep([Panel("MNIST", [series], "alpha", "mean accuracy (%)")])
    assert text == "MNIST, mean accuracy (%), FedFa over alpha: highest at alpha 0.5 with 35, lowest at alpha 1 with 5."


def test_clients_are_described_by_two_quantiles():
    rows = [Clients("A", np.arange(0.0, 101, 10), LOOK), Clients("B", np.full(5, 60.0), LOOK)]
    text = of_clients([Spread("MNIST", rows)])
    assert text.endswith("stay at or below: B 60 % and 60 %, A 10 % and 50 %.")


def test_a_front_names_places():
    swept = Swept("C over alpha", np.array([[1.0], [2.0]]), np.array([[5.0], [4.0]]), ["0", "9"], LOOK)
    text = of_front([Point("A", np.array([1.0, 3]), np.array([10.0, 10]), LOOK)], [swept], "error", "spread")
    assert text == (
        "Methods by error (across) and spread (upwards): A at 2 and 10, C over alpha from 0 at 1 and 5 to 9 at 2 and 4."
    )


def test_labels_and_matrices():
    assert of_labels([("X", np.array([[3, 0], [1, 1]]))]) == (
        "X: examples of 2 classes at 2 clients; a client has 1.5 classes on average."
    )
    text = of_matrices([("Adam", np.array([[1.0, 0.2], [0.6, 1.0]]))])
    assert text.endswith("off the diagonal from 0.20 to 0.60.")
