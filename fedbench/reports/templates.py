"""The Jinja templates in ``assets``, the functions that all of them may call, and badges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from fedbench.core.config_values import from_yaml, keys_text
from fedbench.reports import filters

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Badge:
    """Appearance of a verdict or status, as ``assets/badges.yaml`` gives it.

    Attributes:
        tone: Colour on the page, which always comes with an icon and the word.
        icon: Icon on the page.
        word: The word on the page; empty if it goes without saying.
        sign: The word in tables of text.
    """

    tone: str
    icon: str
    word: str
    sign: str = ""


BADGES: Mapping[str, Mapping[str, Badge]] = {
    kind: {word: Badge(*appearance) for word, appearance in words.items()}
    for kind, words in from_yaml((ASSETS / "badges.yaml").read_text(encoding="utf-8")).items()
}

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
    "panel_columns": filters.panel_columns,
    "run_name": filters.run_name,
    "unbroken": filters.unbroken,
    "value": filters.one_line_value,
}


def render(template: str, **values: Any) -> str:
    """Return the text of a template, with one line break at its end."""
    return ENVIRONMENT.get_template(template).render(values).rstrip() + "\n"
