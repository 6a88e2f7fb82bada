"""Engine "python": a PyInstaller one-file executable for another architecture, written on the laptop.

PyInstaller itself freezes only for the machine it runs on. Its archive format does not need that: the bootloader comes
from PyInstaller's wheel for the target, CPython and NumPy from packages for the target, byte code is the same for all
architectures of one minor version. `build.freeze` puts them together; docs/python-engine.md is the description.
"""
