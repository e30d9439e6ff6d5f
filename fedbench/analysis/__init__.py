"""Values computed from records of runs: statistics, comparisons and verdicts."""
