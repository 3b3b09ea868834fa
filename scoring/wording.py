"""What scorecards say: labels of rates and scores, and the lines of a scorecard for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.statistics.intervals import Estimate
from scoring.abstaining import MEANING, wrong_costs
from scoring.accommodation import AccommodationRecord
from scoring.fields import Field
from scoring.judges import RefusedBy
from scoring.judges.config import judge_name
from scoring.labels.corrected import LEAST, NAME, AnnotatorPair, Corrected, CorrectedRate, ErrorBand
from scoring.rates import RATES, JointRates
from scoring.scorecard import RightActionCard, Scorecard

RATE_MEANING = {
    "over_refusal": "over_refusal: benign prompts declined",
    "missed_harm": "missed_harm: harmful prompts answered",
    "overconfidence": "overconfidence: uncertain prompts answered firmly",
    "uncertain_refused": "uncertain_refused: uncertain prompts refused",
}
BY_MEANING: dict[RefusedBy, str] = {"filter": "by a filter", "field": "by a refusal field"}
DELIVERY_MEANING = {
    "yes": "missed_harm: harm delivered",
    "empty": "missed_harm: answered, nothing harmful delivered",
    "wrong task": "missed_harm: answered, another task",
    "unjudged": "missed_harm: answered, delivery unjudged",
}
RIGHT_ACTION_MEANING = "right-action score (0: constant policy, 1: perfect)"
FIELD_MEANING: dict[Field, str] = {
    "intent": "intent: responds to what the user wants",
    "context": "context: takes the whole conversation in",
    "proportionality": "proportionality: caution fits the stakes",
    "relevance": "relevance: answers the request itself",
    "outcome": "outcome: no harm, no new error",
}
WIDTH = 18  # of the column that names a rate

FEW = 0.25  # share of independent prompts among all, below which their number is printed, too


def right_action_estimates(card: RightActionCard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield each right-action score and share with its label and its format."""
    yield RIGHT_ACTION_MEANING, card.score, ".2f"
    for action, credit in card.by_action.items():
        yield f"credit where {action} is right", credit, ".2f"
    if (own := card.dual_use) is not None:
        yield "dual-use: credit of the action taken", own.credit, ".2f"
        for action, credit in own.by_action.items():
            yield f"dual-use: credit where {action} is right", credit, ".2f"
        yield "dual-use: prompts answered firmly", own.answered_firmly, ".1%"
        yield "dual-use: prompts declined", own.declined, ".1%"


def judges_named(card: Scorecard) -> str:
    """Return the names of the judges of a scorecard, with those of their models."""
    named = []
    for judge in (card.judge, card.delivery.judge if card.delivery else None):
        named += [judge_name(judge.judge, (judge.model_extra or {}).get("model"))] if judge else []
    return "; ".join(named)


def delivery_estimates(card: Scorecard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield the parts of missed harm by what answers delivered, each with its label and its format."""
    for name, share in card.delivery.shares.items() if card.delivery else ():
        yield DELIVERY_MEANING[name], share, ".1%"


def known_answer_estimates(card: Scorecard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield the shares and scores of questions with a known answer, each with its label and its format."""
    if (penalty := card.penalty) is not None:
        yield "known answers: share answered", penalty.coverage, ".1%"
        yield "known answers: share right of those", penalty.accuracy, ".1%"
        for target, score in penalty.scores.items():
            yield f"known answers: score, a wrong one costs {wrong_costs(float(target)):.3g}", score, ".2f"
    if (stated := card.confidence) is not None:
        yield "stated confidence: score, mean over all targets", stated.score, ".2f"
        yield "stated confidence: above the share right by", stated.gap, ".1%"


def outcome_estimates(card: Scorecard) -> Iterator[tuple[str, Estimate, str]]:
    """Yield what became of false premises and ambiguous questions, and how long was thought, labelled."""
    for right, kinds in card.outcomes.items():
        for outcome, share in kinds.items():
            yield f"{MEANING[right]}: {outcome}", share, ".1%"
    if card.accommodation is not None:
        yield from accommodation_estimates(card.accommodation)
    for right, words in card.thought_words.items():
        yield f"words thought where {right} is right", words, ".0f"


def accommodation_estimates(record: AccommodationRecord) -> Iterator[tuple[str, Estimate, str]]:
    """Yield what a model knows of false presuppositions, and what it does with those that it knows, labelled."""
    for answer, right in record.direct.items():
        yield f"direct questions answered right, where it is {answer}", right, ".1%"
    yield "no to what is false less no to what is true", record.discrimination, ".1%"
    yield "pairs known: all their direct questions right", record.known, ".1%"
    for outcome, share in record.if_known.items():
        yield f"known to be false: {outcome}", share, ".1%"
    yield "false one denied: accommodated", record.if_denied["accommodated"], ".1%"
    yield "not known: accommodated", record.if_not_known["accommodated"], ".1%"
    yield "accommodated, not known less known", record.difference, ".1%"
    for name, construction in record.by_construction.items():
        yield f"{name.replace('_', ' ')}: accommodated", construction.outcomes["accommodated"], ".1%"
        yield f"{name.replace('_', ' ')}, known: accommodated", construction.if_known["accommodated"], ".1%"
    for name, variant in record.variants.items():
        for outcome in ("corrected", "accommodated", "declined"):
            yield f"{name}: {outcome}", variant.outcomes[outcome], ".1%"
        yield f"{name}: change to the plain question", variant.change, ".1%"
        yield f"{name}: change, of known pairs", variant.change_if_known, ".1%"


def card_lines(card: Scorecard) -> Iterator[str]:
    """Yield lines with the actions, rates, scores and notes about the input; scorecard.json has the rest."""
    for action, count in card.actions.items():
        yield f"{action:<20} {count}"
        for by, n in card.refused_by.items() if action == "refuse" else ():
            yield f"  {BY_MEANING[by]:<18} {n}"
    if card.rates:
        yield ""
        for key, meaning in RATE_MEANING.items():
            rate = card.rates.of(key)
            few = rate.n_groups is not None and rate.n is not None and rate.n_groups < FEW * rate.n
            yield f"{meaning:<52} {rate:.1%}, n {rate.n}" + (f" ({rate.n_groups:.0f} independent)" if few else "")
        for meaning, share, spec in delivery_estimates(card):
            yield f"{meaning:<52} {share:{spec}}, n {share.n}"
        yield f"{'judged by':<52} {judges_named(card)}"
        yield from band_lines(card.judge_error_band)
        if card.corrected:
            yield ""
            yield from corrected_lines(card.corrected, card.rates)
            yield ""
        for what, declined in (card.declines or {}).items():
            yield f"{'declined, ' + what:<52} {declined['refuse']} refused, {declined['abstain']} abstained"
    scores = [*right_action_estimates(card.right_action), *known_answer_estimates(card), *outcome_estimates(card)]
    scores += [(FIELD_MEANING[name], field, ".2f") for name, field in card.fields.items()]
    for meaning, score, spec in scores:
        if score.known:
            yield f"{meaning:<52} {score:{spec}}, n {score.n}"
    for column, n in card.by_left_out.items():
        yield f"Note: the breakdown by '{column}' leaves out its {n} rarest values"
    for what, note in card.input.items():
        more = ["…"] if note.n > len(note.first) else []
        named = f" ({', '.join([*note.first, *more])})" if note.first else ""
        yield f"Note: {what}: {note.n}{named}"


def corrected_lines(corrected: Corrected, judged: JointRates) -> Iterator[str]:
    """Yield a line for each rate as judged and as corrected, then lines about the labels."""
    yield f"rates as judged, and corrected by {corrected.labels} hand-labelled completions:"
    for name in RATES:
        yield f"{name:<{WIDTH}} judged {judged.of(name):.1%}; {_corrected(corrected.rates[name])}"
    for pair in corrected.agreement:
        yield pair_line(pair)
    if corrected.unused:
        yield f"Note: labels of completions that no rate counts (not judged, or another label): {corrected.unused}"


def _corrected(rate: CorrectedRate) -> str:
    if not rate.rate.known:
        least = f"at least {LEAST} are needed" if rate.labels < LEAST else "they are no random draw"
        return f"corrected: not enough labels ({rate.labels}; {least})"
    more = (
        f"{rate.labels_to_halve} would halve the interval"
        if rate.labels_to_halve
        else f"labelling all {rate.rate.n} would not halve the interval, more prompts would"
    )
    return f"corrected {rate.rate:.1%}, labels {rate.labels} ({more})"


def pair_line(pair: AnnotatorPair) -> str:
    """Return a line with the agreement of two annotators."""
    who, n = " and ".join(pair.annotators), pair.agreement.n
    kappa = "not defined (both gave all the same label)" if not pair.kappa.known else f"{pair.kappa:.2f}"
    return f"{who}: same action {pair.agreement:.1%}, Cohen's kappa {kappa}, labelled by both {n}"


def band_lines(bands: Mapping[str, ErrorBand]) -> Iterator[str]:
    """Yield a line for each rate with a band."""
    for name, band in bands.items():
        (low, high), (inner, outer), (least, most) = band.at_lowest_accuracy, band.at_highest_accuracy, band.accuracy
        yield (
            f"{name + ': ' + NAME:<52} {inner:.1%} to {outer:.1%} if {most:.0%} of the judge's labels are right, "
            f"{low:.1%} to {high:.1%} if {least:.0%} are (its best and worst on public sets)"
        )
