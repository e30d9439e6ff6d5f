"""The Jinja templates in ``assets``, the functions that all of them may call, and badges."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from fedbench.core.config_values import from_yaml, keys_text
from fedbench.reports import filters

ASSETS = Path(__file__).parent / "assets"


# appearance of verdicts and statuses, by kind and word
BADGES: dict[str, dict[str, dict[str, str]]] = from_yaml(
    (ASSETS / "badges.yaml").read_text(encoding="utf-8")
)

ENVIRONMENT = Environment(
    loader=FileSystemLoader(ASSETS),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals |= {"badges": BADGES, "plural": filters.plural, "zip": zip}
ENVIRONMENT.filters |= {
    "anchor": filters.anchor,
    "capitalised": filters.capitalised,
    "href": filters.href,
    "image": filters.image,
    "keys": keys_text,
    "unbroken": filters.unbroken,
    "value": filters.one_line_value,
}


def render(template: str, **values: Any) -> str:
    """Return the text of a template, with one line break at its end."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
