"""Reasons for which no part of the model can be personal (``Algorithm.whole``)."""

BLENDS = "blends a vector of the server into every direction"
MOMENTS = "keeps moments, which would need a part of their own"
PERSONAL = "has personal models already"
