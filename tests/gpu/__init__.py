"""The GPU backends, on a software adapter where there is no GPU."""
