"""One file per method: a function from hyperparameters to an ``Algorithm``."""
