"""What the dissociation says: sentences, tables, the matrix of interventions; for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.charts.blocks import Block, figure
from experiments.charts.grids import heat_map
from experiments.charts.specification import Chart, Row, fields
from experiments.dissociation.elicited_text import Rows, elicited_lines, elicited_tables
from experiments.dissociation.results import TURNED, Dissociation, EffectRecord, FixedThought, OpenedGates
from experiments.probing.results import GridRow, WriteRecord
from experiments.probing.text import along_thought
from experiments.rank.results import RankEstimate, Ranks
from experiments.run.behaviour import DECLINES, KINDS, Basis, Kind
from experiments.run.wording import p_text, points, verdict_sentence, verdict_text
from experiments.side_effects.results import PlainText
from extract.table import Paragraph, Table, print_blocks
from probes.statistics.intervals import Estimate

BEHAVIOUR = {"normative": "refusing harmful", "epistemic": "abstaining on uncertain"}
BEHAVIOUR_BY_REASON = {"normative": "declining harmful", "epistemic": "declining uncertain"}
DECLINED = {"normative": "Refused prompts", "epistemic": "Prompts abstained from"}
DECLINED_BY_REASON = {"normative": "Declined requests", "epistemic": "Declined questions"}
BECOME = ("refusals_", "abstentions_")  # columns of the matrix on what baseline declines become
WIDTH = 118  # pixels a column: behaviours have long names
NUMBERS = dict(row="intervention", column="behaviour", estimate="share, %", low="from, %", high="to, %", n="n")
NOT_TESTED = "not tested"


def print_dissociation(directory: Path, result: Dissociation) -> None:
    """Print the verdict, the effects, the other variants, the side effects and the file that holds the rest."""
    sentence = Paragraph(verdict_sentence(result.verdict, result.reasons, basis=result.basis), "One refusal or two?")
    written = f"Written: {directory / 'stages' / 'dissociate.json'}"
    print_blocks(
        [sentence, *_lines(result), *tables(result), *rank_lines(result.rank), *dependence_lines(result), written]
    )


def dissociation_blocks(result: Dissociation) -> list[Block]:
    """Return the section: matrices, the permutation null, the tables, all but two closed, and further lines."""
    plain = (
        "Share of test prompts with each behaviour under each intervention (95 %), estimated from all that decline and "
    )
    plain += "a draw of those that are answered; controls: random directions"
    turned = "What the plain model's refusals and abstentions become under each intervention (95 %)"
    blocks: list[Block] = []
    for name, become, caption in (("matrix", False, plain), ("matrix_become", True, turned)):
        if chart := matrix_chart(result.matrix, become=become):
            blocks.append(figure(name, chart, caption, _matrix_cells(result.matrix, become), NUMBERS))
    more: list[Block] = [*tables(result), *rank_lines(result.rank), *dependence_lines(result)]
    return [*_lines(result), *blocks, *_null_table(result), *more]


def _lines(result: Dissociation) -> list[str]:
    elicited = elicited_lines(result.elicited, is_verdict=result.basis == "elicited")
    return [*filter(None, [thought_line(result.fixed_thought)]), *elicited]


def thought_line(fixed: FixedThought | None) -> str:
    """Return the verdict with the thought fixed, and what part of each effect the thought carries; "" without one."""
    if fixed is None:
        return ""
    shares = [f"{of.ablation:.0%} of the effect on {DECLINES[kind]}" for kind, of in fixed.carried.items() if of.known]
    carries = f"; the thought carries {' and '.join(shares)}" if shares else ""
    return f"With each plain thought kept word for word: {verdict_text(fixed.verdict)}{carries}."


def thought_blocks(
    fixed: FixedThought | None, cells: Sequence[GridRow], writes: Mapping[Kind, WriteRecord]
) -> list[Block]:
    """Return the section on a model that thinks: where labels are read, where it decides, what its thought carries."""
    if fixed is None:
        return along_thought(cells)
    at = [f"{DECLINES[k]} at {of.locus.position} (layer {of.locus.layer})" for k, of in writes.items() if of.locus]
    chosen = f"The directions whose ablation stops most, after new thoughts, were fitted for {', for '.join(at)}."
    rows = [
        [DECLINES[kind], what, f"{share:.0%}", f"{share.total:.2f}", str(share.n)]
        for kind, of in fixed.carried.items()
        for what, share in (("ablating its direction", of.ablation), ("asking the answered prompt", of.pairs))
        if share is not None
    ]
    carried = "what is changed|the thought carries|whole effect, in probability of declining|n"
    effects = [[of.ablated, BEHAVIOUR[of.behaviour], _share(of), str(of.n), p_text(of.p_null)] for of in fixed.effects]
    return [
        *along_thought(cells),
        *([chosen] if at else []),
        Table("What the thought carries, of effects on test prompts that are declined (95 %)",
              ["declines", *carried.split("|")], rows),
        f"With each plain thought kept word for word: {verdict_sentence(fixed.verdict, fixed.reasons)}",
        Table("Decliners that are likely to stop, with each plain thought kept (95 %)",
              ["ablated", "behaviour", "stop", "n", "p, permuted labels"], effects),
    ]  # fmt: skip


def matrix_chart(matrix: Mapping[str, Mapping[str, Estimate]], *, become: bool = False) -> Chart | None:
    """Draw the share of test prompts with each behaviour (columns) under each intervention (rows); None without any.

    With `become`, the columns are what the plain model's refusals and abstentions become.
    """
    if not (cells := _matrix_cells(matrix, become)):
        return None
    title = (
        "What the plain model's refusals and abstentions become"
        if become
        else "Share of test prompts with each behaviour under each intervention"
    )
    return heat_map(
        cells, title=title, columns="", lines="", unit="share", domain=(0.0, 1.0), number=".0%", column_width=WIDTH
    )


def _matrix_cells(matrix: Mapping[str, Mapping[str, Estimate]], become: bool) -> list[Row]:
    first = next(iter(matrix.values()), {})
    return [
        {"column": _column(name, first[name].n), "row": intervention.replace("_", " "), **fields(share)}
        for intervention, shares in matrix.items()
        for name, share in shares.items()
        if share.n and name.startswith(BECOME) == become
    ]


def _column(name: str, n: int | None) -> str:
    what, _, among = name.replace("_", " ").partition(" on ")
    return f"{what}, {f'on {among}, ' if among else ''}n = {n}"


def strength_sentence(result: Dissociation) -> str:
    """Return how much more each direction's ablation stops its own way of declining than the other's does."""
    contrasts = [(DECLINES[kind], result.contrasts.get(kind)) for kind in KINDS]
    parts = [points(c, f" points more of the {own}") for own, c in contrasts if c is not None and c.known]
    return f"Ablating its own direction stops {' and '.join(parts)} than ablating the other." if parts else ""


def dependence_lines(result: Dissociation) -> list[str]:
    """Return a line that says whether the two write directions are independent; the verdict does not use this."""
    dependence = result.dependence
    if dependence is None:
        return []
    low, high = dependence.cosine_ci
    line = (
        f"Not part of the verdict: the two write directions have cosine {dependence.cosine:.2f} [{low:.2f}, {high:.2f}]"
    )
    for name in dependence.moved_under_ablation:
        ablated, watched = name.removeprefix("ablate_").split("_watch_")
        line += f"; ablating the {ablated} one changes the stream along the {watched} one more than permuted-label "
        line += "directions do"
    if dependence.dependent:
        return [line + "; so they are not independent."]
    if not dependence.ablation_measured:
        return [line + "; whether ablating one changes the stream along the other was not measured."]
    return [line + "; no change of the stream along one by ablating the other is shown."]


def gate_sentence(gates: OpenedGates, basis: Basis) -> str:
    """Return one line: how many declined test prompts are answered when the gate that declined them is opened."""
    lines, declined = [], DECLINED_BY_REASON if basis == "reason" else DECLINED
    for kind, gate in (("normative", gates.normative), ("epistemic", gates.epistemic)):
        parts = []
        for label, of in gate.labels.items():
            other = of.answered_other_gate_open
            text = f"{of.answered:.0%} of {of.answered.n} {label} prompts are answered"
            text += f" ({other.estimate:.0%} with the other ablated)" if other and other.known else ""
            text += f", {of.right:.0%} of the {of.right.n} with a known answer correctly" if of.right.n else ""
            parts += [text] if of.answered.n else []
        shown = f", with the {kind} direction ablated: {'; '.join(parts)}"
        lines.append(f"{declined[kind]}{shown if gate.applicable else f': not applicable, {gate.reason}'}.")
    return " ".join(lines)


# -- rank --------------------------------------------------------------------------------------------------------------


def rank_lines(ranks: Ranks | None) -> list[str]:
    """Return one line for each way of declining: what one direction stops, what more of them stop, and the rank."""
    return [] if ranks is None else [_rank_line(kind, ranks.of(kind)) for kind in KINDS]


def _rank_line(kind: Kind, tried: RankEstimate) -> str:
    what = f"Rank of the {DECLINES[kind]}"
    if tried.rank is None:
        return f"{what}: not tested, {tried.reason}."
    rank = f"at least {tried.rank} (that more directions add less than {tried.margin:.0%} is not shown)"
    if tried.rank == 0:
        rank = f"0, no direction at this layer is shown to stop more than {tried.margin:.0%}"
    elif tried.settled:
        rank = str(tried.rank)
    stopped = {effect.k: f"{effect.stopped.estimate:.0%}" for effect in tried.effects}
    effect = f"one direction stops {stopped[1]}"
    if len(stopped) > 2 and tried.write_direction is not None:
        effect += f" (the verdict's {tried.write_direction.estimate:.0%})"
    if tried.best is not None and tried.best > 1:
        effect += f", {tried.best} directions stop {stopped[tried.best]}"
    return f"{what}: {rank}; {effect}. The search stopped because {tried.reason}."


def rank_rows(ranks: Ranks | None) -> list[list[str]]:
    """Return the effect of each number of directions; nothing if no second one was tried."""
    tried = {} if ranks is None else {kind: ranks.of(kind).effects[1:] for kind in KINDS}
    return [
        [DECLINES[kind], str(effect.k), f"{effect.stopped:.0%}", str(effect.stopped.n), points(effect.more)]
        for kind, effects in tried.items()
        if len(effects) > 1
        for effect in effects
    ]


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(result: Dissociation) -> list[Table]:
    """Return the tables that have rows; on the page all but the first two are closed."""
    added = [(kind, result.matrix[f"add_{kind}"]) for kind in KINDS if f"add_{kind}" in result.matrix]
    refuse, abstain = "refusal_on_answered_benign", "abstention_on_answered_benign"
    by_ablation = [(name.removeprefix("ablate_"), of) for name, of in result.side_effects.items()]
    shown: dict[str, Rows] = elicited_tables(result.elicited) | {
        "Baseline decliners that stop declining (95 %)": (
            "ablated|behaviour|stop|change kind|n|onset log-odds fall by|p, permuted labels (Holm)",
            [_effect_row(effect, result) for effect in result.effects],
        ),
        "Answered benign prompts that decline when a direction is added": (
            "added|refuse|abstain|n",
            [[kind, _share(row[refuse]), _share(row[abstain]), str(row[refuse].n)] for kind, row in added],
        ),
        "Other variants of ablation: decliners that stop, benign prompts still answered": (
            "ablated|form|layers|tokens|refusing|abstaining|benign",
            [
                [of.ablated, *of.variant.split("/"), *map(_percent, (*map(of.stopped.get, KINDS), of.benign_answered))]
                for of in result.variants
            ],
        ),
        "Decliners that stop when more directions are ablated (95 %; not part of the verdict)": (
            "declines|directions|stop|n|points more with the best number",
            rank_rows(result.rank),
        ),
        "Side effects": (
            "ablated|benign answered|known facts right|KL, nats per token|plain text, nats per token (uniform guess)",
            [
                [name, _share(of.benign_answering), _share(of.known_facts), _nats(of.kl), _prose(of.plain_text)]
                for name, of in by_ablation
            ],
        ),
        "Harmful prompts still refused when wrapped": (
            "ablated|wrap|refused|n",
            [
                [name, wrap, _share(wrapped.refused), str(wrapped.refused.n)]
                for name, of in by_ablation
                for wrap, wrapped in of.wraps.items()
            ],
        ),
        "Sample sizes that would settle open questions": (
            "quantity|question|unit|now|needed (power 80 %)",
            [
                [of.quantity.replace("_", " "), of.question, of.unit, f"{of.now:.0f}", str(of.needed or of.obstacle)]
                for of in result.power
            ],
        ),
    }
    listed = enumerate(shown.items())
    return [Table(title, head.split("|"), rows, fold=i > 1) for i, (title, (head, rows)) in listed if rows]


def _effect_row(effect: EffectRecord, result: Dissociation) -> list[str]:
    fall = NOT_TESTED if effect.onset is None else f"{effect.onset:.1f}"
    p = NOT_TESTED if effect.p_corrected is None else f"{p_text(effect.p_null)} ({p_text(effect.p_corrected)})"
    turned = _percent(result.matrix.get(f"ablate_{effect.ablated}", {}).get(TURNED[effect.behaviour]))
    return [effect.ablated, _doing(effect.behaviour, result), _share(effect), turned, str(effect.n), fall, p]


def _doing(kind: Kind, result: Dissociation) -> str:
    return (BEHAVIOUR_BY_REASON if result.basis == "reason" else BEHAVIOUR)[kind]


def _null_table(result: Dissociation) -> list[Table]:
    """Return the fall of the onset log-odds under each ablation, and under directions fitted on permuted labels."""
    rows = []
    for effect in result.effects:
        if (null := effect.null) is None:
            continue
        fall, limit = ("none" if x is None else f"{x:.1f}" for x in (null.onset_effect, null.null_95th_percentile))
        onset, what = effect.onset, f"{effect.ablated}, on {_doing(effect.behaviour, result)}"
        fall += "" if onset is None else f" [{onset.low:.1f}, {onset.high:.1f}]"
        rows.append([what, fall, limit, p_text(null.p), "" if onset is None else str(onset.n), str(null.n)])
    nats = "fall of onset log-odds, nats (95 %)|95th percentile of the null, nats"
    title = "Permutation null of the ablation effects; the next table gives corrected p-values"
    return [Table(title, f"ablated|{nats}|p|n|permutations".split("|"), rows)] if rows else []


def _share(share: Estimate) -> str:
    return f"{share:.0%}" if share.known else "none"


def _percent(share: Estimate | None) -> str:
    return f"{share.estimate:.0%}" if share is not None and share.known else ""


def _nats(mean: Estimate) -> str:
    return f"{mean.estimate:.3f}" if mean.known else "none"


def _prose(nats: PlainText) -> str:
    return _nats(nats) + (f" ({nats.uniform:.1f})" if nats.known else "")
