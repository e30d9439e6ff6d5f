"""Execution of runs: from a configuration to the files of a run."""
