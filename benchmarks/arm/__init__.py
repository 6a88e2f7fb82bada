"""What can be said about AArch64 without the hardware: instruction counts and static throughput, each called so."""
