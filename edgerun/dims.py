"""Symbolic tensor dimensions: integer expressions over named symbols, in one canonical form.

A dimension is an `int` or a `Dim`. A `Dim` is a polynomial with integer coefficients over atoms; an atom is a symbol or
one of floordiv, ceildiv, mod, min, max of two dimensions. Equal expressions compare equal (as far as polynomial
arithmetic and the listed simplifications can tell), so shapes can be compared with `==`. Arithmetic that ends in a
constant returns a plain `int`. Symbols stand for non-negative integers.

>>> n = symbol("N")
>>> (n + 1) * 2 - 2
Dim('2*N')
>>> ceildiv(n * 4, 4) == n
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from edgerun.errors import ShapeError

DimLike: TypeAlias = "int | Dim"
Bounds: TypeAlias = "tuple[int, int | None]"
"""Inclusive lower and upper bound; None = unbounded above."""

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
MAX_DEPTH = 32
"""Deepest nesting that the parser accepts: a bound for hostile files."""


class _Atom:
    """A symbol (function is None) or a function of two dimensions. Immutable, ordered by its text."""

    __slots__ = ("args", "function", "text")

    def __init__(self, text: str, function: str | None = None, args: tuple[DimLike, ...] = ()) -> None:
        self.text = text
        self.function = function
        self.args = args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: _Atom) -> bool:
        return self.text < other.text


_Monomial: TypeAlias = "tuple[_Atom, ...]"


class Dim:
    """A non-constant dimension. Build with `symbol`, arithmetic and `floordiv`, `ceildiv`, `minimum`, `maximum`."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[_Monomial, int]) -> None:
        self.terms: tuple[tuple[_Monomial, int], ...] = tuple(
            sorted(terms.items(), key=lambda t: (-len(t[0]), [a.text for a in t[0]]))
        )
        self._hash = hash(self.terms)

    # -- arithmetic
    def __add__(self, other: Any) -> Any:
        return _combine(self, other, 1) if isinstance(other, int | Dim) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _combine(self, other, -1) if isinstance(other, int | Dim) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return _combine(other, self, -1) if isinstance(other, int | Dim) else NotImplemented

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Dim:
        return self

    def __mul__(self, other: Any) -> Any:
        return _multiply(self, other) if isinstance(other, int | Dim) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return floordiv(self, other) if isinstance(other, int | Dim) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return floordiv(other, self) if isinstance(other, int | Dim) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return modulo(self, other) if isinstance(other, int | Dim) else NotImplemented

    # -- comparison
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __bool__(self) -> bool:
        raise ShapeError(f"the truth of the symbolic dimension {self} is not known")

    def __index__(self) -> int:
        raise ShapeError(f"dimension {self} is symbolic where a number is needed", hint="bind it with --shape or --dim")

    __int__ = __index__

    # -- text
    def __str__(self) -> str:
        return " + ".join(_term_text(m, c) for m, c in self.terms).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({str(self)!r})"

    @property
    def is_symbol(self) -> bool:
        """Whether this is one bare symbol."""
        return (
            len(self.terms) == 1
            and self.terms[0][1] == 1
            and len(self.terms[0][0]) == 1
            and self.terms[0][0][0].function is None
        )


def symbol(name: str) -> Dim:
    """The symbol called `name` (letters, digits, `_`, `.` and a few more; see `clean_symbol`)."""
    return Dim({(_Atom(name),): 1})


def clean_symbol(name: str) -> str:
    """`name` with every character that the dimension grammar reserves replaced by `_`."""
    name = re.sub(r"[^A-Za-z0-9_.:@]", "_", name)
    return name if name and not name[0].isdigit() and name not in _FUNCTIONS else f"_{name}"


def _terms(d: DimLike) -> dict[_Monomial, int]:
    if isinstance(d, Dim):
        return dict(d.terms)
    return {(): int(d)} if d else {}


def _normal(terms: dict[_Monomial, int]) -> DimLike:
    terms = {m: c for m, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Dim(terms)


def _combine(a: DimLike, b: DimLike, sign: int) -> DimLike:
    terms = _terms(a)
    for monomial, coefficient in _terms(b).items():
        terms[monomial] = terms.get(monomial, 0) + sign * coefficient
    return _normal(terms)


def _multiply(a: DimLike, b: DimLike) -> DimLike:
    terms: dict[_Monomial, int] = {}
    for ma, ca in _terms(a).items():
        for mb, cb in _terms(b).items():
            monomial = tuple(sorted(ma + mb))
            terms[monomial] = terms.get(monomial, 0) + ca * cb
    return _normal(terms)


def _call(function: str, a: DimLike, b: DimLike) -> DimLike:
    return Dim({(_Atom(f"{function}({a}, {b})", function, (a, b)),): 1})


def _exact_quotient(a: DimLike, b: DimLike) -> DimLike | None:
    """a / b when b divides every term of a, else None. b is a number or a single term."""
    divisor = list(_terms(b).items())
    if len(divisor) != 1:
        return 1 if a == b else None
    monomial, coefficient = divisor[0]
    quotient: dict[_Monomial, int] = {}
    for m, c in _terms(a).items():
        rest = list(m)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        quotient[tuple(rest)] = c // coefficient
    return _normal(quotient)


def _divide(function: str, a: DimLike, b: DimLike) -> DimLike:
    if isinstance(b, int) and b == 0:
        raise ShapeError(f"dimension {a} divided by zero")
    if isinstance(a, int) and isinstance(b, int):
        return _FUNCTIONS[function](a, b)
    exact = _exact_quotient(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and isinstance(a, Dim):
        # Whole multiples leave the division: (4*N + 3) // 2 = 2*N + 3 // 2.
        whole = {m: c for m, c in a.terms if m and c % b == 0}
        if whole:
            rest = _normal({m: c for m, c in a.terms if m not in whole})
            return _combine(_normal({m: c // b for m, c in whole.items()}), _divide(function, rest, b), 1)
    return _call(function, a, b)


def floordiv(a: DimLike, b: DimLike) -> DimLike:
    """a // b, rounding down."""
    return _divide("floordiv", a, b)


def ceildiv(a: DimLike, b: DimLike) -> DimLike:
    """a / b, rounding up."""
    return _divide("ceildiv", a, b)


def modulo(a: DimLike, b: DimLike) -> DimLike:
    """a - b * (a // b)."""
    return _combine(a, _multiply(b, floordiv(a, b)), -1)


def _extreme(function: str, a: DimLike, b: DimLike) -> DimLike:
    difference = _combine(a, b, -1)
    low, high = bounds(difference)
    if low is not None and low >= 0:
        return a if function == "max" else b
    if high is not None and high <= 0:
        return b if function == "max" else a
    first, second = sorted((a, b), key=str)
    return _call(function, first, second)


def minimum(a: DimLike, b: DimLike) -> DimLike:
    """The smaller of two dimensions, simplified where the bounds decide."""
    return _extreme("min", a, b)


def maximum(a: DimLike, b: DimLike) -> DimLike:
    """The larger of two dimensions, simplified where the bounds decide."""
    return _extreme("max", a, b)


def product(dims: Iterable[DimLike]) -> DimLike:
    """The product of dimensions; 1 when there is none."""
    result: DimLike = 1
    for d in dims:
        result = _multiply(result, d)
    return result


def is_static(shape: Iterable[DimLike]) -> bool:
    """Whether every dimension is a number."""
    return all(isinstance(d, int) for d in shape)


def free_symbols(d: DimLike) -> set[str]:
    """Names of the symbols in `d`."""
    names: set[str] = set()
    if isinstance(d, Dim):
        for monomial, _ in d.terms:
            for atom in monomial:
                if atom.function is None:
                    names.add(atom.text)
                for arg in atom.args:
                    names |= free_symbols(arg)
    return names


def substitute(d: DimLike, values: Mapping[str, DimLike]) -> DimLike:
    """`d` with each symbol in `values` replaced; other symbols stay."""
    if not isinstance(d, Dim):
        return d
    total: DimLike = 0
    for monomial, coefficient in d.terms:
        term: DimLike = coefficient
        for atom in monomial:
            term = _multiply(term, _substitute_atom(atom, values))
        total = _combine(total, term, 1)
    return total


def _substitute_atom(atom: _Atom, values: Mapping[str, DimLike]) -> DimLike:
    if atom.function is None:
        return values.get(atom.text, Dim({(atom,): 1}))
    a, b = (substitute(arg, values) for arg in atom.args)
    if atom.function in ("min", "max"):
        return _extreme(atom.function, a, b)
    return _divide(atom.function, a, b)


def evaluate(d: DimLike, values: Mapping[str, int]) -> int:
    """The number `d` stands for. Raises ShapeError when a symbol has no value."""
    result = substitute(d, values)
    if isinstance(result, Dim):
        missing = ", ".join(sorted(free_symbols(result)))
        raise ShapeError(f"dimension {d} needs a value for {missing}")
    return result


def bounds(d: DimLike, symbols: Mapping[str, Bounds] | None = None) -> tuple[int | None, int | None]:
    """Inclusive (lower, upper) bound of `d`, None where unbounded; symbols without an entry lie in [0, infinity)."""
    if not isinstance(d, Dim):
        return d, d
    low: float = 0
    high: float = 0
    for monomial, coefficient in d.terms:
        a, b = float(coefficient), float(coefficient)
        for atom in monomial:
            x, y = _atom_bounds(atom, symbols or {})
            corners = [_times(p, q) for p in (a, b) for q in (x, y)]
            a, b = min(corners), max(corners)
        low, high = low + a, high + b
    return (None if math.isinf(low) else int(low)), (None if math.isinf(high) else int(high))


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _atom_bounds(atom: _Atom, symbols: Mapping[str, Bounds]) -> tuple[float, float]:
    if atom.function is None:
        low, high = symbols.get(atom.text, (0, None))
        return low, math.inf if high is None else high
    (a0, a1), (b0, b1) = (_open_bounds(arg, symbols) for arg in atom.args)
    if atom.function == "min":
        return min(a0, b0), min(a1, b1)
    if atom.function == "max":
        return max(a0, b0), max(a1, b1)
    if b0 <= 0:
        return -math.inf, math.inf
    if atom.function == "mod":
        return 0, b1 - 1
    corners = [_quotient(atom.function, p, q) for p in (a0, a1) for q in (b0, b1)]
    return min(corners), max(corners)


def _open_bounds(d: DimLike, symbols: Mapping[str, Bounds]) -> tuple[float, float]:
    low, high = bounds(d, symbols)
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _quotient(function: str, a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return _FUNCTIONS[function](int(a), int(b))


# -- text


def _term_text(monomial: _Monomial, coefficient: int) -> str:
    factors = [a.text for a in monomial]
    if not factors:
        return str(coefficient)
    if coefficient == -1:
        return "-" + "*".join(factors)
    return "*".join(([str(coefficient)] if coefficient != 1 else []) + factors)


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.:@]*)|([-+*(),]))")


def parse(text: str) -> DimLike:
    """The inverse of `str`: integers, symbols, `+ - *`, and function calls such as `floordiv(N, 2)`.

    Raises ShapeError on anything else, including nesting deeper than MAX_DEPTH and numbers beyond 63 bits.
    """
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > 4096:
            raise ShapeError(f"cannot read the dimension {text[:80]!r}")
        tokens.append(match.group(1) or match.group(2) or match.group(3))
        position = match.end()
    parser = _Parser(tokens, text)
    result = parser.sum(0)
    if parser.peek() is not None:
        raise parser.error()
    return result


class _Parser:
    def __init__(self, tokens: list[str], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.at = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if token is None or (expected is not None and token != expected):
            raise self.error()
        self.at += 1
        return token

    def error(self) -> ShapeError:
        return ShapeError(f"cannot read the dimension {self.text[:80]!r}")

    def sum(self, depth: int) -> DimLike:
        total: DimLike = self.term(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            total = _combine(total, self.term(depth), sign)
        return total

    def term(self, depth: int) -> DimLike:
        result = self.factor(depth)
        while self.peek() == "*":
            self.take()
            result = _multiply(result, self.factor(depth))
        return result

    def factor(self, depth: int) -> DimLike:
        if depth > MAX_DEPTH:
            raise self.error()
        token = self.take()
        if token == "-":
            return _multiply(self.factor(depth + 1), -1)
        if token == "(":
            inner = self.sum(depth + 1)
            self.take(")")
            return inner
        if token.isdigit():
            if len(token) > 19 or int(token) >= 1 << 63:
                raise self.error()
            return int(token)
        if token in _FUNCTIONS and self.peek() == "(":
            self.take("(")
            a = self.sum(depth + 1)
            self.take(",")
            b = self.sum(depth + 1)
            self.take(")")
            return _extreme(token, a, b) if token in ("min", "max") else _divide(token, a, b)
        if token in "+*(),":
            raise self.error()
        return symbol(token)


def shape_text(shape: Iterable[DimLike] | None) -> str:
    """A shape as people write it: `[1, N, 2*T]`, or `[?]` when even the rank is unknown."""
    return "[?]" if shape is None else "[" + ", ".join(str(d) for d in shape) + "]"


def broadcast(*shapes: tuple[DimLike, ...]) -> tuple[DimLike, ...]:
    """The common shape under NumPy's broadcasting rule. Raises ShapeError with both shapes when there is none.

    Two different symbols in one place are taken to be equal or 1: the result is their maximum.
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[DimLike] = []
    for axis in range(-rank, 0):
        dim: DimLike = 1
        for shape in shapes:
            if len(shape) < -axis:
                continue
            other = shape[axis]
            if other == dim or other == 1:
                continue
            if dim == 1:
                dim = other
            elif isinstance(dim, int) and isinstance(other, int):
                raise ShapeError(
                    "shapes " + ", ".join(shape_text(s) for s in shapes) + f" do not broadcast at axis {axis}"
                )
            elif isinstance(dim, int) or isinstance(other, int):
                dim = dim if isinstance(dim, int) else other
            else:
                dim = maximum(dim, other)
        result.append(dim)
    return tuple(result)
