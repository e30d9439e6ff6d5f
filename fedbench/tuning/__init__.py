"""Tuning: search spaces, trials and the choice of values. No code here is specific to a method."""
