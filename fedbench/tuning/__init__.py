"""Tuning: search spaces, trials and what is chosen. Nothing here runs anything or knows a method by name."""
