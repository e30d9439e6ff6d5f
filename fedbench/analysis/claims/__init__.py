"""Claims of papers: their verdicts, and checks specific to a single claim.

A module named after a paper contains a function for each claim with a specific check. The
function's name begins with the claim's id. The function takes the evidence (the paper and the runs)
and yields the comparisons, all of which must be significant. Checks shared by several claims are
defined as kinds in ``fedbench.papers.checks``.
"""
