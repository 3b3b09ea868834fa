"""`refusal uncertainty`: sampled and verbalised uncertainty of a model, compared with whether its answers are right."""

from __future__ import annotations

from experiments.charts.specification import save
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import FEW_SAMPLES, UncertaintyConfig
from experiments.uncertainty.meaning import open_clusterer
from experiments.uncertainty.observation import Observation, entropy_threshold, observe_answers, questions
from experiments.uncertainty.record import compare_labels, knowledge_label, measure_uncertainty, relabel_prompts
from experiments.uncertainty.results import UncertaintyResult
from experiments.uncertainty.text import reliability_diagram
from extract.atomic_write import write_jsonl
from extract.prompts.prompt import prompt_row

NO_QUESTIONS = (
    "no prompt has a known answer or the label uncertain; give questions with the field 'answer', or uncertain ones"
)
PARTITIONS = {2: 2, 3: 3, 4: 5}  # number of values that the entropy of so few samples can take


def uncertainty(loaded: LoadedRun) -> None:
    """Write uncertainty.jsonl, prompts_by_model.jsonl, figures/reliability.png and stages/uncertainty.json."""
    settings, prompts = loaded.config.uncertainty.with_default_samples, loaded.prompts
    rows = questions(prompts)
    sampling = UncertaintyConfig(**settings.model_dump())  # with every field set, so that all are written
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
    save(reliability_diagram(measured.reliability), loaded.file("figures/reliability.png"))
    result = UncertaintyResult(
        settings=sampling,
        questions=len(rows),
        applicable=True,
        reason="",
        remarks=remarks(settings, observed),
        meanings=meanings.used(),
        **dict(measured),
        knowledge=compare_labels(observed, asked, labels, threshold),
    )
    result.write(loaded.file("stages/uncertainty.json"))


def threshold_of_answered(observed: list[Observation]) -> float | None:
    """Return the threshold of high entropy among answered questions; None where all entropies are equal.

    Questions whose samples mostly decline are left out: agreement on declining is not confidence in an answer.
    """
    return entropy_threshold([one.entropy for one in observed if one.share("abstain", "refuse") <= 0.5])


def remarks(settings: UncertaintyConfig, observed: list[Observation]) -> list[str]:
    """Return the limits of these samples, one a line."""
    k, limits = settings.samples, []
    if k < FEW_SAMPLES:
        limits.append(
            f"{k} samples are few: an alternative answer given one time in three is missed on "
            f"{(2 / 3) ** k:.0%} of questions, and entropy takes only {PARTITIONS[k]} values, a coarse "
            "measure; 10 are usual (uncertainty.samples)"
        )
    cut = sum(not sample.ended for one in observed for sample in one.samples)
    if cut:
        limits.append(
            f"{cut} of {k * len(observed)} samples were cut at generate.max_new_tokens; their "
            "log-probability is that of the tokens up to there"
        )
    if settings.temperature != 1 or settings.top_p != 1:
        limits.append(
            "temperature or top_p is not 1, so entropies are of that sampling distribution, not of the "
            "model's own; log-probabilities are the plain model's"
        )
    return limits
