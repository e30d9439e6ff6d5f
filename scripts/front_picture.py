"""Take the picture of the front page of the evidence that the README shows.

    python scripts/front_picture.py [PAGE] [PICTURE] [--chromium PATH]

By default the page is results/published/index.html and the picture docs/figures/evidence.png: the top of the page,
light, at 1280 pixels, in 64 colours. Chromium is the one that --chromium or $CHROMIUM names, or the installed one.
Needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT, COLOURS = 1280, 960, 64
AROUND = 20  # pixels left and right of the text


def main(argv: Sequence[str]) -> int:
    """Take the picture and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, nargs="?", default=ROOT / "results" / "published" / "index.html")
    parser.add_argument("picture", type=Path, nargs="?", default=ROOT / "docs" / "figures" / "evidence.png")
    parser.add_argument(
        "--chromium", default=os.environ.get("CHROMIUM") or shutil.which("chromium"), help="path of Chromium"
    )
    asked = parser.parse_args(argv)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT + 2 * AROUND}, color_scheme="light")
        tab.goto(asked.page.resolve().as_uri())
        box = tab.locator("header.front").bounding_box()
        assert box is not None
        part = {"x": box["x"] - AROUND, "y": AROUND, "width": box["width"] + 2 * AROUND, "height": HEIGHT}
        taken = Image.open(io.BytesIO(tab.screenshot(clip=part))).convert("RGB")
        browser.close()
    few = taken.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(asked.picture, optimize=True)
    print(f"written: {asked.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
