"""What everything else speaks in: types, the record of a method, optimizers, randomness, errors."""
