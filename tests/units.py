"""Units of runs that are made up: every seed draws its own data unless a split is given."""

from fedbench.analysis.departures import Unit


def unit(seed, split=None):
    return Unit(seed if split is None else split, seed)


def by_unit(values, split=None):
    """Values by seed (a list has seeds 0, 1, ...), or by unit already, by unit."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    return {s if isinstance(s, Unit) else unit(s, split): v for s, v in pairs}


def diverged(*seeds):
    """Runs of these seeds that diverged, as a row lists runs that do not count."""
    return tuple((unit(seed), "diverged") for seed in seeds)
