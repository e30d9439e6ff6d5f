"""Claims of papers: the verdict on each, and the checks that a single claim needs.

A module named after a paper has a function per claim with a check of its own. Its name begins with
the claim's id; it takes the evidence, which is the paper and the runs, and yields the comparisons
that must all be significant. Checks that several claims share are kinds of their own
(``fedbench.papers.checks``).
"""
