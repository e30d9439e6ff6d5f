"""The viewer of ``fedbench view``: pages about the runs of a directory, served on this machine."""
