"""The activation store on synthetic numbers: reads what was written, and reports damaged or foreign files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from extract.errors import UserError
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
    make,
    shards,
    values,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write a whole store into a run directory."""
    path = tmp_path / "run" / "activations.h5"
    make(path, master=True)
    return path


# -- round trip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TORCH)
def test_round_trip_equals_the_rounding_of_torch(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "activations.h5"
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


def test_the_index_is_in_the_file(path: Path) -> None:
    with ActivationStore(path) as store:
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
    with h5py.File(path) as file:
        assert file.attrs["complete"]
        assert file.attrs["schema"] == 3
        assert file.attrs["dtype"] == "float32"
        assert file["tokens/offsets"][:3].tolist() == [0, 2, 5]
        assert file["prompts/pair"].asstr()[:2].tolist() == ["", "é"]
        assert json.loads(file["prompts/messages"][0])[0]["content"] == "töte"


def test_a_moved_run_directory_stays_readable(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(path)
    moved = tmp_path / "else" / "where"
    shutil.copytree(path.parent, moved)
    shutil.rmtree(path.parent)
    np.testing.assert_array_equal(content(moved / path.name), before)
    monkeypatch.chdir(moved)
    np.testing.assert_array_equal(content(Path(path.name)), before)
    with h5py.File(moved / path.name) as file:
        np.testing.assert_array_equal(file["activations/resid_post"][:], before)


def test_responses_and_their_positions_are_in_the_index(tmp_path: Path) -> None:
    """`response_2` is no role of any prompt: which rows have it is what the shards say."""
    path, identity = tmp_path / "activations.h5", IDENTITY.model_copy(update={"positions": ("inst_last", "response_2")})
    responses = [tuple(range(i % 4)) for i in range(N_PROMPTS)]
    present = np.array([[True] * N_PROMPTS, [len(tokens) >= 2 for tokens in responses]])
    data = values()[:, :2] * torch.from_numpy(present)[None, :, :, None]
    with writing(ShardFiles(path, identity, N_PROMPTS, D_MODEL)) as files:
        for shard in files.missing():
            here = slice(files.rows(shard).start, files.rows(shard).stop)
            files.write(shard, CapturedShard(data[:, :, here], present[:, here], tuple(responses[here])))
        finish(files, *index(), {})
    with ActivationStore(path) as store:
        np.testing.assert_array_equal(store.present, present)
        assert [tuple(tokens) for tokens in store.responses] == responses
        assert store.describe().absent == {"inst_last": 0, "response_2": 6}
    assert verify(path).findings == ()


def test_wrong_shapes_are_refused_for_a_shard(tmp_path: Path) -> None:
    with writing(ShardFiles(tmp_path / "activations.h5", IDENTITY, N_PROMPTS, D_MODEL)) as files:
        whole = captured(files.rows(0))
        with pytest.raises(ValueError, match=r"shard 2 has shape \(3, 4, 3, 48\); got values \(3, 4, 4, 48\)"):
            files.write(2, whole)
        with pytest.raises(ValueError, match="shard 0: rows without trigger_last must be zero"):
            files.write(0, replace(whole, values=torch.ones_like(whole.values)))
        with pytest.raises(ValueError, match="shard 0 has 4 rows; got 1 responses"):
            files.write(0, replace(whole, responses=((1,),)))
        assert shards(tmp_path / "activations.h5") == []


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count the bytes a process reads")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reading_one_locus_of_10000_prompts_reads_its_own_bytes(tmp_path: Path, dtype: str) -> None:
    path, identity = tmp_path / "activations.h5", IDENTITY.model_copy(update={"dtype": dtype, "rows_per_shard": 1024})
    prompts, rendered = (list(rows) * 910 for rows in index())
    with writing(ShardFiles(path, identity, 10_000, 64)) as files:
        for shard in files.missing():
            shape = (3, 4, len(files.rows(shard)), 64)
            present = np.ones(shape[1:3], dtype=bool)
            files.write(shard, CapturedShard(torch.randn(shape), present))
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


def test_what_a_kill_leaves_behind_is_not_taken_for_a_shard(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "activations.h5"
    writer = make(other, shards=(0, 2))
    partial = tmp_path / "activations.h5.shards" / "00001-of-00003.h5.abcd.partial"
    partial.write_bytes(shards(path)[1].read_bytes()[:2000])
    other.with_name("activations.h5.abcd.partial").write_bytes(b"half a master")
    assert writer.missing() == [1]
    with pytest.raises(UserError, match=r"store not found: .*activations\.h5; make it with: refusal extract CONFIG"):
        ActivationStore(other)
    make(other, shards=(1,), master=True)
    assert not partial.exists()
    np.testing.assert_array_equal(content(other), content(path))


OTHER = {"weights": "other", "tokens": "other", "site": "resid_pre", "dtype": "bfloat16", "layers": (0, 1, 5),
         "template": "other", "backend": "nnsight", "rows_per_shard": 5, "positions": ("inst_last",)}  # fmt: skip


@matrix("field, left", OTHER, ["everything", "shards", "master"])
def test_another_store_in_the_way_is_refused_with_the_field(path: Path, field: str, left: str) -> None:
    if left == "shards":
        path.unlink()
    elif left == "master":
        shutil.rmtree(path.parent / "activations.h5.shards")
    with pytest.raises(UserError, match=rf"was made with another {field} \(.*, now .*choose another directory with"):
        enter(path, **{field: OTHER[field]})
    enter(path)


@pytest.mark.parametrize("field", ["model", "revision", "tokenizer", "prompts"])
def test_where_the_numbers_came_from_may_be_called_otherwise(path: Path, field: str) -> None:
    enter(path, **{field: "other"})


# -- refusing damage ---------------------------------------------------------------------------------------------------


@matrix("bad, dtype", [float("nan"), float("inf"), -float("inf"), 7e4], TORCH)
def test_what_is_not_finite_in_the_stores_type_never_enters(tmp_path: Path, bad: float, dtype: str) -> None:
    data = values().clamp(-6e4, 6e4)
    data[1, 2, 5, 7] = bad
    if bad == 7e4 and dtype != "float16":
        make(tmp_path / "activations.h5", data, dtype=dtype)
        return
    message = rf"prompt row 5 is not finite at layer 2, position inst_mean in {dtype}; use --set"
    with pytest.raises(UserError, match=message):
        make(tmp_path / "activations.h5", data, dtype=dtype)
    assert [p.name for p in shards(tmp_path / "activations.h5")] == ["00000-of-00003.h5"]


def test_a_missing_shard_is_named_on_opening(path: Path) -> None:
    shards(path)[1].unlink()
    with pytest.raises(
        UserError, match=r"is incomplete: its shard activations\.h5\.shards/00001-of-00003\.h5 is missing"
    ):
        ActivationStore(path)


@pytest.mark.parametrize("tenths", [0, 3, 9])
def test_a_truncated_shard_is_named_by_every_reader(path: Path, tenths: int) -> None:
    victim = shards(path)[2]
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) * tenths // 10])
    message = (
        r"00002-of-00003\.h5 is not a readable HDF5 file \(cut short\?\).*; delete it and run refusal extract again"
    )
    with pytest.raises(UserError, match=message):
        content(path)
    with pytest.raises(UserError, match=message):
        enter(path)
    assert "cut short" in verify(path).findings[0]
    victim.unlink()  # the remedy
    make(path, shards=(2,), master=True)
    np.testing.assert_array_equal(content(path), values().numpy())


@matrix("how, dtype", ["missing", "cut", "text"], TORCH)
def test_plain_h5py_sees_no_number_where_a_shard_cannot_be_read(tmp_path: Path, how: str, dtype: str) -> None:
    path = tmp_path / "activations.h5"
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


def test_a_shard_from_elsewhere_is_named(path: Path, tmp_path: Path) -> None:
    """Of another place, of an equal store with other numbers, and of another store."""
    make(tmp_path / "equal" / "activations.h5", -values(), master=True)
    make(tmp_path / "other" / "activations.h5", master=True, weights="other")
    for source, message in (
        (shards(path)[0], "it is shard 0; delete it"),
        (shards(tmp_path / "other" / "activations.h5")[1], "another weights"),
        (shards(tmp_path / "equal" / "activations.h5")[1], "its numbers have changed since the store"),
    ):
        shutil.copy(source, shards(path)[1])
        with pytest.raises(UserError, match=rf"00001-of-00003\.h5 does not belong to .*activations\.h5: {message}"):
            content(path)
    make(path, shards=(), master=True)  # a writer takes the shards that are there and binds them anew
    np.testing.assert_array_equal(content(path)[:, :, 4:8], -values()[:, :, 4:8].numpy())


def test_what_fletchers_sum_cannot_tell_is_not_read_silently(path: Path) -> None:
    """It takes FFFF for 0000, which plain h5py then reads; the CRC-32 in the master knows better."""
    victim = shards(path)[1]
    for place in (2, 0):  # of a little-endian 0.0: its upper half (it becomes NaN), its lower half
        stored = bytearray(victim.read_bytes())
        at = stored.find(values()[1, 2, 4:8].numpy().tobytes()) + place
        assert stored[at : at + 2] == b"\0\0"
        damaged = stored[:at] + b"\xff\xff" + stored[at + 2 :]
        victim.write_bytes(bytes(damaged))
        with h5py.File(path) as file:
            assert file["activations/resid_post"][1, 2, 4, 0] != 0
        with pytest.raises(UserError, match=r"is damaged at layer 2, position inst_mean \(wrong CRC-32\); delete "):
            content(path)
        assert verify(path).findings
        victim.write_bytes(bytes(stored))
    assert verify(path).findings == ()


@pytest.mark.parametrize("what", ["master", "shard"])
def test_a_store_of_the_earlier_schema_is_refused_in_one_line(path: Path, what: str) -> None:
    old = path if what == "master" else shards(path)[1]
    with h5py.File(old, "w") as file:
        file.attrs.update(identity=IDENTITY.text, complete=True, **({"schema": 1} if what == "master" else {}))
    if what == "master":
        with pytest.raises(UserError, match=r"activations\.h5 has schema 1, this version reads schema 3; delete it"):
            ActivationStore(path)
    with pytest.raises(UserError, match=r"has schema 1, this version reads schema 3; "):
        enter(path)


def test_a_file_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = [1, 2]
    with pytest.raises(UserError, match=r"other\.h5 is not an activation store, but .*; stores are made by:"):
        ActivationStore(tmp_path / "other.h5")


@pytest.mark.parametrize("how", ["cut", "head", "text", "empty"])
def test_a_master_that_is_not_hdf5_is_refused(path: Path, how: str) -> None:
    whole = path.read_bytes()
    head = b"another" + whole[7:]
    path.write_bytes({"cut": whole[: len(whole) // 2], "head": head, "text": b"id,text,label\n", "empty": b""}[how])
    said = {
        "cut": r"is not a readable HDF5 file \(cut short\?\).*; delete it and run",
        "head": r"is not a readable HDF5 file \(cut short\?\).*; delete it and run",
    }.get(how, "is no HDF5 store; stores are made by: refusal extract CONFIG --out DIR$")  # it may be anyone's
    with pytest.raises(UserError, match=rf"activations\.h5 {said}"):
        ActivationStore(path)


def test_what_is_not_in_the_store_is_named(path: Path) -> None:
    with ActivationStore(path) as store:
        with pytest.raises(UserError, match="holds layers 0, 2, 5, not 1"):
            store.read(1, "inst_last")
        with pytest.raises(
            UserError, match="holds positions inst_last, post_last, inst_mean, trigger_last, not post_9"
        ):
            store.read(0, "post_9")


def test_readers_see_one_file_while_it_is_made_again(path: Path) -> None:
    """A master already there is not touched: a reader keeps it open while shards are made good."""
    before = path.read_bytes(), path.stat().st_ino
    with ActivationStore(path) as store:
        shards(path)[1].unlink()
        make(path, shards=(1,), master=True)
        assert (path.read_bytes(), path.stat().st_ino) == before
        np.testing.assert_array_equal(store.read(2, "post_last"), values().numpy()[1, 1])


@pytest.mark.parametrize("most", [1, 2, 256])
def test_shards_stay_open_between_reads_and_few_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(activation_store, "MOST_OPEN", most)
    opened, by_itself, expected = list[int](), ShardFiles.open, content(path)

    def recorded(files: ShardFiles, shard: int, digest: str | None) -> h5py.File:
        opened.append(shard)
        return by_itself(files, shard, digest)

    monkeypatch.setattr(ShardFiles, "open", recorded)
    with ActivationStore(path) as store:
        n = store.files.n_shards
        assert n == 3
        for layer, position in ((0, "inst_last"), (5, "post_last"), (0, "inst_last")):
            at = store.layers.index(layer), store.positions.index(position)
            np.testing.assert_array_equal(store.read_tensor(layer, position).float(), expected[at])
    assert len(opened) == (n if most >= n else 4 * n)
