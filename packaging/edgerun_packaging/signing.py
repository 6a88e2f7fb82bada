"""Ed25519 signatures of plans. docs/packed-file-format.md describes the block of 128 bytes that a packed file holds.

The signature covers the plan, with the weights; not the stub, which is what verifies. Keys are PEM files (PKCS #8 and
SubjectPublicKeyInfo), as `openssl genpkey -algorithm ed25519` writes them.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgerun.errors import BackendUnavailable, FileFormatError, InputOutputError
from edgerun.packed import SIGNATURE_BYTES, map_plan, read_footer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAGIC, VERSION = b"EDGESIGN", 1
WORDS = b"edgerun plan v1\0"
_LAYOUT = struct.Struct("<8sII32s64s16x")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature block. `required`: the executable verifies it whenever it starts."""

    key: bytes
    signature: bytes
    required: bool

    def encode(self) -> bytes:
        """The SIGNATURE_BYTES to write."""
        return _LAYOUT.pack(MAGIC, VERSION, int(self.required), self.key, self.signature)

    @property
    def fingerprint(self) -> str:
        """The public key as 64 hexadecimal digits."""
        return self.key.hex()


def message(plan: bytes | memoryview) -> bytes:
    """What is signed: WORDS and the SHA-512 of the plan."""
    digest = hashlib.sha512()
    view = memoryview(plan)
    for start in range(0, len(view), _PIECE):
        digest.update(view[start : start + _PIECE])
    return WORDS + digest.digest()


def sign(plan: bytes | memoryview, key: Path, *, required: bool = False) -> Signature:
    """Sign with the private key in a PEM file.

    Raises InputOutputError, FileFormatError for another kind of key, BackendUnavailable without `cryptography`.
    """
    private = _private_key(key)
    return Signature(private.public_key().public_bytes_raw(), private.sign(message(plan)), required)


def signature_of(path: Path) -> Signature | None:
    """The signature block of a packed file, None when it has none. Raises FileFormatError, InputOutputError."""
    footer = read_footer(path)
    if footer.archive_bytes != SIGNATURE_BYTES:
        return None
    with path.open("rb") as file:
        file.seek(footer.plan_offset + footer.plan_bytes)
        magic, version, required, key, signature = _LAYOUT.unpack(file.read(SIGNATURE_BYTES))
    if magic != MAGIC or version != VERSION:
        raise FileFormatError(f"the signature of {path} is of an unknown kind")
    return Signature(key, signature, bool(required))


def verify(path: Path, *, key: bytes | None = None) -> bool:
    """Whether a packed file is signed, by the owner of `key` (default: of the key in it), and was not changed since.

    Raises BackendUnavailable without `cryptography`.
    """
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = signature_of(path)
    if found is None or (key is not None and found.key != key):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(found.key).verify(found.signature, message(map_plan(path)))
    except InvalidSignature:
        return False
    return True


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as e:
        raise BackendUnavailable("signatures need cryptography", hint="pip install 'edgerun[sign]'") from e


def _private_key(path: Path) -> Ed25519PrivateKey:
    _require()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        data = path.read_bytes()
    except OSError as e:
        raise InputOutputError(f"cannot read the key {path}: {e.strerror}") from e
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError) as e:
        raise FileFormatError(f"{path} is no private key without a password (PEM)") from e
    if not isinstance(key, Ed25519PrivateKey):
        raise FileFormatError(
            f"{path} holds another kind of key than Ed25519", hint="openssl genpkey -algorithm ed25519 -out key.pem"
        )
    return key
