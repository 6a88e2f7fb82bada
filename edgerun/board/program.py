"""From words to an exit code: 0 ok, 1 negative result, 2 usage, 3 hardware, 5 file, 70 internal, 130 interrupt."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from edgerun import __version__
from edgerun.errors import EdgerunError

PROBE = "edgerun.backends.wgpu.adapters"


def main(argv: Sequence[str]) -> int:
    """Run the packed file that this process was started from. `argv` as the operating system gives it."""
    started = time.perf_counter()
    name = Path(argv[0]).name
    _restore_temporary_folder()
    try:
        code = _run(list(argv[1:]), name, started)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _complain(name, "interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # keeps the interpreter's last flush quiet
        return 5
    except EdgerunError as e:
        return _complain(name, e.message + (f"; {e.hint}" if e.hint else ""), e.exit_code)
    except OSError as e:
        return _complain(name, f"{e.filename or 'file'}: {e.strerror or e}", 5)
    except MemoryError:
        return _complain(name, "not enough memory", 3)
    except Exception as e:
        if os.environ.get("EDGERUN_TRACEBACK"):
            raise
        return _complain(name, f"internal error: {type(e).__name__}: {e} (EDGERUN_TRACEBACK=1 shows where)", 70)


def _restore_temporary_folder() -> None:
    """TMPDIR as the caller had it: the launcher sets it to its own folder for the time of unpacking."""
    before = os.environ.pop("EDGERUN_TMPDIR", None)
    if before:
        os.environ["TMPDIR"] = before
    elif before is not None:
        os.environ.pop("TMPDIR", None)


def own_file() -> Path:
    """The packed file, as its start tells; in a file of stock PyInstaller the model among what it unpacked."""
    if os.environ.get("EDGERUN_FILE"):
        return Path(os.environ["EDGERUN_FILE"])
    unpacked = Path(getattr(sys, "_MEIPASS", "."))
    return next((p for p in (unpacked / "model.plan", unpacked / "model.edge") if p.exists()), Path(sys.executable))


def _run(words: list[str], name: str, started: float) -> int:
    from edgerun.board.options import help_text, parse

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if words == ["--version"]:
        print(f"edgerun {__version__}")
        return 0
    if words == ["-m", PROBE]:  # how the wgpu backend looks for GPUs: in a process of its own
        importlib.import_module(PROBE).main()
        return 0
    options = parse(words)
    if options.help or not options.verb:
        print(help_text(options.verb, name), end="")
        return 0 if options.help or not words else 2
    verb = importlib.import_module(f"edgerun.board.{options.verb}")
    return verb.command(own_file(), options, started)


def _complain(name: str, message: str, code: int) -> int:
    sys.stdout.flush()
    print(f"{name}: {message}", file=sys.stderr)
    return code
