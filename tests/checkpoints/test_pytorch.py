"""State dicts without PyTorch: the zip format is written here by hand, as `torch.save` lays it out."""

import collections
import io
import os
import pickle
import random
import subprocess
import zipfile

import numpy as np
import pytest

from edgerun.errors import EdgerunError, ImportFailure
from edgerun_converters.checkpoints.pytorch import read_file


class Global:
    """Pickles as a reference to a global by name."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Storage:
    def __init__(self, kind, key, array):
        self.kind, self.key, self.array = kind, key, array


class Call:
    """Pickles as function(*arguments)."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments


class Writer(pickle._Pickler):
    """The pure-Python pickler: its save methods can be taught globals that do not exist here."""

    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", Global("torch", value.kind), value.key, "cpu", value.array.size)
        return None

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Global):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Call):
            self.save(value.function)
            self.save(tuple(value.arguments))
            self.write(pickle.REDUCE)
        else:
            super().save(value, save_persistent_id)


def dump(value) -> bytes:
    buffer = io.BytesIO()
    Writer(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def write(path, content, storages, extra=()):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content if isinstance(content, bytes) else dump(content))
        archive.writestr("archive/byteorder", "little")
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.array.tobytes())
        for name, data in extra:
            archive.writestr(name, data)


def tensor(storage, offset, size, stride):
    rebuild = Global("torch._utils", "_rebuild_tensor_v2")
    return Call(rebuild, storage, offset, size, stride, False, collections.OrderedDict())


def test_tensors_views_and_parameters(tmp_path):
    path = tmp_path / "m.pt"
    a = Storage("FloatStorage", "0", np.arange(12, dtype=np.float32))
    b = Storage("LongStorage", "1", np.array([7], np.int64))
    transposed = tensor(a, 2, (2, 3), (1, 2))
    parameter = Call(Global("torch._utils", "_rebuild_parameter"), tensor(a, 0, (12,), (1,)), True, {})
    content = {"net": collections.OrderedDict(w=transposed, p=parameter), "steps": [tensor(b, 0, (), ())], "lr": 0.1}
    write(path, content, [a, b])
    found = read_file(path)
    np.testing.assert_array_equal(found["net.w"], np.array([[2, 4, 6], [3, 5, 7]], np.float32))
    np.testing.assert_array_equal(found["net.p"], np.arange(12))
    assert found["steps.0"] == 7 and set(found) == {"net.w", "net.p", "steps.0"}


EXPLOITS = {
    "os.system": Call(Global("os", "system"), "touch /tmp/owned"),
    "posix.system": Call(Global("posix", "system"), "true"),
    "eval": Call(Global("builtins", "eval"), "__import__('os').getcwd()"),
    "exec": Call(Global("builtins", "exec"), "import os"),
    "getattr": Call(Global("builtins", "getattr"), 1, "real"),
    "subprocess": Call(Global("subprocess", "Popen"), ["true"]),
    "runpy": Call(Global("runpy", "_run_code"), "1", {}),
    "torch.hub": Call(Global("torch.hub", "load"), "x", "y"),
    "dotted name": Call(Global("torch._utils", "_rebuild_tensor_v2.__globals__"), 1),
    "dunder through an allowed module": Call(Global("collections", "OrderedDict.__init__.__globals__"), 1),
    "numpy reconstruct": Call(Global("numpy.core.multiarray", "_reconstruct"), 1),
    "functools.partial": Call(Global("functools", "partial"), Global("os", "system"), "true"),
    "whole model": Call(Global("torchvision.models.resnet", "ResNet")),
}


@pytest.mark.parametrize("name", EXPLOITS)
def test_anything_but_tensors_is_refused_by_name(tmp_path, name):
    path = tmp_path / "m.pt"
    write(path, {"w": EXPLOITS[name]}, [])
    with pytest.raises(ImportFailure, match="only tensors and plain containers"):
        read_file(path)


class Reduces:
    """Pickles as the call that `__reduce__` gives: the pattern of every published exploit."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def touch(path):
    return f"__import__('pathlib').Path({str(path)!r}).touch()"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", ["system", "eval", "exec", "getattr chain", "nested", "popen", "state"])
def test_exploits_written_by_pickle_itself_do_not_run(tmp_path, kind, protocol):
    owned = tmp_path / "owned"
    code = touch(owned)
    hostile = {
        "system": Reduces(os.system, (f"touch {owned}",)),
        "eval": Reduces(eval, (code,)),
        "exec": Reduces(exec, (code,)),
        "getattr chain": Reduces(getattr, (Reduces(__import__, ("os",)), "system")),
        "nested": [Reduces(tuple, ([Reduces(eval, (code,))],))],
        "popen": Reduces(subprocess.Popen, (["touch", str(owned)],)),
        "state": Reduces(collections.OrderedDict, (), {"items": Reduces(eval, (code,))}),
    }[kind]
    pickle.loads(pickle.dumps(hostile, protocol)) if kind in ("eval", "exec") else None  # the exploit itself works
    assert owned.exists() == (kind in ("eval", "exec"))
    owned.unlink(missing_ok=True)
    path = tmp_path / "m.pt"
    write(path, pickle.dumps({"w": hostile}, protocol), [])
    with pytest.raises(ImportFailure, match="only tensors and plain containers"):
        read_file(path)
    assert not owned.exists()


RAW = {
    "INST": b"(S'true'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'true'\no.",
    "NEWOBJ": b"\x80\x02cos\nsystem\nU\x04true\x85\x81.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "EXT1": b"\x80\x02\x82\x01.",
    "persistent id of text": b"Pos.system\n.",
    "BUILD on a storage type": b"\x80\x02ctorch\nFloatStorage\n}U\x05dtypeK\x01sb.",
    "BUILD on a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}U\x01xK\x01sb.",
    "call of a storage type": b"\x80\x02ctorch\nFloatStorage\nU\x04true\x85R.",
    "tensor of text": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(U\x01xK\x00)))tR.",
    "endless memo": b"\x80\x02j\xff\xff\xff\x7f.",
    "nothing": b".",
    "stack underflow": b"\x80\x02R.",
}


@pytest.mark.parametrize("name", RAW)
def test_hostile_instructions_are_refused(tmp_path, name):
    path = tmp_path / "m.pt"
    write(path, RAW[name], [])
    with pytest.raises(ImportFailure):
        read_file(path)


def test_containers_that_hold_themselves_end(tmp_path):
    path = tmp_path / "m.pt"
    knot = {"a": []}
    knot["a"] += [knot, knot["a"]] * 1000
    write(path, knot, [])
    with pytest.raises(ImportFailure, match="no tensors"):
        read_file(path)


BAD_VIEWS = {
    "beyond the end": (0, (13,), (1,)),
    "offset beyond the end": (12, (1,), (1,)),
    "huge stride": (0, (2,), (1 << 40,)),
    "negative stride": (5, (2,), (-1,)),
    "negative offset": (-1, (2,), (1,)),
    "ranks differ": (0, (2, 2), (1,)),
    "overlong size": (0, (1 << 60,), (1,)),
}


@pytest.mark.parametrize("name", BAD_VIEWS)
def test_views_outside_their_storage_are_refused(tmp_path, name):
    path = tmp_path / "m.pt"
    storage = Storage("FloatStorage", "0", np.arange(12, dtype=np.float32))
    write(path, {"w": tensor(storage, *BAD_VIEWS[name])}, [storage])
    with pytest.raises(ImportFailure):
        read_file(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(dump({"w": 1}))
    with pytest.raises(ImportFailure, match="not a zip"):
        read_file(path)
    write(path, {"lr": 0.1}, [])
    with pytest.raises(ImportFailure, match="no tensors"):
        read_file(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("code/model.py", "x")
    with pytest.raises(ImportFailure, match="no PyTorch checkpoint"):
        read_file(path)


def test_a_storage_of_the_wrong_size_is_refused(tmp_path):
    path = tmp_path / "m.pt"
    storage = Storage("FloatStorage", "0", np.arange(12, dtype=np.float32))
    storage_file = Storage("FloatStorage", "0", np.arange(3, dtype=np.float32))
    write(path, {"w": tensor(storage, 0, (12,), (1,))}, [storage_file])
    with pytest.raises(ImportFailure, match="12 bytes for 12 elements"):
        read_file(path)


def test_mutated_files_never_crash(tmp_path):
    path = tmp_path / "m.pt"
    storage = Storage("FloatStorage", "0", np.arange(12, dtype=np.float32))
    write(path, {"w": tensor(storage, 0, (3, 4), (4, 1))}, [storage])
    data = path.read_bytes()
    generator = random.Random(3)
    for _ in range(400):
        mutant = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(mutant))
            if generator.random() < 0.2:
                del mutant[at:]
                mutant = mutant or bytearray(b"x")
            else:
                mutant[at] = generator.randrange(256)
        path.write_bytes(mutant)
        try:
            read_file(path)
        except EdgerunError as e:
            assert "\n" not in str(e)
