"""From override text and YAML to a checked configuration and its identity."""
