"""Safetensors files and sharded folders."""

import contextlib
import json
import random

import numpy as np
import pytest

from edgerun.errors import EdgerunError, ImportFailure
from edgerun_converters.checkpoints.safetensors import INDEX, read_file, read_folder

safetensors = pytest.importorskip("safetensors.numpy")


def test_reads_what_the_library_writes(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(3, np.int64), "c": np.zeros((0, 4))}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    found = read_file(tmp_path / "x.safetensors")
    assert set(found) == set(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype and found[name].shape == array.shape


def test_shards(tmp_path):
    safetensors.save_file({"a": np.ones(2, np.float32)}, tmp_path / "s1.safetensors")
    safetensors.save_file({"b": np.ones(3, np.float32)}, tmp_path / "s2.safetensors")
    assert set(read_folder(tmp_path)) == {"a", "b"}
    index = tmp_path / INDEX
    index.write_text(json.dumps({"weight_map": {"a": "s1.safetensors"}}))
    assert set(read_folder(tmp_path)) == {"a"}
    index.write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(ImportFailure, match=r"gone\.safetensors"):
        read_folder(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../s1.safetensors"}}))
    with pytest.raises(ImportFailure, match="outside"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "row",
    [
        {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]},
        {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]},
        {"dtype": "X", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        [],
    ],
)
def test_hostile_entries_are_refused(tmp_path, row):
    header = json.dumps({"a": row}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ImportFailure):
        read_file(path)


def test_mutated_files_never_crash(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"a": np.ones((2, 3), np.float32), "b": np.arange(4)}, path)
    data = path.read_bytes()
    generator = random.Random(1)
    for _ in range(400):
        mutant = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(mutant))
            if generator.random() < 0.2:
                del mutant[at:]
                mutant = mutant or bytearray(b"x")
            else:
                mutant[at] = generator.randrange(256)
        (tmp_path / "m.safetensors").write_bytes(mutant)
        with contextlib.suppress(EdgerunError):
            read_file(tmp_path / "m.safetensors")
