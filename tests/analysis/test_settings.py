"""The keys that distinguish settings are those that differ between comparable settings."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fedbench.analysis.settings import distinguishing
from fedbench.runs.run import Run


def section(**options):
    """A section of a configuration that has some of its options, or none."""
    return st.fixed_dictionaries({}, optional=options)


configs = st.fixed_dictionaries(
    {
        "rounds": st.sampled_from([5, 5.0, 6]),
        "algo": section(beta=st.sampled_from([0.9, 0.99])),
    },
    optional={
        "local": section(
            lr=st.sampled_from([0.1, 0.2]),
            steps=st.just(1),
        ),
        "data": section(clients=st.sampled_from([10, 20])),
    },
)
settings = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), configs)


def run_of(number, algo, data, config):
    meta = {
        "algo": algo,
        "data": data,
        "model": "linear",
        "hash": f"{number}",
        "seed": 0,
    }
    return Run(Path(meta["hash"]), {**config, "seed": 0}, meta)


def key_of(run):
    return run.meta["algo"], run.meta["hash"]


def comparable(runs, run, key):
    """The runs whose key means the same: options of methods and of data are those of one choice."""
    choice = key.split(".")[0]
    if choice not in ("algo", "data"):
        return runs
    return [other for other in runs if other.meta[choice] == run.meta[choice]]


@given(st.lists(settings, min_size=1, max_size=6))
def test_keys_that_distinguish(drawn):
    runs = [run_of(number, *setting) for number, setting in enumerate(drawn)]
    found = distinguishing({key_of(run): [run] for run in runs})
    several_data = len({run.meta["data"] for run in runs}) > 1
    for run in runs:
        keys = found[key_of(run)]
        assert ("data" in keys) == several_data
        for key, value in run.flat.items():
            values = [
                other.flat.get(key, "absent")
                for other in comparable(
                    runs,
                    run,
                    key,
                )
            ]
            assert (key in keys) == any(other != value for other in values)
