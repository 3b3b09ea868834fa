"""The activation store on synthetic numbers: reads what was written, and reports damaged or foreign files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from extract.store import activation_store
from extract.store.activation_store import ActivationStore
from extract.store.integrity import verify
from extract.store.shards import CapturedShard, ShardFiles
from extract.store.writer import finish, writing
from tests.support.covering import matrix
from tests.support.made_up_store import (
    D_MODEL,
    IDENTITY,
    N_PROMPTS,
    TORCH,
    captured,
    content,
    enter,
    index,
    made_up,
    make,
    shards,
    values,
)
from tests.support.one_line import refused

# -- round trip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TORCH)
def test_round_trip_equals_the_rounding_of_torch(path: Path, dtype: str) -> None:
    small = values().clamp(-6e4, 6e4)
    make(path, small, master=True, dtype=dtype)
    expected = small.to(TORCH[dtype]).float().numpy()
    np.testing.assert_array_equal(content(path), expected)
    with ActivationStore(path) as store:
        read = store.read_tensor(2, "trigger_last")
        assert read.dtype == TORCH[dtype]
        assert torch.equal(read.view(torch.uint8), small[1, 3].to(TORCH[dtype]).view(torch.uint8))  # -0.0 too
    with h5py.File(path) as file:  # nothing of this project is needed to read it
        part = file["activations/resid_post"][1, 2]
        assert part.shape == (N_PROMPTS, D_MODEL)
        assert part.dtype.kind == "f"
        np.testing.assert_array_equal(part.astype(np.float32), expected[1, 2])
        assert file["activations/resid_post"].shape == (3, 4, N_PROMPTS, D_MODEL)
    with h5py.File(shards(path)[0]) as file:
        data = file["activations/resid_post"]
        assert (data.chunks, data.fletcher32) == ((1, 1, 4, D_MODEL), True)
        assert data.id.get_storage_size() == 3 * 4 * (4 * D_MODEL * TORCH[dtype].itemsize + 4)  # with its checksums


def test_the_index_is_in_the_file(whole: Path) -> None:
    with ActivationStore(whole) as store:
        assert store.layers == (0, 2, 5)
        assert store.positions == IDENTITY.positions
        assert store.prompts == index()[0]
        assert store.prompt_ids == tuple(f"id-{i}" for i in range(N_PROMPTS))
        assert store.present[:3].all()
        assert store.present[3].tolist() == [i % 3 == 0 for i in range(N_PROMPTS)]
        described = json.loads(json.dumps(store.describe().to_dict()))
        assert described["shape"] == [3, 4, N_PROMPTS, D_MODEL]
        assert described["absent"] == {"inst_last": 0, "post_last": 0, "inst_mean": 0, "trigger_last": 7}
        assert described["weights"] == "w"
        assert [store.token_ids[i].tolist() for i in (0, 3)] == [[0, 1], [0, 1, 2, 3, 4]]
        assert [store.role("trigger_last")[i].tolist() for i in (0, 1)] == [[0], []]
    with h5py.File(whole) as file:
        assert file.attrs["complete"]
        assert file.attrs["schema"] == 3
        assert file.attrs["dtype"] == "float32"
        assert file["tokens/offsets"][:3].tolist() == [0, 2, 5]
        assert file["prompts/pair"].asstr()[:2].tolist() == ["", "é"]
        assert json.loads(file["prompts/messages"][0])[0]["content"] == "töte"


def test_a_moved_run_directory_stays_readable(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, moved = content(whole), tmp_path / "else" / "where"
    shutil.copytree(whole.parent, moved)
    shutil.rmtree(whole.parent)
    np.testing.assert_array_equal(content(moved / whole.name), before)
    monkeypatch.chdir(moved)
    np.testing.assert_array_equal(content(Path(whole.name)), before)
    with h5py.File(moved / whole.name) as file:
        np.testing.assert_array_equal(file["activations/resid_post"][:], before)


def test_responses_and_their_positions_are_in_the_index(path: Path) -> None:
    """`response_2` is no role of any prompt: which rows have it is what the shards say."""
    responses = [tuple(range(i % 4)) for i in range(N_PROMPTS)]
    present = np.array([[True] * N_PROMPTS, [len(tokens) >= 2 for tokens in responses]])
    data = values()[:, :2] * torch.from_numpy(present)[None, :, :, None]
    with writing(made_up(path, positions=("inst_last", "response_2"))) as files:
        for shard in files.missing():
            here = slice(files.rows(shard).start, files.rows(shard).stop)
            files.write(shard, CapturedShard(data[:, :, here], present[:, here], tuple(responses[here])))
        finish(files, *index(), {})
    with ActivationStore(path) as store:
        np.testing.assert_array_equal(store.present, present)
        assert [tuple(tokens) for tokens in store.responses] == responses
        assert store.describe().absent == {"inst_last": 0, "response_2": 6}
    assert verify(path).findings == ()


def test_wrong_shapes_are_refused_for_a_shard(path: Path) -> None:
    with writing(made_up(path)) as files:
        whole = captured(files.rows(0))
        with pytest.raises(ValueError, match=r"shard 2 has shape \(3, 4, 3, 48\); got values \(3, 4, 4, 48\)"):
            files.write(2, whole)
        with pytest.raises(ValueError, match="shard 0: rows without trigger_last must be zero"):
            files.write(0, replace(whole, values=torch.ones_like(whole.values)))
        with pytest.raises(ValueError, match="shard 0 has 4 rows; got 1 responses"):
            files.write(0, replace(whole, responses=((1,),)))
        assert shards(path) == []


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count the bytes a process reads")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reading_one_locus_of_10000_prompts_reads_its_own_bytes(path: Path, dtype: str) -> None:
    identity = IDENTITY.model_copy(update={"dtype": dtype, "rows_per_shard": 1024})
    prompts, rendered = (list(rows) * 910 for rows in index())
    with writing(ShardFiles(path, identity, 10_000, 64)) as files:
        for shard in files.missing():
            n = len(files.rows(shard))
            files.write(shard, CapturedShard(torch.randn(3, 4, n, 64), np.ones((4, n), dtype=bool)))
        finish(files, prompts[:10_000], rendered[:10_000], {})
    own = 10_000 * 64 * TORCH[dtype].itemsize
    with ActivationStore(path) as store:
        before = bytes_read()
        tensor = store.read_tensor(2, "inst_mean")
        assert own <= bytes_read() - before <= 1.1 * own
    with h5py.File(path) as file:
        before = bytes_read()
        plain = file["activations/resid_post"][1, 2]
        assert own <= bytes_read() - before <= 1.1 * own
    np.testing.assert_array_equal(plain, tensor.float().numpy())


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


# -- resuming ----------------------------------------------------------------------------------------------------------


def test_what_a_kill_leaves_behind_is_not_taken_for_a_shard(whole: Path, path: Path) -> None:
    writer = make(path, shards=(0, 2))
    partial = path.with_name("activations.h5.shards") / "00001-of-00003.h5.abcd.partial"
    partial.write_bytes(shards(whole)[1].read_bytes()[:2000])
    path.with_name("activations.h5.abcd.partial").write_bytes(b"half a master")
    assert writer.missing() == [1]
    refused(r"store not found: .*activations\.h5; make it with: refusal extract CONFIG", ActivationStore, path)
    make(path, shards=(1,), master=True)
    assert not partial.exists()
    np.testing.assert_array_equal(content(path), content(whole))


OTHER = {"weights": "other", "tokens": "other", "site": "resid_pre", "dtype": "bfloat16", "layers": (0, 1, 5),
         "template": "other", "backend": "nnsight", "rows_per_shard": 5, "positions": ("inst_last",)}  # fmt: skip


@matrix("field, left", OTHER, ["everything", "shards", "master"])
def test_another_store_in_the_way_is_refused_with_the_field(whole: Path, field: str, left: str) -> None:
    if left == "shards":
        whole.unlink()
    elif left == "master":
        shutil.rmtree(whole.parent / "activations.h5.shards")
    message = rf"was made with another {field} \(.*, now .*choose another directory with"
    refused(message, enter, whole, **{field: OTHER[field]})
    enter(whole, model="other", revision="other", tokenizer="other", prompts="other")  # where they came from


# -- refusing damage ---------------------------------------------------------------------------------------------------


@matrix("bad, dtype", [float("nan"), float("inf"), -float("inf"), 7e4], TORCH)
def test_what_is_not_finite_in_the_stores_type_never_enters(path: Path, bad: float, dtype: str) -> None:
    data = values().clamp(-6e4, 6e4)
    data[1, 2, 5, 7] = bad
    if bad == 7e4 and dtype != "float16":
        make(path, data, dtype=dtype)
        return
    message = rf"prompt row 5 is not finite at layer 2, position inst_mean in {dtype}; use --set"
    refused(message, make, path, data, dtype=dtype)
    assert [shard.name for shard in shards(path)] == ["00000-of-00003.h5"]


@pytest.mark.parametrize("tenths", [0, 3, 9])
def test_a_truncated_shard_is_named_by_every_reader(whole: Path, tenths: int) -> None:
    victim = shards(whole)[2]
    sound = victim.read_bytes()
    victim.write_bytes(sound[: len(sound) * tenths // 10])
    for read in (content, enter):
        refused(r"00002-of-00003\.h5 is not a readable HDF5 file \(cut short\?\).*; delete it and run", read, whole)
    assert "cut short" in verify(whole).findings[0]
    victim.unlink()  # the remedy
    make(whole, shards=(2,), master=True)
    np.testing.assert_array_equal(content(whole), values().numpy())


@matrix("how, dtype", ["missing", "cut", "text"], TORCH)
def test_plain_h5py_sees_no_number_where_a_shard_cannot_be_read(path: Path, how: str, dtype: str) -> None:
    make(path, values().clamp(-6e4, 6e4), master=True, dtype=dtype)
    victim = shards(path)[1]
    if how == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:3000] if how == "cut" else b"no HDF5")
    with h5py.File(path) as file:
        try:
            part = file["activations/resid_post"][1, 2]
        except OSError:
            return
    assert np.isnan(part[4:8]).all()
    assert np.isfinite(part[:4]).all()
    assert np.isfinite(part[8:]).all()


def test_a_shard_from_elsewhere_is_named(whole: Path, tmp_path: Path) -> None:
    """Of another place, of an equal store with other numbers, and of another store."""
    make(tmp_path / "equal" / "activations.h5", -values(), master=True)
    make(tmp_path / "other" / "activations.h5", master=True, weights="other")
    for source, message in (
        (shards(whole)[0], "it is shard 0; delete it"),
        (shards(tmp_path / "other" / "activations.h5")[1], "another weights"),
        (shards(tmp_path / "equal" / "activations.h5")[1], "its numbers have changed since the store"),
    ):
        shutil.copy(source, shards(whole)[1])
        refused(rf"00001-of-00003\.h5 does not belong to .*activations\.h5: {message}", content, whole)
    make(whole, shards=(), master=True)  # a writer takes the shards that are there and binds them again
    np.testing.assert_array_equal(content(whole)[:, :, 4:8], -values()[:, :, 4:8].numpy())


def test_what_fletchers_sum_cannot_tell_is_not_read_silently(whole: Path) -> None:
    """It takes FFFF for 0000, which plain h5py then reads; the CRC-32 in the master knows better."""
    victim = shards(whole)[1]
    for place in (2, 0):  # of a little-endian 0.0: its upper half (it becomes NaN), its lower half
        stored = bytearray(victim.read_bytes())
        at = stored.find(values()[1, 2, 4:8].numpy().tobytes()) + place
        assert stored[at : at + 2] == b"\0\0"
        damaged = stored[:at] + b"\xff\xff" + stored[at + 2 :]
        victim.write_bytes(bytes(damaged))
        with h5py.File(whole) as file:
            assert file["activations/resid_post"][1, 2, 4, 0] != 0
        refused(r"is damaged at layer 2, position inst_mean \(wrong CRC-32\); delete ", content, whole)
        assert verify(whole).findings
        victim.write_bytes(bytes(stored))
    assert verify(whole).findings == ()


@pytest.mark.parametrize("what", ["master", "shard"])
def test_a_store_of_the_earlier_schema_is_refused_in_one_line(whole: Path, what: str) -> None:
    old = whole if what == "master" else shards(whole)[1]
    with h5py.File(old, "w") as file:
        file.attrs.update(identity=IDENTITY.text, complete=True, **({"schema": 1} if what == "master" else {}))
    if what == "master":
        refused(r"activations\.h5 has schema 1, this version reads schema 3; delete it", ActivationStore, whole)
    refused(r"has schema 1, this version reads schema 3; ", enter, whole)


def test_a_file_that_is_not_a_store_is_refused(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = [1, 2]
    refused(r"activations\.h5 is not an activation store, but .*; stores are made by:", ActivationStore, path)


@pytest.mark.parametrize("how", ["cut", "head", "text", "empty"])
def test_a_master_that_is_not_hdf5_is_refused(whole: Path, how: str) -> None:
    data = whole.read_bytes()
    data = {"cut": data[: len(data) // 2], "head": b"another" + data[7:], "text": b"id,text,label\n", "empty": b""}[how]
    whole.write_bytes(data)
    damaged = r"is not a readable HDF5 file \(cut short\?\).*; delete it and run"
    foreign = "is no HDF5 store; stores are made by: refusal extract CONFIG --out DIR$"  # it may be anyone's
    refused(rf"activations\.h5 {damaged if how in ('cut', 'head') else foreign}", ActivationStore, whole)


def test_what_is_not_in_the_store_is_named(whole: Path) -> None:
    with ActivationStore(whole) as store:
        refused("holds layers 0, 2, 5, not 1", store.read, 1, "inst_last")
        refused("holds positions inst_last, post_last, inst_mean, trigger_last, not post_9", store.read, 0, "post_9")


def test_readers_see_one_file_while_it_is_made_again_and_nobody_opens_one_that_lacks_a_shard(whole: Path) -> None:
    """A master already there is not touched: a reader keeps it open while shards are made good."""
    before = whole.read_bytes(), whole.stat().st_ino
    with ActivationStore(whole) as store:
        shards(whole)[1].unlink()
        refused(r"incomplete: its shard activations\.h5\.shards/00001-of-00003\.h5 is missing", ActivationStore, whole)
        make(whole, shards=(1,), master=True)
        assert (whole.read_bytes(), whole.stat().st_ino) == before
        np.testing.assert_array_equal(store.read(2, "post_last"), values().numpy()[1, 1])


@pytest.mark.parametrize("most", [1, 2, 256])
def test_shards_stay_open_between_reads_and_few_at_a_time(
    whole: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(activation_store, "MOST_OPEN", most)
    opened, real, expected = list[int](), ShardFiles.open, content(whole)
    monkeypatch.setattr(
        ShardFiles, "open", lambda self, shard, digest: opened.append(shard) or real(self, shard, digest)
    )
    with ActivationStore(whole) as store:
        n = store.files.n_shards
        assert n == 3
        for layer, position in ((0, "inst_last"), (5, "post_last"), (0, "inst_last")):
            at = store.layers.index(layer), store.positions.index(position)
            np.testing.assert_array_equal(store.read_tensor(layer, position).float(), expected[at])
    assert len(opened) == (n if most >= n else 4 * n)
