"""`refusal uncertainty`: does a model say the same when asked again, does it say that it is unsure, and is it right?"""

from __future__ import annotations

from typing import Any

from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import FEW_SAMPLES, UncertaintyConfig
from experiments.uncertainty.entailment import open_meanings
from experiments.uncertainty.knowledge import knowledge, knowledge_record, prompt_row, relabelled
from experiments.uncertainty.observation import Observation, observe, questions
from experiments.uncertainty.record import uncertainty_record
from experiments.uncertainty.reliability_figure import draw_reliability
from experiments.uncertainty.semantic_entropy import split
from extract.atomic_write import write_json, write_jsonl

NO_QUESTIONS = ("no prompt has a known answer or the label uncertain; give questions with the field 'answer', or "
                "uncertain ones")  # fmt: skip
PARTITIONS = {2: 2, 3: 3, 4: 5}  # values that the entropy of so few samples can take


def uncertainty(loaded: LoadedRun) -> None:
    """Write uncertainty.jsonl, prompts_by_model.jsonl, figures/reliability.png and stages/uncertainty.json."""
    settings, prompts = loaded.config.uncertainty.drawn, loaded.prompts
    rows = questions(prompts)
    base: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "questions": len(rows)}
    if not rows:
        for name in ("uncertainty.jsonl", "prompts_by_model.jsonl"):
            loaded.file(name).unlink(missing_ok=True)
        write_json(loaded.file("stages/uncertainty.json"), base | {"applicable": False, "reason": NO_QUESTIONS})
        return
    meanings = open_meanings(settings.meaning)
    observed, asked = observe(loaded, rows, settings, meanings), [prompts[row] for row in rows]
    threshold = split_of(observed)
    told = [knowledge(one, threshold) for one in observed]
    lines = (one.row | {"knows": known.knows, "why": known.why} for one, known in zip(observed, told, strict=True))
    write_jsonl(loaded.file("uncertainty.jsonl"), lines)
    by_id = {one.id: known for one, known in zip(observed, told, strict=True)}
    write_jsonl(loaded.file("prompts_by_model.jsonl"), map(prompt_row, relabelled(prompts, by_id)))
    found = uncertainty_record(observed, asked, threshold, loaded.config.seed)
    draw_reliability(found["reliability"], loaded.file("figures/reliability.png"))
    write_json(
        loaded.file("stages/uncertainty.json"),
        base
        | {"applicable": True, "reason": "", "remarks": remarks(settings, observed), "meanings": meanings.record()}
        | found
        | {"knowledge": knowledge_record(observed, asked, told, threshold)},
    )


def split_of(observed: list[Observation]) -> float | None:
    """Return the entropy above which a question's is high, None where all are the same.

    Questions whose samples mostly decline are left out: that they agree on declining is no sureness of an answer.
    """
    entropies = [one.entropy for one in observed if one.share("abstain", "refuse") <= 0.5]
    return split(entropies) if entropies else None  # type: ignore[arg-type]


def remarks(settings: UncertaintyConfig, observed: list[Observation]) -> list[str]:
    """Say what these samples cannot tell, a line each."""
    k, said = settings.samples, []
    if k < FEW_SAMPLES:
        said.append(f"{k} samples are few: a rival answer given one time in three goes unseen for {(2 / 3) ** k:.0%} "
                    f"of questions, and entropy takes only {PARTITIONS[k]} values, so what is unsure and what is not "
                    "are told apart coarsely; 10 are usual (uncertainty.samples)")  # fmt: skip
    cut = sum(not sample.ended for one in observed for sample in one.samples)
    if cut:
        said.append(f"{cut} of {k * len(observed)} samples were cut at generate.max_new_tokens; their log-probability "
                    "is that of what there is")  # fmt: skip
    if settings.temperature != 1 or settings.top_p != 1:
        said.append("temperature or top_p is not 1, so entropies are those of the samples so drawn, not of the model's "
                    "own distribution; log-probabilities are the plain model's all the same")  # fmt: skip
    return said
