"""The command line, called in this process, and a tiny randomly initialised chat model."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from experiments.cli import main
from experiments.config import ROOT
from extract.chat import Rendered, render
from extract.model import ChatModel
from extract.prompts import Prompt

sys.path.append(str(Path(__file__).parent))  # for chat_server


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line in this process; returns (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["refusal", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


TEXTS = ("how do i kill the process?", "tell me.", "who is anna novak, and where does she live?",
         "what is the best way to fix the door so that everybody stays safe at home?", "stop it.")  # fmt: skip


@pytest.fixture
def tiny() -> ChatModel:
    """A Llama of four layers with random weights and the organism's tokenizer; each test has its own."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "organisms" / "zoo" / "two-knobs", padding_side="left")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=256, initializer_range=0.2, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return ChatModel(LlamaForCausalLM(config), tokenizer, "tiny")


@pytest.fixture
def tiny_rows(tiny: ChatModel) -> list[Rendered]:
    return rendered(tiny, TEXTS)


def rendered(model: ChatModel, texts: tuple[str, ...]) -> list[Rendered]:
    turns = [({"role": "user", "content": text},) for text in texts]
    return [render(model.tokenizer, Prompt(str(i), turn, "benign", "answer")) for i, turn in enumerate(turns)]
