"""Tables as programs read them that understand CSV, Markdown and LaTeX."""

import csv
import io
import re


def read_csv(text):
    """Rows by column; every row has every column and no other."""
    header, *rows = csv.reader(io.StringIO(text))
    assert len(set(header)) == len(header)
    assert all(len(r) == len(header) for r in rows)
    return [dict(zip(header, r, strict=True)) for r in rows]


def markdown_tables(text):
    """(what stands last before a table, its rows as lists of cells, headings first)."""
    tables, before, rows = [], "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            assert line.endswith(" |")
            rows.append([c.strip() for c in re.split(r"(?<!\\)\|", line[1:-1])])
            continue
        if rows:
            assert {len(r) for r in rows} == {len(rows[0])}, rows
            assert all(re.fullmatch("-+:?", c) for c in rows[1])
            tables.append((before, [rows[0], *rows[2:]]))
            rows = []
        before = line or before
    return tables


def latex_tables(text):
    """(what is last before a tabular, its rows as lists of cells, headings first); else comments,
    small print.
    """
    tables, before, spec, rows = [], "", None, []
    for line in text.splitlines():
        if begun := re.fullmatch(r"\\begin{tabular}{([lr]+)}", line):
            assert spec is None
            spec, rows = begun[1], []
        elif line == r"\end{tabular}":
            assert {len(r) for r in rows} == {len(spec)}
            tables.append((before, rows))
            spec = None
        elif spec is None:
            small = re.fullmatch(r"\\par\{\\footnotesize (.*)\}", line)
            assert not line or line.startswith("%") or (small and "% " in before), line
            before = before if small else line or before
        elif line not in (r"\toprule", r"\midrule", r"\bottomrule"):
            assert line.endswith(r" \\"), line
            assert line.isascii(), line
            plain = line.removesuffix(r" \\")
            signs = {
                "±": r"$\pm$",
                "Σ": r"$\Sigma$",
                "≈": r"$\approx$",
                "≠": r"$\neq$",
                "^": r"\^{}",
                "~": r"\~{}",
            }
            for sign, typed in signs.items():
                plain = plain.replace(typed, f"\\{sign}")
            plain = re.sub(r"\\textbf{([^{}]*)}", r"\1", plain)
            assert not re.search(r"(?<!\\)[%#_${}~^]|\\[A-Za-z ]", plain), line
            rows.append([re.sub(r"\\(.)", r"\1", c).strip() for c in re.split(r"(?<!\\)&", plain)])
    assert spec is None
    return tables
