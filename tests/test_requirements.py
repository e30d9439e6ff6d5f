"""The files in requirements/, which `make lock` writes, fit pyproject.toml and each other."""

import re
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


def text_of(name):
    return (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")


def locked(name):
    """Return the requirements of a file by name, each with its hashes."""
    pins = {}
    for line in text_of(name).replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            text, *hashes = re.split(r"\s+--hash=", line.strip())
            pin = Requirement(text)
            pins[canonicalize_name(pin.name)] = (pin, set(hashes))
    return pins


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("build", PYPROJECT["dependency-groups"]["build"]),
        ("base", PYPROJECT["project"]["dependencies"]),
        ("dev", PYPROJECT["project"]["dependencies"] + EXTRAS["dev"] + EXTRAS["docs"]),
    ],
)
def test_a_lock_holds_versions_that_the_project_accepts(name, wanted):
    pins = locked(name) | locked("torch")
    for requirement in map(Requirement, wanted):
        package = canonicalize_name(requirement.name)
        assert package in pins, f"{requirement} is not locked: run make lock"
        (exact,) = pins[package][0].specifier
        assert exact.operator == "=="
        assert exact.version in requirement.specifier, (
            f"{requirement} is locked as {exact}: run make lock"
        )


@pytest.mark.parametrize("name", ["build", "base", "dev"])
def test_every_locked_package_has_hashes_and_one_version(name):
    development = locked("dev")
    for package, (pin, hashes) in locked(name).items():
        assert hashes, package
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", value) for value in hashes), package
        same, same_hashes = development[package]
        assert (pin.specifier, hashes) == (same.specifier, same_hashes), package


@pytest.mark.parametrize("name", ["base", "dev"])
def test_what_a_locked_package_needs_is_locked_too(name):
    pins = locked(name) | locked("torch")
    here = [
        p for p, (pin, _) in locked(name).items() if pin.marker is None or pin.marker.evaluate()
    ]
    needed = [(p, Requirement(text)) for p in here for text in distribution(p).requires or []]
    assert needed
    for package, need in needed:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            assert canonicalize_name(need.name) in pins, f"{package} needs {need}: run make lock"


@pytest.mark.parametrize("name", ["build", "base", "dev", "torch"])
def test_a_lock_names_no_index(name):
    assert "://" not in text_of(name)
