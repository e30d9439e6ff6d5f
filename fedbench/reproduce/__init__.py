"""The runs that papers' tables and figures still need: the plan, its text and its outcomes."""
