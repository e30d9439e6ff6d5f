"""Messages about functions that a configuration names and that cannot be imported or called."""

import itertools

import pytest
from command_line import write_files

from fedbench.config.targets import Component, call, checked_options, function_of
from fedbench.core.errors import RequestError, arguments_of
from fedbench.core.options import HalfOpenUnit, Natural
from fedbench.core.validation import validate

_numbers = itertools.count()


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Return the message for a module of user code with this text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def message(text, name="make"):
        module = f"own_method_{next(_numbers)}"  # Python keeps what it imported
        (tmp_path / f"{module}.py").write_text(text)
        with pytest.raises(RequestError) as caught:
            function_of(f"{module}.{name}", "algo")
        return str(caught.value).replace(f"{tmp_path}/", "").replace(module, "mine")

    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nx = y", "raised NameError in mine.py, line 2: name 'y' is not defined"),
        (
            "from fedbench import nothing",
            "raised ImportError in mine.py, line 1: cannot import name 'nothing' from 'fedbench'",
        ),
        (
            "\nimport nowhere.near",
            "raised ModuleNotFoundError in mine.py, line 2: No module named 'nowhere'",
        ),
        ("def maker(): pass", "mine has no function make; did you mean maker?"),
        ("make = 3", "mine has no function make"),
        ("make(", "raised SyntaxError in mine.py, line 1: '(' was never closed"),
    ],
)
def test_an_error_in_user_code_is_reported_with_its_place(refused, text, message):
    assert refused(text).startswith(f"algo._target_=mine.make: {message}")


def test_a_foreign_function_that_does_not_fit_is_named_by_its_path():
    with pytest.raises(
        RequestError,
        match=r"^model._target_=textwrap.fill: fill needs text, .*; type \+model.text=...$",
    ):
        call(Component("textwrap.fill", {}), "model")
    with pytest.raises(
        RequestError,
        match=r"^model._target_=textwrap.dedent: unknown key model.txt; dedent has the keys text; ",
    ):
        call(Component("textwrap.dedent", {"txt": "a"}), "model")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"_target_: [1\n",
            "a config file or an interpolation cannot be read: while parsing a flow sequence in ",
        ),
        (b"\xff\xfe", "a config file or an interpolation cannot be read: "),
        (b"- a\n", "algo must be a section with keys, got ['a']"),
        (b"lr: 1\n", "algo._target_ must name a function as package.module.function, got null"),
    ],
)
def test_a_broken_config_file_is_a_wrong_request(refuse, tmp_path, content, message):
    write_files(tmp_path, {"own/algo/mine.yaml": ""})
    (tmp_path / "own/algo/mine.yaml").write_bytes(content)
    err = refuse("--config-dir", "own", "algo=mine", "data.clients=4", "rounds=1")
    assert message in err
    assert err.count("\n") == 1


def test_a_wrong_argument_is_named_by_its_full_key():
    """A function names its argument; the section is known where the configuration is."""
    with (
        pytest.raises(RequestError, match=r"^algo.server.beta must be < 1, got 2$"),
        arguments_of("algo.server"),
    ):
        validate("beta", 2, HalfOpenUnit)
    with (
        pytest.raises(RequestError, match=r"^data.seed must be >= 0, got -1$"),
        arguments_of("data.source"),
    ):
        validate("data.seed", -1, Natural)


def test_options_are_checked_from_the_signature_without_a_call():
    """Also those of an option that is a function itself."""
    given = ("local", "rounds", "clients")
    server = {"_target_": "fedbench.algorithms.fedavg.fedavg", "server_lr": 0.5}
    fedcorr = Component("fedbench.algorithms.fedcorr.fedcorr", {"server": server})
    with pytest.raises(RequestError, match=r"^algo.server.server_lr must be > 0, got 0$"):
        checked_options(
            Component(
                fedcorr.target,
                {"server": server | {"server_lr": 0}},
            ),
            "algo",
            given,
        )
    with pytest.raises(
        RequestError, match=r"^unknown key algo.server.lr; fedavg has the keys server_lr, weights"
    ):
        checked_options(
            Component(fedcorr.target, {"server": server | {"lr": 1}}),
            "algo",
            given,
        )

    function, options = checked_options(fedcorr, "algo", given)
    assert function.__name__ == "fedcorr"
    assert options == {}
    assert fedcorr.inner("algo")["server"].options == {"server_lr": 0.5}
