"""Packed models with branches: the one taken runs, one that cannot run ends with a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun.errors import ShapeError
from edgerun.graph import Graph, Node
from edgerun_packaging.pack import Options, pack
from edgerun_targets import load
from tests.packaging.conftest import HOST, call

F32 = DType.F32


def choice(*, fails_when: bool) -> Graph:
    """y = -x, unless c is `fails_when`."""
    works, fails = Graph(outputs=["r"]), Graph(outputs=["r"])
    works.add_tensor("r", F32, (4,))
    works.nodes.append(Node("elementwise", ["x"], ["r"], {"program": (("neg", F32, 0),)}, "negate"))
    fails.add_tensor("r", F32, (4,))
    what = {"message": "sizes 3 and 4 do not fit", "types": ((F32, (4,)),)}
    fails.nodes.append(Node("fail", [], ["r"], what, "fail"))
    g = Graph(inputs=["c", "x"], outputs=["y"])
    g.add_tensor("c", DType.BOOL, ())
    g.add_tensor("x", F32, (4,))
    g.add_tensor("y", F32, (4,))
    then_branch, else_branch = (fails, works) if fails_when else (works, fails)
    attrs = {"then_branch": then_branch, "else_branch": else_branch}
    g.nodes.append(Node("if", ["c"], ["y"], attrs, "choose"))
    return g


@pytest.mark.parametrize("fails_when", [True, False])
def test_a_branch_that_cannot_run_is_a_negative_result(fails_when: bool, tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    golden, path = tmp_path / "g.npz", tmp_path / "m"
    np.savez(golden, c=np.array(not fails_when), x=x)
    pack(choice(fails_when=fails_when), load(HOST), path, options=Options(golden_file=golden))
    assert call(path, "selftest").returncode == 0
    np.save(tmp_path / "x.npy", x)
    for flag in (False, True):
        np.save(tmp_path / "c.npy", np.array(flag))
        inputs = ["--input", f"c={tmp_path / 'c.npy'}", "--input", f"x={tmp_path / 'x.npy'}"]
        done = call(path, "run", *inputs, "--output-dir", str(tmp_path / "out"), "--force")
        if flag == fails_when:
            assert done.returncode == 1 and b"'choose': sizes 3 and 4 do not fit" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
            assert np.load(tmp_path / "out" / "y.npy").tolist() == (-x).tolist()


def test_drawn_inputs_that_cannot_run_name_the_remedy(tmp_path: Path) -> None:
    caught = []
    for fails_when in (True, False):  # whichever of them the seed draws
        try:
            pack(choice(fails_when=fails_when), load(HOST), tmp_path / str(fails_when))
        except ShapeError as e:
            caught.append(e)
    assert len(caught) == 1
    assert "drawn inputs" in caught[0].message and "--golden" in caught[0].hint
