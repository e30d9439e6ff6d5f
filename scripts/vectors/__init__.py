"""Test vectors of federated methods: plain references in NumPy, and the files that they write.

Nothing here imports fedbench. A method is a class that is written from its definition
(docs/algorithms.md), one client after another, in float64.
"""
