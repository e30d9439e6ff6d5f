"""From a task, a data set and a method to snapshots and measurements: no files, no printing."""
