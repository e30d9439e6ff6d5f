"""Messages about functions that a configuration names and that cannot be imported or called."""

import importlib
import itertools

import pytest

from fedbench.config import names
from fedbench.config.targets import Component, call, function_of
from fedbench.core.errors import RequestError, arguments_of, integer, number

_numbers = itertools.count()


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Return the message for a module of user code with this text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def message(text, name="make"):
        module = f"own_method_{next(_numbers)}"  # Python keeps what it imported
        monkeypatch.setenv("FEDBENCH_TRUST", module)
        (tmp_path / f"{module}.py").write_text(text)
        with pytest.raises(RequestError) as caught:
            function_of(f"{module}.{name}", "algo")
        return str(caught.value).replace(f"{tmp_path}/", "").replace(module, "mine")

    return message


@pytest.mark.parametrize(
    ("old", "present"),
    [
        ("from fedbench.algorithm import Algorithm", "from fedbench import Algorithm, Stage, descent, server_descent"),
        ("from fedbench.optim import sgd", "from fedbench.core.optim import ..."),
        ("from fedbench.types import State", "from fedbench.core.types import ..."),
        ("import fedbench.randomness", "from fedbench.core.randomness import ..."),
        ("from fedbench.errors import whole", "from fedbench.core.errors import ..."),
        ("from fedbench.data.partition import iid", "from fedbench.data.partitions.basic import ..."),
    ],
)
def test_a_module_that_has_moved_is_named_with_its_present_import(refused, old, present):
    module = old.split()[1]
    message = refused(f"import torch\n{old}\n")
    assert message == f"algo._target_=mine.make: mine.py, line 2: {module} has moved; type: {present}"


def test_a_function_with_another_name_is_named():
    """Also where the module is the present one."""
    assert names.moved_import("fedbench.core.errors", "whole") == "from fedbench.core.errors import integer"
    assert names.moved_import("fedbench.core.errors", "nothing") is None
    assert names.moved_import("fedbench.core.errors") is None


def test_every_row_of_the_table_of_imports_leads_to_what_exists():
    for old, today in names.IMPORTS.items():
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(old)
        importlib.import_module(today)
    for (module, old), today in names.RENAMED.items():
        found = importlib.import_module(module)
        assert hasattr(found, today)
        assert not hasattr(found, old)
    exec(names.moved_import("fedbench.algorithm"), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from fedbench.core.errors import flag",
            "flag of fedbench.core.errors has another name; type: from fedbench.",
        ),
        ("\nx = y", "algo._target_=mine.make: mine.py, line 2: NameError: name 'y' is not defined"),
        ("from fedbench import nothing", "mine.py, line 1: ImportError: cannot import name 'nothing' from 'fedbench'"),
        ("import nowhere", "algo needs the package nowhere, which is not installed"),
        ("import nowhere.near", "algo needs the package nowhere, which is not installed"),
        ("def maker(): pass", "algo._target_=mine.make: mine has no function make; did you mean maker?"),
        ("make = 3", "algo._target_=mine.make: mine has no function make"),
        ("make(", "mine.py is not valid Python: '(' was never closed (mine.py, line 1)"),
    ],
)
def test_an_error_in_user_code_is_reported_with_its_place(refused, text, message):
    assert message in refused(text)


def test_a_foreign_function_that_does_not_fit_is_named_by_its_path(monkeypatch):
    monkeypatch.setenv("FEDBENCH_TRUST", "textwrap")
    with pytest.raises(
        RequestError, match=r"^model._target_=textwrap.fill: fill needs text, .*; type \+model.text=...$"
    ):
        call(Component("textwrap.fill", {}), "model")
    with pytest.raises(
        RequestError, match=r"^model._target_=textwrap.dedent: unknown key model.txt; dedent has the keys text; d"
    ):
        call(Component("textwrap.dedent", {"txt": "a"}), "model")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"_target_: [1\n", "a config file is not valid YAML: while parsing a flow sequence in "),
        (b"\xff\xfe", "is not text in UTF-8: "),
        (b"- a\n", "algo must be a section with keys, got ['a']"),
        (b"lr: 1\n", "algo._target_ must name a function as package.module.function, got null"),
    ],
)
def test_a_broken_config_file_is_a_wrong_request(fed, tmp_path, content, message):
    (tmp_path / "own/algo").mkdir(parents=True)
    (tmp_path / "own/algo/mine.yaml").write_bytes(content)
    status, _, err = fed("--config-dir", "own", "algo=mine", "data.clients=4", "rounds=1")
    assert status == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_wrong_argument_is_named_by_its_full_key():
    """A function names its argument; the section is known where the configuration is."""
    with (
        pytest.raises(RequestError, match=r"^algo.server.beta must be >= 0 and < 1, got 2$"),
        arguments_of("algo.server"),
    ):
        number("beta", 2, at_least=0, below=1)
    with pytest.raises(RequestError, match=r"^data.seed must be an integer >= 0, got -1$"), arguments_of("data.source"):
        integer("data.seed", -1)
