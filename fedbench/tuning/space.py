"""Search spaces: the tuned keys of a method, and the source of their values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedbench.config.overrides import CONFIG_DIR, Override, by_hydra, options, parse_overrides
from fedbench.core.config_values import WEIGHTS, config_value, read_yaml
from fedbench.core.errors import RequestError, nearest
from fedbench.core.files import reading

Values = dict[str, Any]  # a value for every key of a space
_SHARED = "shared"  # name of the file with the axes common to all methods
_EDGE = 0.05  # share of a range that counts as its edge, at each end


@dataclass(frozen=True)
class Axis:
    """A key and its values: a grid, or a range on a logarithmic or linear scale.

    Attributes:
        key: Dotted key below ``local`` or ``algo``.
        grid: The values of a grid; empty for a range.
        low: Lower bound of a range.
        high: Upper bound of a range.
        log: Whether the range is on a logarithmic scale.
    """

    key: str
    grid: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last value of the axis."""
        if self.grid:
            return self.grid[0], self.grid[-1]
        return self.low, self.high

    def value(self, drawn: Any) -> Any:
        """Return the grid value at a drawn index, or a number drawn from the range, to 3 digits."""
        if self.grid:
            return self.grid[drawn]
        rounded = float(f"{drawn:.3g}")
        return min(self.high, max(self.low, rounded))

    def edge(self, value: Any) -> Literal["lower", "upper"] | None:
        """Return the end of the axis if a value lies at one, else None.

        Better values may exist beyond an end. An end is the smallest or largest number of a grid,
        or the outer 5 % of a range. Grids of strings and grids of two values have no ends.
        """
        if self.grid:
            are_numbers = all(type(v) in (int, float) for v in self.grid)
            if not are_numbers or len(self.grid) < 3:
                return None
            lower, upper = min(self.grid), max(self.grid)
        else:
            scale = math.log if self.log else float
            low, high = scale(self.low), scale(self.high)
            margin = _EDGE * (high - low)
            value = scale(value)
            lower, upper = low + margin, high - margin
        if value <= lower:
            return "lower"
        return "upper" if value >= upper else None

    @property
    def text(self) -> str:
        """The axis as typed on the command line."""
        if self.grid:
            return f"{self.key}={','.join(map(config_value, self.grid))}"
        interval = f"interval({config_value(self.low)},{config_value(self.high)})"
        return f"{self.key}={f'tag(log,{interval})' if self.log else interval}"


def search_space(
    algo: str, config_dir: Path | None, overrides: Sequence[Override]
) -> tuple[Axis, ...]:
    """Return the axes along which a method is tuned.

    They are the axes shared by all methods and those in the method's file ``tune/<algo>.yaml``, in
    the user's config tree or in fedbench's. Files and the command line use the same syntax: several
    values or an interval define an axis for their key. A single value, which is null in a file,
    leaves the key out. The command line takes precedence.

    Args:
        algo: The method.
        config_dir: The user's directory with config files and modules.
        overrides: Overrides typed on the command line.

    Raises:
        RequestError: If the method has no space, a file is malformed, or several values are given
            for a key that cannot be tuned.
    """
    lines = [
        *_read(CONFIG_DIR / "tune" / f"{_SHARED}.yaml"),
        *_method_lines(algo, config_dir, overrides),
    ]
    in_files = parse_overrides(lines)
    for o in in_files:
        if not o.sweeps and o.value is not None:
            raise RequestError(
                f"tune/{algo}.yaml: {o.text} is no axis; write several values, such as {o.key}: "
                "0.1,1, or null, which leaves the key at its default"
            )
    axes: dict[str, Axis] = {}
    for o in [*in_files, *overrides]:
        if not o.sweeps:
            for key in (o.key, *o.keys):
                axes.pop(key, None)
        elif o.key.startswith(("local.", "algo.")):
            axes[o.key] = axis_of(o)
        else:
            raise RequestError(
                f"{o.text}: local.KEY and algo.KEY can be tuned; type one value of {o.key}"
            )
    return tuple(axes.values())


def weight_overrides(values: Values, weights: str | None) -> list[str]:
    """Return the overrides that give clients other weights; none if a method has no choice.

    Args:
        values: The method's values by dotted key.
        weights: ``size`` or ``uniform``; None for the method's own weights.
    """
    keys = [key for key in WEIGHTS if weights and values.get(key) in ("size", "uniform")]
    return [f"{key}={weights}" for key in keys]


def axis_of(o: Override) -> Axis:
    """Return the axis defined by an override with several values or an interval.

    Raises:
        RequestError: If the bounds of an interval are out of order or unsuitable for its scale.
    """
    parsed = by_hydra(o.text)
    if not parsed.is_interval_sweep():
        values = [by_hydra(text).value() for text in o.each()]
        return Axis(o.key, grid=tuple(values))
    interval: Any = parsed.value()
    low, high = float(interval.start), float(interval.end)
    is_log = "log" in interval.tags
    if is_log and low <= 0:
        raise RequestError(f"{o.text}: lower bound must be > 0, got {low:g}")
    if high <= low:
        raise RequestError(f"{o.text}: upper bound must be > {low:g}, got {high:g}")
    return Axis(
        o.key,
        low=low,
        high=high,
        log=is_log,
    )


def _method_lines(
    algo: str,
    config_dir: Path | None,
    overrides: Sequence[Override],
) -> list[str]:
    """Return the lines of a method's file as overrides.

    If there is no file but the command line defines axes for the method, the result is empty.
    """
    for root in (config_dir or CONFIG_DIR, CONFIG_DIR):
        file = root / "tune" / f"{algo}.yaml"
        if file.is_file():
            return _read(file)
    if any(o.sweeps and o.key.startswith("algo.") for o in overrides):
        return []
    place = config_dir or "a directory for --config-dir"
    raise RequestError(
        f"algo={algo} has no search space{nearest(algo, options('tune'))}; write "
        f"tune/{algo}.yaml in {place}, with lines such as algo.mu: 0.01,0.1,1 "
        "(an empty mapping {} tunes local.lr alone), or type algo.KEY=V1,V2"
    )


def _read(file: Path) -> list[str]:
    with reading(file, "cannot be read as YAML"):
        tree = read_yaml(file)
    if not isinstance(tree, dict):
        raise RequestError(
            f"{file} must be a mapping of keys to values, such as algo.mu: 0.01,0.1,1"
        )
    return [f"{key}={'null' if value is None else value}" for key, value in tree.items()]
