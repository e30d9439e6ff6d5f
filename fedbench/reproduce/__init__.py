"""What tables and figures of papers still need: the plan as text, estimated times, and carrying it out."""
