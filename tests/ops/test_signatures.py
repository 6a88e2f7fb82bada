"""Every core op: its NumPy kernel has the signature of its shape rule, and its documentation says what it does."""

import pytest

from edgerun.backends.numpy import registry as kernels
from edgerun.ops import registry as ops

ops.load_all()


@pytest.mark.parametrize("name", sorted(ops.OPS))
def test_kernel_has_the_signature_of_the_rule(name):
    spec = ops.OPS[name]
    assert ops.describe_signature(kernels.find(name)) == (spec.inputs, spec.attributes)


@pytest.mark.parametrize("name", sorted(ops.OPS))
def test_rule_is_documented(name):
    assert len(ops.OPS[name].summary) > 10
