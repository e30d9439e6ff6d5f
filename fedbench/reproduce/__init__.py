"""The runs that tables and figures of papers still need: the plan, as text, and its outcomes."""
