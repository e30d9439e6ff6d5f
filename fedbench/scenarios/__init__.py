"""Scenarios around a method: availability, attacks and defences, privacy, compression."""
