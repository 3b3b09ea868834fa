"""`refusal uncertainty`: does a model say the same when asked again, does it say that it is unsure, and is it right?"""

from __future__ import annotations

from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import FEW_SAMPLES, UncertaintyConfig
from experiments.uncertainty.entailment import open_clusterer
from experiments.uncertainty.knowledge import compare_labels, knowledge_label, prompt_row, relabel_prompts
from experiments.uncertainty.observation import Observation, observe_answers, questions
from experiments.uncertainty.record import measure_uncertainty
from experiments.uncertainty.reliability_figure import draw_reliability
from experiments.uncertainty.results import SamplingSettings, UncertaintyResult
from experiments.uncertainty.semantic_entropy import entropy_threshold
from extract.atomic_write import write_jsonl

NO_QUESTIONS = ("no prompt has a known answer or the label uncertain; give questions with the field 'answer', or "
                "uncertain ones")  # fmt: skip
PARTITIONS = {2: 2, 3: 3, 4: 5}  # values that the entropy of so few samples can take


def uncertainty(loaded: LoadedRun) -> None:
    """Write uncertainty.jsonl, prompts_by_model.jsonl, figures/reliability.png and stages/uncertainty.json."""
    settings, prompts = loaded.config.uncertainty.drawn, loaded.prompts
    rows = questions(prompts)
    sampling = SamplingSettings.model_validate(settings.model_dump())
    if not rows:
        for name in ("uncertainty.jsonl", "prompts_by_model.jsonl"):
            loaded.file(name).unlink(missing_ok=True)
        none = UncertaintyResult(settings=sampling, questions=0, applicable=False, reason=NO_QUESTIONS)
        none.write(loaded.file("stages/uncertainty.json"))
        return
    meanings = open_clusterer(settings.meaning)
    observed, asked = observe_answers(loaded, rows, settings, meanings), [prompts[row] for row in rows]
    threshold = threshold_of_answered(observed)
    labels = [knowledge_label(one, threshold) for one in observed]
    lines = (one.row | {"knows": known.knows, "why": known.why} for one, known in zip(observed, labels, strict=True))
    write_jsonl(loaded.file("uncertainty.jsonl"), lines)
    by_id = {one.id: known for one, known in zip(observed, labels, strict=True)}
    write_jsonl(loaded.file("prompts_by_model.jsonl"), map(prompt_row, relabel_prompts(prompts, by_id)))
    measured = measure_uncertainty(observed, asked, threshold, loaded.config.seed)
    draw_reliability(measured.reliability, loaded.file("figures/reliability.png"))
    result = UncertaintyResult(
        settings=sampling,
        questions=len(rows),
        applicable=True,
        reason="",
        remarks=remarks(settings, observed),
        meanings=meanings.used(),
        **measured._asdict(),
        knowledge=compare_labels(observed, asked, labels, threshold),
    )
    result.write(loaded.file("stages/uncertainty.json"))


def threshold_of_answered(observed: list[Observation]) -> float | None:
    """Return the entropy above which a question's is high, None where all are the same.

    Questions whose samples mostly decline are left out: that they agree on declining is no sureness of an answer.
    """
    entropies = [one.entropy for one in observed if one.share("abstain", "refuse") <= 0.5]
    return entropy_threshold(entropies) if entropies else None  # type: ignore[arg-type]


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
