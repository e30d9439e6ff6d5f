"""The vocabulary of all other rooms: types, the record of a method, optimizers, randomness, validation, errors, files."""
