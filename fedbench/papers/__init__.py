"""The papers' reported numbers, setups and claims as data, and the readers of these data."""
