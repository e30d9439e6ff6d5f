"""Search spaces: where they come from, what their values are, and what is refused."""

import pytest
from command_line import write_files
from tools import CONF

from fedbench.config.compose import compose_run
from fedbench.config.overrides import as_value, options, parse_overrides
from fedbench.core.errors import RequestError
from fedbench.tuning.space import Axis, search_space, weight_overrides

LR = Axis("local.lr", low=1e-4, high=1.0, log=True)


def space(algo, *typed, config_dir=None):
    return search_space(algo, config_dir, parse_overrides(typed))


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("algo", options("algo"))
def test_every_method_has_a_space_all_of_whose_values_it_takes(algo, end):
    axes = space(algo)
    assert axes
    values = [f"{axis.key}={as_value(axis.ends[end])}" for axis in axes]
    config = compose_run([f"algo={algo}", *values])
    for axis in axes:
        section, name = axis.key.split(".")
        assert config.tree[section][name] == axis.ends[end]


def test_the_client_learning_rate_is_shared_by_all_methods_that_have_one():
    without = {a for a in options("algo") if LR not in space(a)}
    assert without == {"fedsps"}


@pytest.mark.parametrize(
    "path",
    sorted((CONF / "tune").glob("*.yaml")),
    ids=lambda p: p.stem,
)
def test_every_axis_says_where_its_values_come_from(path):
    for line in path.read_text().splitlines():
        if line.startswith(("algo.", "local.")):
            assert " # " in line, line


def texts(*args, **more):
    return [axis.text for axis in space(*args, **more)]


LR_TEXT = "local.lr=tag(log,interval(0.0001,1))"
TYPED = [
    "local.lr=interval(0.1,0.2)",
    "algo.mu=tag(log,interval(0.01,1))",
    "local.epochs=1,2",
]


@pytest.mark.parametrize(
    ("typed", "axes"),
    [
        ([], [LR_TEXT, "algo.mu=0.001,0.01,0.1,0.5,1"]),
        (["algo.mu=0.1"], [LR_TEXT]),
        (["algo={mu: 0.1}"], [LR_TEXT]),
        (TYPED, TYPED),
    ],
)
def test_an_override_replaces_or_fixes_an_axis(typed, axes):
    assert texts("fedprox", *typed) == axes


@pytest.mark.parametrize("algo", options("algo"))
def test_the_text_of_a_space_makes_the_space_again(algo):
    assert texts(algo, *texts(algo)) == texts(algo)


def test_values_of_a_range_have_three_digits_and_stay_inside():
    assert [LR.value(x) for x in (1e-4, 0.0123456, 1.0)] == [1e-4, 0.0123, 1.0]
    assert Axis("algo.x", low=0.12345, high=0.5).value(0.12345) == 0.12345
    grid = Axis("algo.mu", grid=(1, "a", None, 4))
    assert [grid.value(place) for place in range(4)] == [1, "a", None, 4]


GRID = Axis("algo.mu", grid=(0.1, 1, 0.5))


@pytest.mark.parametrize(
    ("axis", "value", "edge"),
    [
        (LR, 10 ** (-4 + 4 * 0.049), "lower"),  # 5 % of four orders of magnitude
        (LR, 10 ** (-4 + 4 * 0.051), None),
        (LR, 0.99, "upper"),
        (GRID, 0.1, "lower"),
        (GRID, 1, "upper"),
        (GRID, 0.5, None),
        (Axis("algo.mu", grid=(0.1, 0.9)), 0.9, None),  # both are ends
        (Axis("algo.adjust", grid=("plus", "sin", "sqrt")), "plus", None),
    ],
)
def test_the_edge_of_an_axis(axis, value, edge):
    assert axis.edge(value) == edge


def test_a_method_of_ones_own_has_its_space_in_its_own_tree(tmp_path):
    with pytest.raises(RequestError, match="algo=mine has no search space"):
        space("mine")
    write_files(tmp_path, {"tune/mine.yaml": "algo.x: interval(0,2)\nlocal.momentum: 0,0.9\n"})
    own = ["algo.x=interval(0,2)", "local.momentum=0,0.9"]
    assert texts("mine", config_dir=tmp_path) == [LR_TEXT, *own]
    # or on the command line
    assert texts("mine", "algo.x=1,2") == [LR_TEXT, "algo.x=1,2"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("rounds: 1,2", "type one value of rounds"),
        ("algo.x: tag(log,interval(0,1))", "lower bound must be > 0"),
        ("algo.x: interval(1,0.1)", "upper bound must be > 1"),
        ("algo.x: '1,2,'", "cannot be read as KEY=VALUE"),
        ("- algo.x", "must be a mapping"),
        ("algo.x: [", "cannot be read as YAML"),
        ("algo.x: [0.5, 0.9]", r"algo\.x=\[0\.5, 0\.9\] is no axis; write several values, such as"),
        ("algo.x: 0.5", "tune/mine.yaml: algo.x=0.5 is no axis"),
    ],
)
def test_a_malformed_space_is_refused(tmp_path, content, text):
    write_files(tmp_path, {"tune/mine.yaml": content})
    with pytest.raises(RequestError, match=text):
        space("mine", config_dir=tmp_path)


def test_null_leaves_a_key_out_of_the_space(tmp_path):
    write_files(tmp_path, {"tune/mine.yaml": "local.lr: null\nalgo.x: 1,2\n"})
    assert texts("mine", config_dir=tmp_path) == ["algo.x=1,2"]


def test_weights_are_set_where_a_method_has_a_choice():
    values = {"algo.weights": "size", "algo.prior": "uniform", "algo.mu": 0.1}
    both = ["algo.weights=uniform", "algo.prior=uniform"]
    assert weight_overrides(values, "uniform") == both
    assert weight_overrides(values, None) == []
    assert weight_overrides({"algo.prior": [0.5, 0.5], "algo.mu": 1}, "size") == []


def test_what_is_no_key_of_a_method_has_one_value():
    with pytest.raises(RequestError, match="type one value of participation"):
        space("fedavg", "participation=0.1,0.5")
