"""Every printed installation hint installs this project, not the one called ``fedbench`` on the public index."""

import ast
import re
import tomllib

from tools import ROOT

from fedbench.core.errors import DISTRIBUTION, install_hint

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
DEPENDENCIES = {re.match(r"[\w-]+", d)[0] for d in PROJECT["dependencies"]}
CODE = sorted(p for d in ("fedbench", "scripts") for p in (ROOT / d).rglob("*.py"))
PROSE = sorted(
    p
    for where, patterns in {
        ".": ("*.md", "Makefile"), "conf": ("**/*.yaml",), "docs": ("**/*.md",), "examples": ("**/*",),
        "fedbench": ("**/*.yaml", "**/*.html", "**/*.js"), "results": ("README.md",),
    }.items()
    for pattern in patterns
    for p in (ROOT / where).glob(pattern)
    if p.is_file() and p.suffix != ".pyc"
)  # fmt: skip
COMMAND = re.compile(
    r"pip install\s+(?:(?:-e|--editable|-[cr] \S+)\s+)?(?:'([^']+)'|\"([^\"]+)\"|([^\s`;)'\"]+))"
)
WHAT = re.compile(r"(?P<name>\.|[A-Za-z][\w.-]*)(?:\[(?P<extras>[\w,-]+)\])?")


def hints(text):
    """What the ``pip install`` commands in a text install, without quotes."""
    return ["".join(found) for found in COMMAND.findall(text)]


def fault(what):
    """Why a hint is wrong, or None."""
    found = WHAT.fullmatch(what)
    if found is None:
        return "cannot be read"
    name, extras = found["name"], set((found["extras"] or "").split(",")) - {""}
    if unknown := extras - EXTRAS:
        return f"has no extra {', '.join(unknown)}"
    if extras:
        return None if name in (".", DISTRIBUTION) else f"extras belong to {DISTRIBUTION}"
    return (
        None
        if name in {".", DISTRIBUTION} | DEPENDENCIES
        else f"{name} is not this project and not a dependency"
    )


def test_the_name_has_one_spelling():
    assert PROJECT["name"] == DISTRIBUTION != "fedbench"
    assert f'version("{DISTRIBUTION}")' in (ROOT / "fedbench" / "__init__.py").read_text()
    assert PROJECT["scripts"] == {"fedbench": "fedbench.cli:main"}


def test_a_hint_is_quoted_for_the_shell():
    assert install_hint("hf") == "pip install 'fedbench-harness[hf]'"
    assert fault(*hints(f"run: {install_hint('hf')}; then")) is None


def test_hints_name_this_project_and_an_extra_that_exists():
    wrong, seen = [], 0
    for path in [*PROSE, *CODE]:
        text = path.read_text(encoding="utf-8", errors="replace")  # examples/ may hold pictures
        found = [what for what in hints(text) if not what.startswith("{")]
        old = re.findall(r"(?<![\w/.-])fedbench\[(?:" + "|".join(EXTRAS) + r")\]", text)
        wrong += [(path.name, what, why) for what in [*found, *old] if (why := fault(what))]
        seen += len(found)
    assert not wrong
    assert seen >= 5


def test_hints_in_code_come_from_one_function_and_name_an_extra_that_exists():
    asked, written = set(), []
    for path in CODE:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "install_hint":
                asked |= {
                    c.value for a in node.args for c in ast.walk(a) if isinstance(c, ast.Constant)
                }
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and "pip install" in node.value
            ):
                written += [(path.name, what) for what in hints(node.value) if "[" in what]
    assert asked and asked <= EXTRAS
    assert not written
