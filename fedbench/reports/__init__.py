"""Tables as pure functions of the runs on disk."""
