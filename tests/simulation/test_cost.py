"""What the methods cost is what ALGORITHMS' table says of them: messages in multiples of the model, state, probes."""

import pytest
from tools import ALGORITHMS, ROOT, make, stages_of

from fedbench.runs.build_method import cost_of
from fedbench.simulation.cost import Cost, cost

# down, up, first exchange, state, gradients per step, probes
PLAIN = (1, 1, 0, 0, 1, ())
EXPECTED = {
    **dict.fromkeys(ALGORITHMS, PLAIN),
    "scaffold": (2, 2, 0, 1, 1, ()),
    **dict.fromkeys(("qfedavg", "term", "afl", "adafed"), (1, 1, 0, 0, 1, ("loss",))),
    "ditto": (1, 1, 0, 1, 2, ()),
    "fedfa": (1, 1, 0, 0, 1, ("accuracy_after",)),
    "adafedadam": (1, 1, 0, 0, 1, ("grad", "loss")),
    "naive_adaptive": (1, 1, 0, 1, 1, ()),
    "local_adam": (1, 1, 0, 2, 1, ()),
    "fedcada": (3, 3, 0, 0, 1, ()),
    "fafed": (3, 3, 2, 1, 2, ()),
    "stem": (2, 2, 2, 1, 2, ()),
    "fedcorr": (1, 1, 0, 0, 2, ()),
    **dict.fromkeys(("fedfv", "gifair", "fedmdfg", "drfa"), (1, 1, 0, 0, 1, ("loss",))),
    "fedheal": (1, 1, 0, 1, 1, ()),
    "feddyn": (1, 1, 0, 1, 1, ()),
    "fedcm": (2, 1, 0, 0, 1, ()),
    "mimelite": (2, 2, 0, 0, 1, ("grad",)),
    "fedsam": (1, 1, 0, 0, 2, ()),
    "mofedsam": (2, 1, 0, 0, 2, ()),
    "fedspeed": (1, 1, 0, 1, 2, ()),
    "pfedme": (1, 1, 0, 1, 5, ()),
    "apfl": (1, 1, 0, 1, 2, ()),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_cost(name):
    assert cost(stages_of(make(name), 9, 3)) == Cost(*EXPECTED[name])


def test_scaffold_with_option_1_probes_the_gradient():
    assert cost(make("scaffold", option=1)) == Cost(2, 2, 0, 1, 1, ("grad",))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("fedmdfg", {"step": "search"}, (2, 1, 0, 0, 1, ("loss",))),  # the direction goes down, then numbers
        ("fedmdfg", {"source": "gradient"}, (1, 1, 0, 0, 0, ("grad", "loss"))),
        ("drfa", {"snapshot": "random"}, (2, 2, 0, 0, 1, ())),
        ("drfa", {"snapshot": 1}, (2, 2, 0, 0, 1, ())),
        ("drfa", {"snapshot_weights": "uniform"}, (2, 1, 0, 0, 1, ())),
        ("drfa", {"snapshot": "start"}, (1, 1, 0, 0, 1, ("loss",))),
        ("gifair", {"form": "local"}, (1, 1, 0, 0, 1, ("loss",))),
        ("mimelite", {"base": "adam"}, (3, 2, 0, 0, 1, ("grad",))),
        ("apfl", {"adaptive": True}, (1, 1, 0, 1, 3, ())),
    ],
)
def test_cost_of_other_forms(name, options, expected):
    assert cost(make(name, **options)) == Cost(*expected)


def test_as_text():
    conf = ROOT / "conf"
    assert cost_of(conf / "algo" / "fafed.yaml") == ("3/3, first 1/1, state 1, gradients 2", "")
    assert cost_of(conf / "algo" / "fedcorr_adafed.yaml") == ("1/1, gradients 2", "loss")
