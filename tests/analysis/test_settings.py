"""The keys that distinguish settings are those that differ between settings that can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedbench.analysis.settings import distinguishing
from fedbench.runs.run import Run

_ABSENT = object()
_SETTINGS = st.fixed_dictionaries(
    {"rounds": st.sampled_from([5, 5.0, 6])},
    optional={
        "local": st.fixed_dictionaries(
            {}, optional={"lr": st.sampled_from([0.1, 0.2]), "steps": st.just(1)}
        )
    },
)
_CONFIGS = st.fixed_dictionaries(
    {"algo": st.fixed_dictionaries({}, optional={"beta": st.sampled_from([0.9, 0.99])})},
    optional={"data": st.fixed_dictionaries({}, optional={"clients": st.sampled_from([10, 20])})},
)


def _run(number: int, algo: str, data: str, config: dict[str, Any]) -> Run:
    meta = {"algo": algo, "data": data, "model": "linear", "hash": f"{number}", "seed": 0}
    return Run(Path(str(number)), {**config, "seed": 0}, meta)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), _SETTINGS, _CONFIGS),
        min_size=1,
        max_size=6,
    )
)
def test_keys_that_distinguish(
    drawn: list[tuple[str, str, dict[str, Any], dict[str, Any]]],
) -> None:
    runs = [
        _run(i, algo, data, {**common, **own}) for i, (algo, data, common, own) in enumerate(drawn)
    ]
    found = distinguishing({(r.meta["algo"], r.meta["hash"]): [r] for r in runs})
    for run in runs:
        keys = found[run.meta["algo"], run.meta["hash"]]
        flat = {k: v for k, v in run.flat.items() if k != "seed"}
        for name, value in flat.items():
            section = name.split(".")[0]
            peers = [
                r
                for r in runs
                if section not in ("algo", "data") or r.meta[section] == run.meta[section]
            ]
            assert (name in keys) == any(peer.flat.get(name, _ABSENT) != value for peer in peers)
        assert ("data" in keys) == (len({r.meta["data"] for r in runs}) > 1)
