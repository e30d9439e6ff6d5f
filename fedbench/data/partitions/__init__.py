"""Partitions: rules that assign examples to clients."""
