"""`refusal generate`: answer a few prompts once, with or without dials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.command import quiet_libraries
from extract.chat import render
from extract.errors import UserError
from extract.loading import load_model
from extract.prompts import Prompt
from extract.thinking import reopened
from steering.controller import steering
from steering.dial import Kind, load_dials

GATES = {1: "decline", -1: "permit", 0: "leave"}


def generate_once(
    name: str,
    texts: Sequence[str],
    dials_path: Path | None,
    thresholds: Mapping[str, float],
    max_new_tokens: int,
    template: str | None = None,
    template_args: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return one record a prompt: completion, and what each dial read and decided."""
    quiet_libraries()
    if any(not text.strip() for text in texts):
        raise UserError("a prompt is empty; give each prompt as a quoted text")
    model = load_model(name, template=template, template_args=template_args)
    dials = load_dials(dials_path, model.fingerprint()) if dials_path else []
    prompts = [Prompt(str(i), ({"role": "user", "content": text},), "benign", "answer") for i, text in enumerate(texts)]
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    batch = model.batch(rendered)
    chosen: dict[Kind, float] = {dial.kind: thresholds.get(dial.kind, dial.threshold) for dial in dials}
    with steering(model, dials, batch, rendered, chosen) as readings:
        responses = model.generate(batch, max_new_tokens)
    return [
        {
            "prompt": text,
            "completion": reopened(rendered[i].text, model.decode(response)),
            "probability": {kind: float(p[i]) for kind, p in readings.probability.items()},
            "gate": {kind: GATES[int(g[i])] for kind, g in readings.gate.items()},
        }
        for i, (text, response) in enumerate(zip(texts, responses, strict=True))
    ]
