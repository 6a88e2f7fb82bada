"""Signatures: made on the host, verified by the host and by the executable on every architecture; updates and back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgerun.cli.main import run
from edgerun.errors import FileFormatError, InputOutputError, UsageError
from edgerun.graph import Graph
from edgerun.packed import map_plan, read_footer
from edgerun_packaging.pack import Options, pack
from edgerun_packaging.signing import sign, signature_of, verify
from edgerun_packaging.stubs import ARCHES
from edgerun_packaging.update import rollback, update
from edgerun_targets import load
from tests.packaging.conftest import DIGITS, HOST, call

PEM = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def key_file(folder: Path, seed: int = 1) -> Path:
    path = folder / f"key{seed}.pem"
    path.write_bytes(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32).private_bytes(*PEM))
    return path


def make(graph: Graph, path: Path, arch: str = HOST, key: Path | None = None, required: bool = False, seed: int = 0):
    options = Options(threads=1, seed=seed, key=key, require_signature=required)
    packed = pack(graph, load(arch), path, source=DIGITS / "digits.onnx", options=options)
    assert packed.bytes == packed.footprint.size_bytes == path.stat().st_size
    return path


def damage(path: Path, where: int) -> None:
    """Flip a bit of a weight, so that all checksums outside the weights stay right."""
    data = bytearray(path.read_bytes())
    data[where] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("arch", ARCHES)
def test_the_executable_verifies(digits: Graph, arch: str, tmp_path: Path) -> None:
    path = make(digits, tmp_path / "model", arch, key_file(tmp_path), required=True)
    assert verify(path)
    done = call(path, "selftest", "--json", arch=arch)
    assert done.returncode == 0 and json.loads(done.stdout)["signature"] is True
    footer = read_footer(path)
    damage(path, footer.plan_offset + footer.plan_bytes - 100)
    assert not verify(path)
    done = call(path, "info", arch=arch)
    assert done.returncode == 5 and b"signature of the model is wrong" in done.stderr


def test_without_the_demand_only_the_selftest_complains(digits: Graph, tmp_path: Path) -> None:
    path = make(digits, tmp_path / "model", key=key_file(tmp_path))
    footer = read_footer(path)
    damage(path, footer.plan_offset + footer.plan_bytes + 60)  # the signature itself
    assert call(path, "info").returncode == 0
    done = call(path, "selftest")
    assert done.returncode == 1 and b"signature WRONG" in done.stdout
    assert call(make(digits, tmp_path / "bare"), "selftest", "--json").stdout.count(b'"signature": null') == 1


def test_many_keys_and_messages(digits: Graph, tmp_path: Path) -> None:
    """The arithmetic of the executable, on other numbers each time; a changed key or signature never passes."""
    path = make(digits, tmp_path / "model", key=key_file(tmp_path))
    footer, r = read_footer(path), np.random.default_rng(0)
    data = bytearray(path.read_bytes())
    place = footer.plan_offset + footer.plan_bytes
    for seed in range(2, 14):
        block = bytearray(sign(map_plan(path), key_file(tmp_path, seed), required=True).encode())
        copy = tmp_path / f"signed{seed}"
        for change in (False, True):
            if change:
                block[16 + int(r.integers(0, 96))] ^= 1 << int(r.integers(0, 8))
            data[place : place + 128] = block
            copy.write_bytes(data)
            copy.chmod(0o755)
            assert call(copy, "info").returncode == (5 if change else 0), (seed, change, block.hex())
            assert verify(copy) is not change
        copy.unlink()


@pytest.mark.parametrize("where", [0, 8])
def test_blocks_of_other_kinds_are_refused(digits: Graph, tmp_path: Path, where: int) -> None:
    path = make(digits, tmp_path / "model", key=key_file(tmp_path))
    footer = read_footer(path)
    damage(path, footer.plan_offset + footer.plan_bytes + where)
    with pytest.raises(FileFormatError, match="unknown kind"):
        signature_of(path)
    assert b"unknown kind" in call(path, "info").stderr


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "ec.pem"
    other.write_bytes(generate_private_key(SECP256R1()).private_bytes(*PEM))
    with pytest.raises(FileFormatError, match="another kind"):
        sign(b"plan", other)
    other.write_text("no key")
    with pytest.raises(FileFormatError, match="no private key"):
        sign(b"plan", other)
    with pytest.raises(InputOutputError):
        sign(b"plan", tmp_path / "absent.pem")


def test_updates_and_back(digits: Graph, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    path, new = make(digits, tmp_path / "model", key=key), make(digits, tmp_path / "new", key=key, seed=7)
    before = path.read_bytes()
    assert run(["update", str(path), str(new)]) == 0
    assert bytes(map_plan(path)) == bytes(map_plan(new)) and verify(path)
    assert (tmp_path / "model.old").read_bytes() == before
    assert call(path, "selftest").returncode == 0
    assert run(["update", str(path), "--rollback"]) == 0
    assert path.read_bytes() == before and call(path, "selftest").returncode == 0
    with pytest.raises(InputOutputError, match="bring"):
        rollback(path)
    assert run(["update", str(path)]) == 2


def test_an_update_keeps_the_demand(digits: Graph, tmp_path: Path) -> None:
    key = key_file(tmp_path)
    path, new = (
        make(digits, tmp_path / "model", key=key, required=True),
        make(digits, tmp_path / "new", key=key, seed=7),
    )
    update(path, new)
    found = signature_of(path)
    assert found is not None and found.required and call(path, "info").returncode == 0


def test_an_update_while_the_model_runs(digits: Graph, tmp_path: Path) -> None:
    """The running process keeps the file that it opened."""
    path, new = make(digits, tmp_path / "model"), make(digits, tmp_path / "new", seed=7)
    running = subprocess.Popen(
        [str(path), "bench", "--shape", "image=1,1,8,8", "--seconds", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    update(path, new)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0 and json.loads(out)
    assert call(path, "selftest").returncode == 0


def test_a_signed_file_takes_only_its_own_key(digits: Graph, tmp_path: Path) -> None:
    path = make(digits, tmp_path / "model", key=key_file(tmp_path))
    before = path.read_bytes()
    unsigned = make(digits, tmp_path / "unsigned")
    foreign = make(digits, tmp_path / "foreign", key=key_file(tmp_path, 2))
    changed = make(digits, tmp_path / "changed", key=key_file(tmp_path))
    footer = read_footer(changed)
    damage(changed, footer.plan_offset + footer.plan_bytes - 100)
    other = make(digits, tmp_path / "other", next(a for a in ARCHES if a != HOST), key_file(tmp_path))
    for new, message in ((unsigned, "is not signed"), (foreign, "key"), (changed, "changed"), (other, "is for")):
        with pytest.raises(UsageError, match=message):
            update(path, new)
        assert path.read_bytes() == before and not (tmp_path / "model.old").exists()
