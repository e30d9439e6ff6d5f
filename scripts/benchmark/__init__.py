"""The page of a benchmark: finished comparisons of the same methods on several settings."""
