"""From records to values: statistics, comparisons, verdicts."""
