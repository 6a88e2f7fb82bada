"""What PyInstaller's bootloader runs."""

import os
import sys

# NumPy's BLAS would start a thread for each core, with memory for each; the native kernels have threads of their own.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from edgerun.board.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
