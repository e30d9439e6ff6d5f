"""Conversion of overrides and YAML into a checked configuration and its identity."""
