"""A file per word of the command line."""
