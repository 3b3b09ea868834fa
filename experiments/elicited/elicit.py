"""The stage that elicits abstentions: chooses a system line on training prompts, and answers prompts under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shutil import rmtree

import numpy as np
from jaxtyping import Bool

from experiments.elicited.condition import (
    CONTROL,
    LINE,
    Rows,
    abstains_rarely,
    asked_rows,
    known_twins,
    paired_rows,
    under,
)
from experiments.elicited.results import ActionShare, Elicitation, TriedLine
from experiments.probing.results import WriteRecord
from experiments.probing.stage import choose_write, context_onsets, traced
from experiments.responses.loaded_run import LoadedRun
from experiments.run.basis import more_of_pairs
from experiments.run.behaviour import MIN_BASELINE, MIN_GROUPS, Behaviour, write_samples
from experiments.run.completion_file import write_completions
from experiments.run.config import NOT_ASKED, WRITE_POSITION, RunConfig
from experiments.run.corpus import TESTED, Corpus
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, contrast, share, write_outcomes
from experiments.run.wording import points
from extract.atomic_write import make_folder
from extract.capture_spec import CaptureSpec, is_generated
from extract.errors import UserError
from extract.extraction import extract
from probes.statistics.intervals import Estimate
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import draw
from scoring.actions import ANSWERED, DECLINED
from scoring.rates import grouped_rate
from steering.direction_file import save_directions

ACTIONS = {"abstain": {"abstain"}, "refuse": {"refuse"}, "answer": ANSWERED}


def elicit(loaded: LoadedRun) -> None:
    """Write stages/elicit.json, outcomes under line and control, and the line's answers, activations and direction."""
    reason = needless(loaded.config, loaded.behaviour)
    found, outcomes = (Elicitation(needed=False, reason=reason), dict[Key, Outcomes]()) if reason else _elicited(loaded)
    ids = [prompt.id for prompt in loaded.prompts]
    write_outcomes(loaded.file("outcomes.parquet/elicit.parquet"), ids, outcomes)
    found.write(loaded.file("stages/elicit.json"))


def needless(config: RunConfig, plain: Behaviour) -> str:
    """Return why nothing is elicited; empty if it is, because the plain model abstains too rarely for a verdict."""
    if "one-or-two" not in config.ask or config.elicit.when == "never":
        return NOT_ASKED
    if config.prompts.contrast or config.dissociate.directions:
        return "the directions are not those of refusals and abstentions of this run"
    if config.elicit.when == "always" or abstains_rarely(plain):
        return ""
    return f"the model abstains by itself, from {len(plain.decliners('epistemic', *TESTED))} tested uncertain prompts"


def _elicited(loaded: LoadedRun) -> tuple[Elicitation, dict[Key, Outcomes]]:
    settings, tested = loaded.config.elicit, loaded.corpus.twins & loaded.corpus.within(*TESTED)
    if not (tested & known_twins(loaded)).any():
        why = f"of {int(tested.sum())} tested twins, with which uncertain prompts are compared, the model knows none"
        return Elicitation(reason=why), {}
    make_folder(under(loaded, "").directory)
    try:
        tried = [_tried(loaded, line) for line in settings.lines]
    except UserError as error:
        why = f"no system line can be given ({error}); model.system=merge puts it into the user turn"
        return Elicitation(reason=why), {}
    chosen = max(tried, key=lambda one: one.difference.estimate)  # of equal ones the first
    lengths = {control: _n_tokens(loaded, control) for control in settings.controls}
    control = min(lengths, key=lambda one: abs(lengths[one] - chosen.tokens))
    outcomes = _answered(loaded, chosen.line, control)
    plain = Outcomes.of(np.arange(len(loaded.prompts)), loaded.behaviour.actions)
    found = Elicitation(
        line=chosen.line,
        line_tokens=chosen.tokens,
        control=control,
        control_tokens=lengths[control],
        tried=tuple(tried),
        shares=tuple(_shares(loaded, {(PLAIN, NOTHING): plain} | outcomes)),
        above_twins=_above_twins(loaded, outcomes[LINE, NOTHING], *TESTED),
        above_control=_above_control(loaded.corpus, outcomes),
    )
    condition = under(loaded, chosen.line)
    found = found.model_copy(update={"reason": _lacks(found, condition.behaviour)})
    n = {share.label: f"{share:.0%}" for share in found.shares if (share.condition, share.action) == (LINE, "abstain")}
    loaded.reporter.say(
        f"under “{chosen.line}” the model abstains from {n['uncertain']} of tested uncertain prompts, from "
        f"{n['twin']} of their known twins" + (f"; {found.reason}" if found.reason else "")
    )
    return found if found.reason else found.model_copy(update={"direction": _fitted(condition)}), outcomes


def _fitted(condition: LoadedRun) -> WriteRecord:
    """Fit and choose the direction of the elicited abstentions, and save it under the line's folder."""
    written = choose_write(condition, "epistemic", context_onsets(condition))
    if written.chosen is not None:
        save_directions([traced(condition, written.chosen)], condition.file("directions.safetensors"))
    return written.record


# -- choosing the line -------------------------------------------------------------------------------------------------


def _tried(loaded: LoadedRun, line: str) -> TriedLine:
    """Ask training prompts under a line; UserError: the chat template takes no system message."""
    condition, corpus, rng = under(loaded, line), loaded.corpus, named_rng(loaded.config.seed, "choosing a line")
    rows = paired_rows(loaded, loaded.config.elicit.n_choose, rng, "train")
    with loaded.reporter.task(f"trying “{line}”", len(rows)) as advance:
        asked = np.searchsorted(asked_rows(corpus), rows)
        completions = condition.completer.complete(asked.tolist(), advance=advance)
    outcomes = Outcomes.completed(rows, completions, loaded.prompts)
    uncertain, twins = (rows[of[rows]] for of in (corpus.uncertain, corpus.twins))
    return TriedLine(
        line=line,
        tokens=_n_tokens(loaded, line),
        uncertain=_rate(corpus, outcomes, uncertain),
        twins=_rate(corpus, outcomes, twins),
        difference=_above_twins(loaded, outcomes, "train"),
    )


def _n_tokens(loaded: LoadedRun, line: str) -> int:
    return len(loaded.model.tokenizer(line, add_special_tokens=False)["input_ids"])


# -- answering under it ------------------------------------------------------------------------------------------------


def _answered(loaded: LoadedRun, line: str, control: str) -> dict[Key, Outcomes]:
    """Read and answer all prompts under the line, and some tested ones under its control."""
    condition, other, places = under(loaded, line), under(loaded, control), asked_rows(loaded.corpus)
    for earlier in condition.directory.glob("activations.h5*"):  # under another line; or a part of these
        rmtree(earlier) if earlier.is_dir() else earlier.unlink()
    with loaded.reporter.counted("extracting activations under the line", resumed=True) as progress:
        given = loaded.model, condition.prompts, condition.rendered, condition.file("activations.h5")
        extract(*given, _captured(loaded.config), kept=condition.kept, progress=progress, say=loaded.reporter.say)
    with loaded.reporter.task("answers under the line", len(places)) as advance:
        completions = condition.completer.complete(range(len(places)), advance=advance)
    write_completions(completions, condition.file("completions.jsonl"))
    some = np.searchsorted(places, _control_rows(loaded))
    with loaded.reporter.task("answers under the control line", len(some)) as advance:
        controlled = other.completer.complete(some.tolist(), advance=advance)
    return {
        (LINE, NOTHING): Outcomes.completed(places, completions, loaded.prompts),
        (CONTROL, NOTHING): Outcomes.completed(places[some], controlled, loaded.prompts),
    }


def _captured(config: RunConfig) -> CaptureSpec:
    """Return what is captured under the line: where write directions are fitted and written."""
    chosen, every = config.dissociate.positions, config.extract.positions
    read = [position for position in chosen or () if not is_generated(position)]
    wanted = every if chosen is None else tuple(dict.fromkeys((*read, WRITE_POSITION)))
    return config.extract.model_copy(update={"positions": wanted, "response_tokens": 0, "thought_tokens": 0})


def _control_rows(loaded: LoadedRun) -> Rows:
    """Return tested prompts of each label, one of each group before the second of any."""
    config, corpus = loaded.config, loaded.corpus
    rng, most, tested = named_rng(config.seed, "control line"), config.elicit.n_control, corpus.within(*TESTED)
    labelled = [np.flatnonzero(of & tested) for of in _labels(loaded).values()]
    return np.sort(np.concatenate([rows[draw(corpus.groups[rows], most, rng)] for rows in labelled]))


# -- what is elicited --------------------------------------------------------------------------------------------------


def _labels(loaded: LoadedRun) -> dict[str, Bool[np.ndarray, " prompts"]]:
    return {"uncertain": loaded.corpus.uncertain, "twin": known_twins(loaded), "harmful": loaded.corpus.harmful}


def _shares(loaded: LoadedRun, outcomes: Mapping[Key, Outcomes]) -> Iterator[ActionShare]:
    """Yield the share of tested prompts of each label that are acted on in each way under each condition."""
    corpus = loaded.corpus
    for (condition, _), of in outcomes.items():
        for label, labelled in _labels(loaded).items():
            rows = of.rows[(labelled & corpus.within(*TESTED))[of.rows]]
            groups = corpus.groups_among(rows)
            for action, counted in ACTIONS.items():
                found = share(of.among(rows), counted, groups)
                yield ActionShare(**vars(found) | {"condition": condition, "label": label, "action": action})


def _rate(corpus: Corpus, outcomes: Outcomes, rows: Rows) -> Estimate:
    return grouped_rate(outcomes.among(rows).hits({"abstain"}), corpus.groups_among(rows))


def _above_twins(loaded: LoadedRun, outcomes: Outcomes, *parts: str) -> Estimate:
    """Return how much more often uncertain prompts of some parts are abstained from than their known twins."""
    corpus = loaded.corpus
    abstained, here = (np.zeros(len(corpus), dtype=bool) for _ in range(2))
    abstained[outcomes.rows], here[outcomes.rows] = outcomes.hits({"abstain"}), outcomes.judged
    here &= corpus.within(*parts)
    return more_of_pairs(corpus, abstained, here & corpus.uncertain, here & known_twins(loaded))


def _above_control(corpus: Corpus, outcomes: Mapping[Key, Outcomes]) -> Estimate:
    """Return the share of tested uncertain prompts that are declined, in whatever words: line minus control."""
    line, control = outcomes[LINE, NOTHING], outcomes[CONTROL, NOTHING]
    rows = control.rows[corpus.uncertain[control.rows]]
    return contrast(line.among(rows), control.among(rows), DECLINED, corpus.groups_among(rows))


def _lacks(found: Elicitation, behaviour: Behaviour) -> str:
    """Return why no verdict can be tried on what a line elicits; empty if one can."""
    corpus, rows, line = behaviour.corpus, behaviour.decliners("epistemic", *TESTED), f"under “{found.line}”"
    if len(rows) < MIN_BASELINE or (groups := corpus.independent_groups(rows)) < MIN_GROUPS:
        n = f"{len(rows)} tested uncertain prompts"
        few = f"{n}, {MIN_BASELINE} are needed" if len(rows) < MIN_BASELINE else f"{n} that count as {groups}"
        return f"{line} the model abstains from {few}"
    if not found.above_twins.low > 0:
        return (
            f"{line} the model abstains from uncertain prompts no more often than from those of their twins whose "
            f"answer it knows ({points(found.above_twins, ' points')}, of {found.above_twins.n} pairs)"
        )
    if not found.above_control.low > 0:
        return (
            f"{line} the model declines no more uncertain prompts than under a control line "
            f"({points(found.above_control, ' points')}), so the line changes how they are declined, not whether"
        )
    if write_samples(behaviour, "epistemic") is None:
        return f"{line} too few training prompts are abstained from, or answered, to fit a direction"
    return ""
