"""Which source files belong to a module of the user's own."""

import sys

import pytest
import yaml

from fedbench.config.user_code import source_files, user_code_from, versions


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write files, by name and content, into a directory on Python's path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**files):
        for name, text in files.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_imports_are_followed_without_importing(project):
    project(
        a="import os, torch\nimport b\nraise SystemExit('imported')",
        b="def f():\n    from c import *\n'\\d'",  # wherever it is; with a warning
        c="import a\nimport fedbench.core.optim\n",  # in a circle
        d="",
    )
    assert list(source_files("a")) == ["a.py", "b.py", "c.py"]
    assert "a" not in sys.modules


def test_packages_and_relative_imports(project):
    project(
        outside="",
        pkg__sub__method="from . import near\nfrom ..other import x\nfrom .. import more\nimport outside",
        pkg__sub__near="",
        pkg__other="",
        pkg__more="",
        pkg__apart="",
    )
    expected = ["outside.py", "pkg/more.py", "pkg/other.py", "pkg/sub/method.py", "pkg/sub/near.py"]
    assert list(source_files("pkg.sub.method")) == expected


def test_the_packages_around_a_module_count(tmp_path, project):
    project(pkg__method="")
    (tmp_path / "pkg/__init__.py").write_text("from . import late\n")
    (tmp_path / "pkg/late.py").write_text("")
    assert list(source_files("pkg.method")) == ["pkg/__init__.py", "pkg/late.py", "pkg/method.py"]


def test_imports_of_installed_packages_are_not_followed():
    assert list(source_files("yaml.loader")) == ["yaml/__init__.py", "yaml/loader.py"]
    assert list(source_files("textwrap")) == ["textwrap.py"]
    assert source_files("sys") == {}  # built into Python


def test_what_is_installed_goes_by_its_version(project):
    project(yaml_of_mine="")
    assert versions(source_files("yaml.loader").values(), "yaml.loader") == {"PyYAML": yaml.__version__}
    assert versions(source_files("textwrap").values(), "textwrap") == {}  # part of Python
    assert versions(source_files("yaml_of_mine").values(), "yaml_of_mine") == {}


def test_a_namespace_package_may_have_several_parts(tmp_path, monkeypatch):
    for part in ("one", "two"):
        (tmp_path / part / "space").mkdir(parents=True)
        (tmp_path / part / "space" / f"{part}.py").write_text("")
        monkeypatch.syspath_prepend(str(tmp_path / part))
    assert source_files("space.one") == {"space/one.py": tmp_path / "one/space/one.py"}
    assert source_files("space.two") == {"space/two.py": tmp_path / "two/space/two.py"}


@pytest.mark.parametrize(("module", "missing"), [("nowhere", "nowhere"), ("pkg.no.more", "pkg.no"), ("a.b", "a.b")])
def test_a_missing_module_is_named(project, module, missing):
    project(pkg__method="", a="")
    with pytest.raises(ModuleNotFoundError) as caught:
        source_files(module)
    assert caught.value.name == missing


def test_the_first_directory_on_the_path_counts_whatever_was_imported_before(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "twice_there.py").write_text(f"name = {name!r}")
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    __import__("twice_there")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    assert source_files("twice_there") == {"twice_there.py": tmp_path / "two/twice_there.py"}
    del sys.modules["twice_there"]


def test_a_file_of_the_user_never_takes_the_place_of_an_installed_module(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('executed')")
    (tmp_path / "yaml.py").write_text("raise SystemExit('executed')")
    before, kept = list(sys.path), {name: sys.modules.pop(name) for name in ("json", "yaml")}
    try:
        with user_code_from(tmp_path):
            import json

            import yaml

            assert json.loads("[1]") == yaml.safe_load("[1]")
            assert sys.path == [*before, str(tmp_path)]
    finally:
        sys.modules.update(kept)
    assert sys.path == before
