"""The vocabulary of all other packages.

Types, the record of a method, optimizers, randomness, validation and files.
"""
