"""What the papers report: numbers, setups and claims as data, and what reads them."""
