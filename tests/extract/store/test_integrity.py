"""Verification of a store: after any changed byte, either the numbers are unchanged or a fault is reported."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from extract.errors import UserError
from extract.store.activation_store import ActivationStore
from extract.store.hdf5 import LIBVER, seal
from extract.store.integrity import verify
from extract.store.shards import CapturedShard, ShardFiles
from extract.store.writer import export, finish, writing
from tests.support.covering import matrix
from tests.support.draws import draws
from tests.support.made_up_store import (
    D_MODEL,
    IDENTITY,
    N_PROMPTS,
    PRESENT,
    captured,
    content,
    index,
    make,
    shards,
    values,
)
from tests.support.one_line import refused

pytestmark = pytest.mark.slow


def everything(path: Path) -> list[np.ndarray]:
    """Read all a store has to say."""
    with ActivationStore(path) as store:
        numbers = [
            store.read_tensor(layer, position).float().numpy() for layer in store.layers for position in store.positions
        ]
        ragged = [np.concatenate(rows) for rows in (store.token_ids, *(store.role(name) for name in store.positions))]
        return [*numbers, *ragged, store.present, np.array(store.prompt_ids)]


# -- whole stores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_whole_store_has_no_findings_but_another_models_weights(path: Path, dtype: str) -> None:
    seen: list[tuple[int, int]] = []
    make(path, values().clamp(-6e4, 6e4), master=True, dtype=dtype)
    result = verify(path, weights="w", progress=lambda *state: seen.append(state))
    assert result.findings == ()
    assert (result.prompts, result.shards, result.loci) == (N_PROMPTS, 3, 12)
    assert result.bytes == 12 * N_PROMPTS * D_MODEL * (4 if dtype == "float32" else 2)
    assert seen == [(k, 36) for k in range(1, 37)]
    assert verify(path, weights="else").findings == ("it was made with weights of fingerprint w, not else",)
    assert [f.name for f in path.parent.iterdir() if "lock" in f.name or "partial" in f.name] == []


# -- damage ------------------------------------------------------------------------------------------------------------


@draws(60, 300, "n_places")
@matrix("part, dtype", ["master", "shard", "flat"], ["float32", "bfloat16"])
def test_a_changed_byte_is_reported_or_changes_no_number(path: Path, part: str, dtype: str, n_places: int) -> None:
    small = {"positions": ("inst_last", "trigger_last"), "layers": (0, 3), "dtype": dtype}
    with writing(ShardFiles(path, IDENTITY.model_copy(update=small), 5, 6)) as files:
        for shard in files.missing():
            rows = files.rows(shard)
            whole = captured(rows)
            present = PRESENT[[0, 3], rows.start : rows.stop]
            files.write(shard, CapturedShard(whole.values[:2, [0, 3], :, :6], present))
        finish(files, *(some[:5] for some in index()), {})
    if part == "flat":
        export(path, path.with_name("flat.h5"))
        path = path.with_name("flat.h5")
    before, victim = everything(path), path if part != "shard" else shards(path)[0]
    sound = verify(path).findings
    whole, seed = victim.read_bytes(), random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    places = {
        *range(0, 600, 3900 // n_places),
        len(whole) - 1,
        *draw.sample(range(len(whole)), n_places),
    }
    reported = 0
    for at in sorted(places):
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ draw.randrange(1, 256)]) + whole[at + 1 :])
        found = verify(path).findings != sound
        try:
            after = everything(path)
        except UserError:
            reported += 1
            assert found, f"byte {at}: reading says what verify does not"
            continue
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"byte {at}")
        reported += found
    assert reported > 0.8 * len(places)  # the rest is padding of HDF5, about a tenth of so small a file
    victim.write_bytes(whole)
    assert verify(path).findings == sound


def test_a_seal_whose_list_of_parts_is_garbled_is_damage_and_no_traceback(whole: Path, tmp_path: Path) -> None:
    flat = tmp_path / "flat.h5"
    export(whole, flat)
    sound = flat.read_bytes()
    begins = sound.index(b"\nwithout ") + len(b"\nwithout ")
    ends = sound.index(b"\n", begins)
    assert ends > begins
    for at in range(begins, ends):
        for other in b"-, 0x":
            if sound[at] != other:
                flat.write_bytes(sound[:at] + bytes([other]) + sound[at + 1 :])
                refused(r"flat\.h5 is (damaged|not a readable HDF5 file)", everything, flat)
    flat.write_bytes(sound)
    everything(flat)


def test_every_fault_has_a_line(whole: Path) -> None:
    files = shards(whole)
    files[0].unlink()
    stored = bytearray(files[1].read_bytes())
    stored[stored.find(values()[1, 2, 4:8].numpy().tobytes()) + 100] ^= 1
    files[1].write_bytes(bytes(stored))
    shutil.copy(files[1], files[2])
    findings = verify(whole).findings
    assert len(findings) == 3
    for finding, message in zip(findings, ("00000-of-00003.h5 is missing", "layer 2, position inst_mean cannot be read",
                                        "it is shard 1"), strict=True):  # fmt: skip
        assert message in finding


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["prompts/record"].__setitem__(3, file["prompts/record"][4]), "do not match its prompt hash"),
        (lambda file: file["present"].__setitem__((3, 0), False), "trigger_last is marked absent for prompt row 0"),
        (lambda file: file["present"].__setitem__((3, 0), False), "/present differs from the master's"),
        (lambda file: file.attrs.__setitem__("digest", "0" * 64), "its digest does not match the digests of"),
        (lambda file: file["shards/crc32"].__setitem__((0, 0, 1), 7), "has the wrong CRC-32"),
        (lambda file: file["shards/digest"].__setitem__(1, b"0" * 64), "its numbers have changed"),
    ],
)
def test_what_contradicts_itself_is_found_behind_a_good_seal(
    whole: Path, change: Callable[[h5py.File], None], message: str
) -> None:
    with h5py.File(whole, "r+", libver=LIBVER) as file:
        change(file)
    assert len(verify(whole).findings) == 1  # the seal
    with whole.open("rb+") as file:
        seal(file)  # agrees with what the file now holds, as after no accident
    assert any(message in finding for finding in verify(whole).findings)


def test_numbers_in_absent_rows_and_nan_are_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = values()
    data[0, 3, 1] = 1.0
    data[1, 1, 6, 3] = float("nan")
    monkeypatch.setattr(ShardFiles, "_stored", lambda self, shard, captured, *at: captured.values[at].contiguous())
    make(path, data, master=True)
    findings = "\n".join(verify(path).findings)
    assert "00000-of-00003.h5: layer 0, position trigger_last holds numbers in rows marked absent" in findings
    assert "00001-of-00003.h5: layer 2, position post_last holds NaN or infinity" in findings


# -- flat files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_flat_copy_reads_like_its_store(path: Path, tmp_path: Path, dtype: str) -> None:
    flat = tmp_path / "else" / "flat.h5"
    flat.parent.mkdir()
    make(path, values().clamp(-6e4, 6e4), master=True, dtype=dtype)
    export(path, flat)
    before = everything(path)
    shutil.rmtree(tmp_path / "activations.h5.shards")
    path.unlink()
    for one, other in zip(before, everything(flat), strict=True):
        np.testing.assert_array_equal(one, other)
    with h5py.File(flat) as file:
        assert not file["activations/resid_post"].is_virtual
        np.testing.assert_array_equal(file["activations/resid_post"][:].astype(np.float32), content(flat))
        assert file["prompts/pair"].asstr()[1] == "é"
    assert verify(flat).findings == ()
    assert [p.name for p in flat.parent.iterdir()] == ["flat.h5"]
    export(flat, tmp_path / "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == flat.read_bytes()


def test_an_export_never_overwrites_and_never_copies_damage(whole: Path, tmp_path: Path) -> None:
    export(whole, tmp_path / "flat.h5")
    refused(r"flat\.h5 exists already; choose another name, or delete it", export, whole, tmp_path / "flat.h5")
    refused(r"cannot write .*there is no directory", export, whole, tmp_path / "nowhere" / "flat.h5")
    stored = bytearray(shards(whole)[2].read_bytes())
    stored[stored.find(values()[2, 3, 8:11].numpy().tobytes()) + 9] ^= 4
    shards(whole)[2].write_bytes(bytes(stored))
    refused("is damaged at layer 5, position trigger_last", export, whole, tmp_path / "other.h5")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["flat.h5", "run"]
