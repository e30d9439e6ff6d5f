"""The lookup of claims' functions."""

from fedbench.papers.claims import functions


def test_a_paper_without_functions():
    assert not functions("no_such_paper")
