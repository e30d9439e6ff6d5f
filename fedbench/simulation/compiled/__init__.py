"""Compiled code for local phases and measurements."""
