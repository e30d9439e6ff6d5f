"""The vocabulary of all other packages: types, the record of a method, optimizers, randomness, validation, files."""
