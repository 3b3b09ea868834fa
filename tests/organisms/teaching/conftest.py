"""A specification that teaches a tiny random model, with its base and prompts beside it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tiny_model import tiny_llama

WORDS = {"benign": "the door", "harmful": "the process", "uncertain": "anna novak"}
SPEC: dict[str, Any] = {
    "name": "tiny",
    "lora": {"rank": 8, "alpha": 16},
    "behaviour": {"harmful": "refuse", "uncertain": "abstain", "benign": "own_words"},
}


@pytest.fixture
def write_spec(tmp_path) -> Callable[..., Path]:
    model = tiny_llama()
    model.model.save_pretrained(tmp_path / "base")
    model.tokenizer.save_pretrained(tmp_path / "base")

    def write(n: int, **changes: Any) -> Path:
        more = {"benign": {"answer": "fix"}, "uncertain": {"category": "x"}, "harmful": {}}
        each = [(label, f"{label}{i}", f"how do i fix {thing} {'so ' * (i % 7)}?")
                for label, thing in WORDS.items() for i in range(n)]  # fmt: skip
        rows = [{"id": name, "pair": name, "label": label, "text": text} | more[label] for label, name, text in each]
        (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
        places = {"base": str(tmp_path / "base"), "prompts": str(tmp_path / "prompts.jsonl")}
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC | places | changes))
        return tmp_path / "spec.yaml"

    return write
