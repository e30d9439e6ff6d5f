"""The reports of the papers: numbers, setups and claims as data, and their readers."""
