"""Pages in a real browser."""


def fits(tab):
    """Whether a page is no wider than its window."""
    return tab.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
