"""The sdist and the wheel that is built from it: an installed wheel works from any directory."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile

import pytest
import yaml
from tools import ROOT

pytestmark = pytest.mark.processes

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def called(command, **options):
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        **options,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    # hatchling is installed (extra dev), so no build environment has to be downloaded
    build = [sys.executable, *"-m hatchling build -t sdist -d".split(), str(folder)]
    built = called(build, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (sdist,) = folder.glob("fedbench_harness-*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel, built from the sdist alone."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", str(sdist), *"--no-deps --no-build-isolation -w".split(), str(folder)]
    built = called(build)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("fedbench_harness-*.whl")
    return wheel


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def run(wheel, work):
    """Run the command of a new environment that knows the wheel and its dependencies, and not the
    repository.
    """
    place = wheel.parent / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    done = called([*PIP, "--python", str(python), "install", str(wheel), "--no-deps", "--no-index"])
    assert done.returncode == 0, done.stderr
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    where = called(
        [str(python), "-c", "import fedbench; print(fedbench.__file__)"], cwd=work, env=env
    )
    assert where.stdout.startswith(str(packages)), where.stderr
    return lambda *args: called(
        [str(place / "bin" / "fedbench"), *args],
        cwd=work,
        env=env,
    )


def test_the_citation_is_of_this_version():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (found["version"], found["license"]) == (VERSION, "MIT")
    assert found["authors"] == [{"name": "The fedbench authors"}]


def test_the_sdist_holds_what_the_wheel_tests_and_documents(sdist):
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    kept = (
        "fedbench/**/*.py conf/**/*.yaml tests/**/*.py docs/**/*.md examples/**/*.py scripts/*.py"
    )
    files = [path for kind in kept.split() for path in ROOT.glob(kind)]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= names
    assert {"LICENSE", "CITATION.cff", "Makefile", "docs/conf.py", "requirements/dev.txt"} <= names
    assert not [n for n in names if n.startswith(("results/", ".venv/", "build/"))]


def test_the_wheel_holds_the_package_and_the_config_tree(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = ("conf/**/*.yaml", "fedbench/**/*.py", "fedbench/**/*.yaml", "fedbench/**/assets/*")
    for path in (p for kind in kinds for p in ROOT.glob(kind)):
        name = path.relative_to(ROOT).as_posix()
        assert (f"fedbench/{name}" if name.startswith("conf/") else name) in names
    assert not [n for n in names if n.startswith(("tests/", "scripts/", "results/"))]
    assert f"fedbench_harness-{VERSION}.dist-info/METADATA" in names


def test_it_answers_from_another_directory(run):
    assert "experiment" in run("--help").stdout
    # read by the name of the distribution
    assert run("--version").stdout == f"fedbench {VERSION}\n"


@pytest.mark.slow
def test_it_runs_from_another_directory(run, work):
    done = run("experiment=smoke", "rounds=1")
    assert done.returncode == 0, done.stderr
    assert (work / done.stdout.splitlines()[-1] / "DONE").exists()
    report = run("report")
    assert report.stdout.endswith("written: results/report/index.html\n"), report.stderr
    assert "<!DOCTYPE html>" in (work / "results" / "report" / "index.html").read_text()
    shown = run("reproduce", "adafedadam/table4", "--plan", "--profile", "smoke")
    assert shown.stdout.splitlines()[2].split()[:3] == ["adafedadam/table4", "3", "0"], shown.stderr
