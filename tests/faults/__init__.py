"""Faults on purpose: kills, signals, full disks, damage, clocks. ``python -m faults`` from tests/, or make test-faults.

Each suite does harm to small runs, asks for them again, and compares every file with those of a run left in peace.
"""
