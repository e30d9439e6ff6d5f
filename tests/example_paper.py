"""An example of a paper, with any sections."""

from fedbench.papers.schema import Head, Paper

SECTIONS = ("gaps", "metrics", "methods", "setups", "tables", "figures", "claims", "contradictions")


def example_paper(**sections):
    """A paper with the given sections; the others are empty."""
    head = Head("made_up", "Made up", "", (), 2024, "")
    return Paper(head, **{**{name: {} for name in SECTIONS}, **sections})
