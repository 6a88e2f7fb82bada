"""Symbolic dimensions: canonical form, bounds, text, against plain integer arithmetic."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgerun.dims import (
    Dim,
    bounds,
    broadcast,
    ceildiv,
    clean_symbol,
    evaluate,
    floordiv,
    free_symbols,
    maximum,
    minimum,
    modulo,
    parse,
    substitute,
    symbol,
)
from edgerun.errors import ShapeError

N, T = symbol("N"), symbol("T")
OPERATIONS = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "floordiv": (floordiv, lambda a, b: a // b),
    "ceildiv": (ceildiv, lambda a, b: -(-a // b)),
    "mod": (modulo, lambda a, b: a % b),
    "min": (minimum, min),
    "max": (maximum, max),
}


def test_constants_become_ints():
    assert N - N == 0 and isinstance(N - N, int)
    assert (N + 3) - N == 3
    assert N * 0 == 0


def test_equal_expressions_compare_equal():
    assert (N + 1) * 2 - 2 == N * 2
    assert ceildiv(N * 4, 4) == N
    assert floordiv(N * T * 6, T * 3) == N * 2
    assert floordiv(N * 4 + 3, 2) == N * 2 + 1
    assert hash((N + T) * 2) == hash(T * 2 + N * 2)


def test_bounds_decide_extremes():
    assert maximum(N, 0) == N
    assert minimum(N, N + 1) == N
    assert bounds(floordiv(N - 1, 2) + 1, {"N": (1, 10)}) == (1, 5)
    assert bounds(N) == (0, None)


def test_a_symbolic_dimension_has_no_truth_or_number():
    with pytest.raises(ShapeError, match="symbolic"):
        bool(N)
    with pytest.raises(ShapeError, match="bind it"):
        int(N)


@pytest.mark.parametrize("text", ["", "2*", "N +", "floordiv(N)", "a b", "1" * 30, "(" * 100 + "N", "N;T", "max(N, 1"])
def test_malformed_text_is_refused(text):
    with pytest.raises(ShapeError, match="cannot read"):
        parse(text)


def test_division_by_zero_is_refused():
    with pytest.raises(ShapeError, match="zero"):
        floordiv(N, 0)


def test_broadcast():
    assert broadcast((N, 1), (1, 3)) == (N, 3)
    assert broadcast((3,), (N,)) == (3,)
    assert broadcast((N,), (N,)) == (N,)
    assert broadcast((0,), (1,)) == (0,)
    with pytest.raises(ShapeError, match=r"\[2\], \[3\]"):
        broadcast((2,), (3,))


def test_names_from_exporters_become_symbols():
    name = clean_symbol("p2o.DynamicDimension 3*")
    assert parse(str(symbol(name) * 2 + 1)) == symbol(name) * 2 + 1
    assert clean_symbol("3x") == "_3x"


@st.composite
def expressions(draw, depth=4):
    """(symbolic, function of the symbol values) built by the same random tree."""
    kind = (
        draw(st.sampled_from(["const", "N", "T", "op", "op"])) if depth else draw(st.sampled_from(["const", "N", "T"]))
    )
    if kind == "const":
        value = draw(st.integers(0, 12))
        return value, lambda env: value
    if kind in "NT":
        return symbol(kind), lambda env: env[kind]
    name = draw(st.sampled_from(sorted(OPERATIONS)))
    a, fa = draw(expressions(depth - 1))
    if name in ("floordiv", "ceildiv", "mod"):
        divisor = draw(st.integers(1, 7))
        b, fb = divisor, lambda env: divisor
    else:
        b, fb = draw(expressions(depth - 1))
    symbolic, numeric = OPERATIONS[name]
    return symbolic(a, b), lambda env: numeric(fa(env), fb(env))


@given(expressions(), st.integers(0, 50), st.integers(0, 50))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_expressions_agree_with_integer_arithmetic(pair, n, t):
    dim, function = pair
    env = {"N": n, "T": t}
    expected = function(env)
    assert evaluate(dim, env) == expected
    assert evaluate(parse(str(dim)), env) == expected
    low, high = bounds(dim, {"N": (0, 50), "T": (0, 50)})
    assert (low is None or low <= expected) and (high is None or expected <= high)
    partly = substitute(dim, {"N": n})
    assert "N" not in free_symbols(partly)
    assert evaluate(partly, env) == expected
    if isinstance(dim, Dim):
        assert parse(str(dim)) == dim
