"""From a configuration to the files of a run."""
