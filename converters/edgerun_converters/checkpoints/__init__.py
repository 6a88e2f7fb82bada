"""Trained checkpoints as named arrays: safetensors folders and PyTorch state dicts, read without running any code."""
