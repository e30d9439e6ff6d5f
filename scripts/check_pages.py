"""Check pages as HTML and for accessibility.

    python scripts/check_pages.py results/report/index.html [PAGE ...] [--chromium PATH]

Each page is parsed by html5lib, its ids and links are compared, and axe-core runs on it in Chromium
at 1280 and 400 pixels, light and dark, with all folded parts open. --chromium or $CHROMIUM names
the program; by default it is the installed Chromium. The exit status is 1 if there are findings.
Needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import axe_playwright_python
import html5lib
from playwright.sync_api import sync_playwright

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
SHOWN = 3  # elements named in a finding
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def html_findings(text: str) -> Iterator[str]:
    """Yield the errors of a page as HTML."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    tree = parser.parse(text)
    for (line, column), code, values in parser.errors:
        yield f"html: line {line}, column {column}: {html5lib.constants.E[code] % values}"
    ids = Counter(e.get("id") for e in tree.iter())
    del ids[None]
    for name, count in ids.items():
        if count > 1:
            yield f"html: the id {name!r} occurs {count} times"
    for e in tree.iter():
        for name in (e.get("aria-labelledby") or "").split():
            if name not in ids:
                yield f"html: aria-labelledby names {name!r}, which is no id"
        link = e.get("href") or ""
        if link.startswith("#") and link[1:] not in ids:
            yield f"html: a link leads to {link}, which is no id"


def axe_findings(browser: Any, page: Path) -> Iterator[str]:
    """Yield the findings of axe-core on a page at every width and in every colour scheme."""
    script = AXE.read_text(encoding="utf-8")
    for width, scheme in product(WIDTHS, SCHEMES):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            bypass_csp=True,
            reduced_motion="reduce",
        )
        tab = context.new_page()
        tab.goto(page.resolve().as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        tab.evaluate(script)
        results = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
        for violation in results["violations"]:
            elements = [" ".join(map(str, node["target"])) for node in violation["nodes"]]
            places = "; ".join(elements[:SHOWN])
            if len(elements) > SHOWN:
                places += f" and {len(elements) - SHOWN} more"
            yield (
                f"axe: {width} px, {scheme}: {violation['id']} ({violation['impact']}): "
                f"{violation['help']}: {places}"
            )
        context.close()


def main(argv: Sequence[str]) -> int:
    """Check the pages and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGE")
    parser.add_argument(
        "--chromium",
        default=os.environ.get("CHROMIUM") or shutil.which("chromium"),
        help="path of Chromium",
    )
    args = parser.parse_args(argv)
    count = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=args.chromium,
            args=ARGUMENTS,
        )
        for page in args.pages:
            text = page.read_text(encoding="utf-8")
            findings = [*html_findings(text), *axe_findings(browser, page)]
            for finding in findings:
                print(f"{page}: {finding}")
            count += len(findings)
        browser.close()
    print(f"{len(args.pages)} pages, {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
