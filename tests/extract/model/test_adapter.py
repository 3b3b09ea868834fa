"""LoRA adapters: merged as PEFT computes them, refused on another base, each mistake in one line."""

import json
from pathlib import Path

import pytest
import torch

from extract.model import adapter as source
from extract.model.adapter import BASE, CONFIG
from extract.model.loading import load_model
from extract.model.padded_batch import Batch
from tests.support.one_line import mistake
from tests.support.tiny_model import TEXTS, rendered, tiny_llama

pytestmark = pytest.mark.slow


@pytest.fixture
def base(tmp_path: Path) -> Path:
    model = tiny_llama()
    model.model.save_pretrained(tmp_path / "base")
    model.tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return taught(base, tmp_path / "adapter", target_modules="all-linear")


def as_peft_does(base: Path, adapter: Path, batch: Batch) -> torch.Tensor:
    from peft import PeftModel

    expected = PeftModel.from_pretrained(load_model(str(base), device="cpu").model, str(adapter))
    batched = {"input_ids": batch.tokens, "attention_mask": batch.attention_mask, "position_ids": batch.position_ids}
    with torch.inference_mode():
        return expected(**batched).logits


def test_the_merged_model_computes_what_peft_does(base: Path, adapter: Path) -> None:
    plain, merged = load_model(str(base), device="cpu"), load_model(str(base), adapter=str(adapter), device="cpu")
    batch = merged.batch(rendered(merged, TEXTS))
    said = as_peft_does(base, adapter, batch)
    torch.testing.assert_close(merged.logits(batch), said, atol=1e-4, rtol=1e-4)
    assert (merged.logits(batch) - plain.logits(batch)).abs().max() > 0.1
    assert merged.fingerprint() != plain.fingerprint()
    assert [name for name, _ in merged.model.named_parameters()] == [name for name, _ in plain.model.named_parameters()]


def test_in_bfloat16_the_sum_is_rounded_once(base: Path, adapter: Path) -> None:
    wide = load_model(str(base), adapter=str(adapter), device="cpu")
    narrow = load_model(str(base), adapter=str(adapter), device="cpu", dtype="bfloat16")
    assert narrow.dtype == torch.bfloat16
    for (name, a), b in zip(wide.model.state_dict().items(), narrow.model.state_dict().values(), strict=True):
        assert torch.equal(a.to(torch.bfloat16), b), name


ON_TIED = {
    "lm_head": {"target_modules": ["lm_head", "q_proj"]},
    "embeddings": {"target_modules": ["embed_tokens"]},
    "both": {"target_modules": ["embed_tokens", "lm_head"]},
    "both, tied": {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    "DoRA": {"target_modules": ["lm_head"], "use_dora": True},
    "saved lm_head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "saved embeddings": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "saved embeddings, tied": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"],
                               "ensure_weight_tying": True},
    "some tokens": {"target_modules": ["q_proj"], "trainable_token_indices": [5, 6, 7]},
}  # fmt: skip


@pytest.fixture
def tied(base: Path) -> Path:
    """The base with tied embeddings, whose other weights are as before."""
    model = tiny_llama().model
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(base)
    return base


def taught(base: Path, to: Path, **settings: object) -> Path:
    from peft import LoraConfig, get_peft_model  # with it torch's compiler, which every worker would import

    torch.manual_seed(1)
    adapted = get_peft_model(load_model(str(base), device="cpu").model, LoraConfig(r=2, **settings))
    for weight in adapted.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(to)
    return to


@pytest.mark.filterwarnings("ignore::UserWarning")  # PEFT's, of tied embeddings
@pytest.mark.parametrize("kind", ON_TIED)
def test_an_adapter_on_tied_embeddings_computes_what_peft_does_also_when_saved(
    tied: Path, tmp_path: Path, kind: str
) -> None:
    adapter = taught(tied, tmp_path / "adapter", **ON_TIED[kind])
    plain, merged = load_model(str(tied), device="cpu"), load_model(str(tied), adapter=str(adapter), device="cpu")
    assert plain.model.lm_head.weight is plain.model.model.embed_tokens.weight
    batch = merged.batch(rendered(merged, TEXTS))
    said = as_peft_does(tied, adapter, batch)
    merged.model.save_pretrained(tmp_path / "merged")
    merged.tokenizer.save_pretrained(tmp_path / "merged")
    for model in (merged, load_model(str(tmp_path / "merged"), device="cpu")):
        torch.testing.assert_close(model.logits(batch), said, atol=1e-3, rtol=1e-4)
    assert (plain.logits(batch) - said).abs().max() > 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_merge_that_changes_what_the_adapter_says_is_refused_with_the_difference(
    tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = taught(tied, tmp_path / "adapter", target_modules=["lm_head"])
    monkeypatch.setattr(source, "_untie", lambda unmerged: None)
    said = problem(tied, adapter)
    assert said.startswith(f"the adapter {adapter} cannot be merged into {tied}: log-probabilities of the merged ")
    assert float(said.split("differ by ")[1].split(" nats")[0]) > 1


def problem(base: Path, adapter: Path) -> str:
    return mistake(load_model, str(base), adapter=str(adapter), device="cpu")


def test_an_adapter_of_another_base_by_its_fingerprint(base: Path, adapter: Path) -> None:
    (adapter / BASE).write_text(json.dumps({"fingerprint": load_model(str(base), device="cpu").fingerprint()}))
    load_model(str(base), adapter=str(adapter), device="cpu")
    (adapter / BASE).write_text(json.dumps({"fingerprint": "another"}))
    assert problem(base, adapter) == f"the adapter {adapter} was made for other weights than those of {base}"


def test_no_adapter_there(base: Path, tmp_path: Path) -> None:
    (base / "model.safetensors").unlink()  # it is looked for before the weights are read
    assert problem(base, tmp_path / "none") == f"no adapter in {tmp_path / 'none'}: expected a directory with {CONFIG}"


def test_an_adapter_of_another_architecture_or_that_cannot_be_read(base: Path, adapter: Path) -> None:
    assert f"the adapter {adapter} does not fit " in problem(Path("organisms/zoo/two-knobs"), adapter)
    (adapter / "adapter_model.safetensors").write_bytes(b"\0" * 20)
    assert f"the adapter {adapter} does not fit {base}: " in problem(base, adapter)
    (adapter / CONFIG).write_text("{")
    assert f"the adapter {adapter} does not fit {base}: " in problem(base, adapter)
    (adapter / BASE).write_text("{")
    assert f"{adapter / BASE} is not valid" in problem(base, adapter)
