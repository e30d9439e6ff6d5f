"""The methods, as differences from FedAvg."""
