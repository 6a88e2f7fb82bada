"""Every error a user can meet, with the exit code the command line gives for it.

A message says what went wrong, where (file, node or tensor), why, and what to do next; `hint` holds the last part.
"""

from __future__ import annotations


class EdgerunError(Exception):
    """Base of all expected errors. `hint` is one sentence about the remedy, or empty."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(EdgerunError):
    """The command line or an argument is wrong."""

    exit_code = 2


class FileFormatError(EdgerunError):
    """A model, bundle, plan or packed file is damaged, hostile or not what it claims to be."""

    exit_code = 5


class ImportFailure(FileFormatError):
    """An ONNX file or checkpoint could not be understood. `problems` lists what does not fit, when that is a list."""

    def __init__(self, message: str, *, hint: str = "", problems: list[str] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or []


class BundleError(FileFormatError):
    """A `.edge` file breaks its format."""


class PlanError(FileFormatError):
    """A plan breaks its format, or cannot be made."""


class ShapeError(EdgerunError):
    """Shapes or dtypes of a node do not fit together. Raised at conversion, or by a kernel at run time."""


class UnsupportedError(EdgerunError):
    """Something valid that edgerun, or the chosen backend, does not implement. `problems` lists all of them."""

    def __init__(self, message: str, *, problems: list[str] | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or []


class BudgetExceeded(EdgerunError):
    """The packed model is larger, needs more RAM or more time than its budget."""


class VerificationFailed(EdgerunError):
    """Outputs differ from the reference by more than the tolerance."""


class BackendUnavailable(EdgerunError):
    """The hardware, driver or library of a backend is missing."""

    exit_code = 3


class InputOutputError(EdgerunError):
    """A file cannot be read or written."""

    exit_code = 5
