import json
import shutil
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np
import pytest

from extract.capture import CaptureSpec
from extract.chat.render import render
from extract.errors import UserError
from extract.extraction import identify
from extract.model.loading import load_model
from extract.prompts.prompt import load_prompts
from extract.store.activation_store import ActivationStore
from extract.store.export import export
from extract.store.integrity import verify

FIXTURE = Path(__file__).parents[2] / "fixtures" / "v0_1" / "store"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
BOTH = pytest.mark.parametrize("name", ["activations.h5", "flat.h5"])


@BOTH
def test_a_store_of_version_0_1_holds_what_0_1_read_from_it(name: str) -> None:
    with ActivationStore(FIXTURE / name) as store:
        assert store.data.shape == (2, 5, 6, 128)
        assert store.prompt_ids == tuple(prompt.id for prompt in load_prompts(FIXTURE / "prompts.jsonl"))
        assert [row.tolist() for row in store.responses] == EXPECTED["responses"]
        read = {f"{layer}/{position}": store.read_tensor(layer, position).float()[:, :3].tolist()
                for layer in store.layers for position in store.positions}  # fmt: skip
        assert read == EXPECTED["first_three_values"]
        absent = ~store.present[store.positions.index("trigger_last")]
        assert absent.sum() == 4
        assert np.isnan(store.read(4, "trigger_last")[absent]).all()
        assert not store.read_tensor(4, "trigger_last")[absent].any()


@BOTH
def test_a_store_of_version_0_1_is_verified_whole(name: str) -> None:
    found = verify(FIXTURE / name)
    assert found.findings == ()
    assert (found.prompts, found.shards, found.loci, found.digest) == (6, 2, 10, EXPECTED["digest"])


def test_a_changed_byte_in_a_store_of_version_0_1_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(FIXTURE, copy)
    shard = copy / "activations.h5.shards" / "00001-of-00002.h5"
    with h5py.File(shard, "r+") as file:
        file["present"][0, 0] = False
    assert any("00001-of-00002.h5" in finding for finding in verify(copy / "activations.h5").findings)
    flat = bytearray((copy / "flat.h5").read_bytes())
    flat[600] ^= 1
    (copy / "flat.h5").write_bytes(flat)
    with pytest.raises(UserError, match="is damaged"):
        ActivationStore(copy / "flat.h5")


def test_a_store_of_version_0_1_is_exported_as_it_was_by_0_1(tmp_path: Path) -> None:
    export(FIXTURE / "activations.h5", tmp_path / "flat.h5")
    with ActivationStore(tmp_path / "flat.h5") as now, ActivationStore(FIXTURE / "flat.h5") as then:
        assert now.identity == then.identity
        assert now.digests == then.digests
        assert all(np.array_equal(a, b) for a, b in zip(now.token_ids, then.token_ids, strict=True))


def test_the_same_prompts_and_model_make_the_identity_of_version_0_1() -> None:
    model, prompts = load_model("organisms/zoo/two-knobs", device="cpu"), load_prompts(FIXTURE / "prompts.jsonl")
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    with ActivationStore(FIXTURE / "activations.h5") as store:
        then, dtype = asdict(store.identity), store.read_tensor(3, "inst_last").dtype
    wanted = CaptureSpec("resid_post", (3, 4), ("inst_last", "trigger_last", "inst_mean"), 2, dtype)
    now = asdict(identify(model, prompts, rendered, wanted, rows_per_shard=4))
    now.pop("tokenizer")  # a hash of what its library writes, which another version of that may write otherwise
    then.pop("tokenizer")
    assert now == then
