"""Simulation of a method on a data set; it writes no files and prints nothing."""
