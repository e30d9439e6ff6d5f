"""``fedbench completion SHELL`` prints a script that completes words, keys, choices and directories by Tab.

The script asks ``fedbench completion words CURRENT EARLIER ...`` for candidates, so that it knows the choices of the
installed version and of the directory that ``--config-dir`` names. Nothing is imported that takes long, such as torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbench.commands.list import CARDS, LISTED
from fedbench.config.comments import read
from fedbench.config.places import config_dir
from fedbench.config.schema import options
from fedbench.core.errors import RequestError, choice
from fedbench.papers.registry import papers

_BASH = """\
_fedbench() {
    local line="${COMP_LINE:0:COMP_POINT}" current="" words head
    [[ $line == *[[:space:]] ]] || current="${line##*[[:space:]]}"
    read -ra words <<< "${line%"$current"}"
    local IFS=$'\\n'
    COMPREPLY=($(fedbench completion words "$current" "${words[@]:1}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/.,] ]] && compopt -o nospace 2>/dev/null
    # readline replaces the part after the last = or : alone
    head="${current%"${current##*[=:]}"}"
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
}
complete -o default -F _fedbench fedbench
"""
_ZSH = f"""\
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
{_BASH}"""
_FISH = """\
function __fedbench_words
    set -l words (commandline -opc)
    fedbench completion words (commandline -ct) $words[2..-1] 2>/dev/null
end
complete -c fedbench -a '(__fedbench_words)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_BASHRC = 'eval "$(fedbench completion bash)"'
WORDS = (
    "list", "data", "new", "tune", "compare", "report", "status", "show", "plot", "reproduce", "completion",
)  # fmt: skip
_AFTER = {
    "list": LISTED,
    "data": ("prepare", "verify", "show", "check-links", "export-partition"),
    "new": ("algorithm", "model", "data", "partition", "metric"),
    "completion": tuple(SCRIPTS),
}
_FLAGS = {
    "": ("-m", "--multirun", "--jobs", "--config-dir", "--cfg", "--package", "--resolve", "--help", "--version"),
    "report": (
        *("--compare", "--metric", "--baseline", "--alpha", "--into", "--paper", "--latex", "--bundle", "--best"),
        *("--by", "--dated", "--help"),
    ),
    "plot": ("--x", "--y", "--by", "--where", "--out", "--interval", "--log", "--help"),
    "reproduce": ("--plan", "--profile", "--jobs", "--help"),
    "status": ("--all", "--help"),
    "show": ("--help",),
    "new": ("--into",),
    "tune": ("--jobs", "--config-dir"),
    "compare": ("--jobs", "--config-dir"),
}
_GROUPS = ("algo", "data", "data/partition", "model", "tracker", "experiment", "debug", "hydra/launcher")
_REQUEST = {  # keys of tune and compare besides those of runs
    "tune": ("budget", "seeds", "sampler", "pruning", "objective"),
    "compare": ("methods", "budget", "seeds", "tuning_seeds", "sampler", "pruning", "metric", "baseline"),
}
_VALUES = {"sampler": ("random", "tpe"), "pruning": ("none", "halving"), "device": ("auto", "cpu", "cuda")}


def completion(args: Sequence[str], own: Path | None) -> str:
    """Return what ``fedbench completion`` prints.

    Args:
        args: A shell; or ``words``, what stands before the cursor of the current word, and the words before it.
        own: A config tree of the user's own.

    Raises:
        RequestError: If the shell is unknown.
    """
    if args and args[0] == "words":
        current, *earlier = [*args[1:], ""] if len(args) < 2 else args[1:]
        return "\n".join(candidates(current, earlier, own))
    if len(args) != 1:
        given = " ".join(args) or "nothing"
        raise RequestError(f"completion takes one of {', '.join(SCRIPTS)}, got {given}; in bash, type {_BASHRC}")
    return SCRIPTS[choice("completion", args[0], tuple(SCRIPTS))].rstrip()


def candidates(current: str, earlier: Sequence[str], own: Path | None = None) -> list[str]:
    """Return what a word may become, in order; empty leaves the word to the shell, which completes names of files.

    Args:
        current: The part of the word before the cursor.
        earlier: The words before it, without ``fedbench``.
        own: A config tree of the user's own.
    """
    word = next((w for w in earlier if w in WORDS), "")
    if current.startswith("-"):
        return _fitting(current, _FLAGS.get(word, ("--help",)))
    if word and not earlier.index(word) and word not in _REQUEST:
        return _fitting(current, _argument(word, earlier[1:], own))
    key, equals, typed = current.partition("=")
    if equals:
        done, comma, last = typed.rpartition(",")
        return [f"{key}={done}{comma}{v}" for v in _next_part(last, _values(key, own))]
    words = WORDS if not earlier else ()
    keys = [f"{k}=" for k in (*_REQUEST.get(word, ()), *_keys(earlier, own))]
    return _fitting(current, (*words, *_next_part(current, keys, ".")))


def _argument(word: str, earlier: Sequence[str], own: Path | None) -> Iterable[str]:
    """Return the arguments that a command takes next."""
    if word == "reproduce":
        from fedbench.papers.known.registry import reference_names
        from fedbench.papers.plan import table_names

        return (*papers(), *(row[0] for row in (*table_names(), *reference_names())))
    if word == "report" and earlier and earlier[-1] == "--paper":
        return (*papers(), "known")
    if not earlier:
        return _AFTER.get(word, ())
    if len(earlier) > 1:
        return ()
    if word == "list" and earlier[0] in CARDS:
        return _choices("data/partition" if earlier[0] == "partition" else earlier[0], own)
    return _choices("data", own) if word == "data" else ()


def _keys(earlier: Sequence[str], own: Path | None) -> list[str]:
    """Return the groups, and the keys of the configuration that the choices among some words make."""
    names = [k.name for k in read(config_dir() / "config.yaml").keys if not k.name.startswith(("hydra", "presets"))]
    chosen = dict(w.split("=", 1) for w in earlier if "=" in w)
    for group in ("algo", "data", "model", "data/partition", "tracker"):
        for root in (config_dir(), own):
            file = root / group / f"{chosen.get(group)}.yaml" if root else None
            if file is not None and file.is_file():
                names += [f"{group.replace('/', '.')}.{k.name}" for k in read(file).keys if "_target_" not in k.name]
    sections = {n.rpartition(".")[0] for n in names}
    return [*_GROUPS, *(n for n in names if n not in sections and n not in _GROUPS)]


def _values(key: str, own: Path | None) -> Iterable[str]:
    return _choices("algo" if key == "methods" else key, own) if key in (*_GROUPS, "methods") else _VALUES.get(key, ())


def _choices(group: str, own: Path | None) -> list[str]:
    roots = [config_dir(), *([own] if own else [])]
    return [name for root in roots for name in options(group, root)]


def _fitting(current: str, words: Iterable[str]) -> list[str]:
    return [w for w in dict.fromkeys(words) if w.startswith(current)]


def _next_part(typed: str, names: Iterable[str], sign: str = "/") -> list[str]:
    """Return names that begin like a text, up to their next part: ``adafed/`` before what is in this folder."""
    depth = typed.count(sign) + 1
    parts = [sign.join(n.split(sign)[:depth]) + (sign if n.count(sign) >= depth else "") for n in names]
    return _fitting(typed, parts)
