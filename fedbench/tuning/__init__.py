"""Tuning: search spaces, trials and the choice of values. No method is known by name here."""
