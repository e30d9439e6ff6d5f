"""An installed wheel works from any directory: it contains the config tree."""

import os
import subprocess
import sys
import tomllib
import zipfile

import pytest
from tools import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, and a directory that pip installed it into, without dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    quiet = {"capture_output": True, "text": True}
    # hatchling is installed (extra dev), so no build environment has to be downloaded
    built = subprocess.run([*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder)], **quiet)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("fedbench_harness-*.whl")
    target = folder / "site"
    done = subprocess.run([*pip, "install", str(wheel), "--no-deps", "--no-index", "--target", str(target)], **quiet)
    assert done.returncode == 0, done.stderr
    return wheel, target


def test_the_wheel_holds_the_package_and_the_config_tree(installed):
    wheel, _ = installed
    names = set(zipfile.ZipFile(wheel).namelist())
    kinds = ("conf/**/*.yaml", "fedbench/**/*.py", "fedbench/**/*.yaml", "fedbench/**/assets/*")
    for path in (p for kind in kinds for p in ROOT.glob(kind)):
        name = path.relative_to(ROOT).as_posix()
        assert (f"fedbench/{name}" if name.startswith("conf/") else name) in names
    assert not [n for n in names if n.startswith(("tests/", "scripts/", "results/"))]
    assert f"fedbench_harness-{VERSION}.dist-info/METADATA" in names


def test_it_runs_from_another_directory(installed, tmp_path):
    _, target = installed
    env = {**os.environ, "PYTHONPATH": str(target)}

    def run(*args):
        command = [sys.executable, "-m", "fedbench", *args]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    where = subprocess.run(
        [sys.executable, "-c", "import fedbench; print(fedbench.__file__)"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(target))
    assert "experiment" in run("--help").stdout
    assert run("--version").stdout == f"fedbench {VERSION}\n"  # read by the name of the distribution
    done = run("experiment=smoke", "rounds=1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.splitlines()[-1] / "DONE").exists()
    report = run("report")
    assert report.stdout.endswith("written: results/report\n"), report.stderr
    assert "<!DOCTYPE html>" in (tmp_path / "results" / "report" / "index.html").read_text()
    shown = run("reproduce", "adafedadam/table4", "--plan", "--profile", "smoke")
    assert shown.stdout.splitlines()[2].split()[:3] == ["adafedadam/table4", "3", "0"], shown.stderr
