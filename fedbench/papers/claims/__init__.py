"""Checks that a single claim needs: a module per paper with a function per claim, named after the claim's id.

A function takes the paper and the runs and returns the comparisons that must all be significant; the claim's check is
``{kind: function}``. Checks that several claims share are kinds of their own (``fedbench.papers.checks``).
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from fedbench.analysis.claims import NO_FUNCTIONS, Functions


def functions(paper: str) -> Functions:
    """Return the functions of a paper, by the id of the claim.

    Args:
        paper: Id of the paper.
    """
    if find_spec(f"{__name__}.{paper}") is None:
        return NO_FUNCTIONS
    module = import_module(f"{__name__}.{paper}")
    return {
        name: f
        for name, f in vars(module).items()
        if getattr(f, "__module__", "") == module.__name__ and name[0] != "_"
    }
