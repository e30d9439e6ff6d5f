"""The Jinja templates in ``assets``, the functions available to all of them, and badges."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from fedbench.core.config_values import keys_text, read_yaml
from fedbench.reports import filters

ASSETS = Path(__file__).parent / "assets"


def yaml_asset(name: str) -> Any:
    """Return the content of a YAML file in ``assets``."""
    return read_yaml(ASSETS / name)


# appearance of verdicts and statuses, by kind and value
BADGES: dict[str, dict[str, dict[str, str]]] = yaml_asset("badges.yaml")

ENVIRONMENT = Environment(
    loader=FileSystemLoader(ASSETS),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False}  # a browser cannot read NaN
ENVIRONMENT.globals |= {
    "badges": BADGES,
    "filters": filters,
    "plural": filters.plural,
    "zip": zip,
}
ENVIRONMENT.filters |= {
    "anchor": filters.anchor,
    "capitalised": filters.capitalised,
    "href": filters.href,
    "image": filters.image,
    "keys": keys_text,
    "unbroken": filters.unbroken,
    "value": filters.one_line_value,
}


def note_lines(template: str, **values: Any) -> list[str]:
    """Return the notes rendered by a template, which puts one on each line."""
    return [line for line in render(template, **values).splitlines() if line]


def render(template: str, **values: Any) -> str:
    """Return the rendered text of a template, ending in one line break."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
