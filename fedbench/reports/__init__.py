"""Reports, tables and figures as pure functions of the runs on disk."""
