"""Sources, partitions, and the federated data set they make."""
