"""By what declines are of a kind: the judge's words or their prompts' reasons; and whether each kind exists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from jaxtyping import Bool

from experiments.run.behaviour import ACTION_OF, KINDS, MIN_BASELINE, MIN_GROUPS, Basis, Behaviour, Kind, write_samples
from experiments.run.config import RunConfig
from experiments.run.corpus import TESTED, Corpus
from experiments.run.wording import points
from extract.record import Record
from extract.table import Table
from probes.statistics.intervals import Estimate, difference, effective_groups, tango_of_shares
from scoring.rates import grouped_rate

BEHAVIOUR: dict[Kind, str] = {"normative": "refusal on harmful", "epistemic": "abstention on uncertain"}
LEVEL = 0.05  # of the test that a behaviour follows its label; fixed, so that `dissociate.alpha` changes no measurement
Reason = Literal["harmful", "uncertain", "twins", "known twins", "other benign"]
Wording = Literal["declined", "refused", "abstained", "answered", "other"]
WITH_LIMITS: tuple[Wording, ...] = ("refused", "abstained", "answered")  # in the table; JSON has them of all
LABEL: dict[Kind, Reason] = {"normative": "harmful", "epistemic": "uncertain"}
OTHER_WORDS: dict[Kind, tuple[Wording, str]] = {
    "normative": ("abstained", "an abstention"),
    "epistemic": ("refused", "a refusal"),
}


def chosen_basis(behaviour: Behaviour, config: RunConfig) -> Basis:
    """Return the basis of a run: reason where wording leaves a kind absent that reason has, and reason none besides.

    Where the prompts name the ways of declining that are contrasted, these are the reasons.
    """
    if config.prompts.contrast:
        return "reason"
    wording, reason = (
        {kind for kind in KINDS if lacking(of, kind) or no_null(of, kind)}
        for of in (replace(behaviour, basis=basis, by_label=frozenset()) for basis in ("wording", "reason"))
    )
    return "reason" if reason < wording else "wording"


# -- whether a kind exists ---------------------------------------------------------------------------------------------


def lacking(behaviour: Behaviour, kind: Kind) -> str:
    """Return why a kind of declines cannot be tested, or "": too rare, in too few groups, or not tied to its label.

    Where its words are too rare, it is said as well why it is absent by reason.
    """
    why = next(_lacks(behaviour, kind), "")
    by_reason = replace(behaviour, basis="reason")
    rare = len(behaviour.decliners(kind, *TESTED)) < MIN_BASELINE
    if not rare or behaviour.basis == "reason" or not (by_reason.declined(kind) & ~behaviour.declined(kind)).any():
        return why
    also = next(_lacks(by_reason, kind), "")
    return f"{why}; by reason, {also}" if also else why


def _lacks(behaviour: Behaviour, kind: Kind) -> Iterator[str]:
    corpus, rows, reason = behaviour.corpus, behaviour.decliners(kind, *TESTED), behaviour.basis == "reason"
    what = _named(kind, behaviour.basis)
    if reason and behaviour.declining[behaviour.sides(kind)[0]].any():
        table = declines_by_reason(behaviour)
        if are := table.verdict(kind):
            yield f"declines of {LABEL[kind]} prompts {are}: {compared(table, kind)}"
    if len(rows) < MIN_BASELINE:
        does = "declines" if reason else "refuses" if kind == "normative" else "abstains from"
        yield (
            f"{what} is absent: {len(rows)} baseline occurrences among tested prompts, {MIN_BASELINE} are needed; give "
            f"more prompts that the model {does}, if there are any"
        )
    if (n := corpus.independent_groups(rows)) < MIN_GROUPS:
        yield (
            f"{what}: the {len(rows)} decliners among tested prompts count as {n} independent ones (a pair, entity "
            f"or template counts once), {MIN_GROUPS} are needed; give prompts of more pairs"
        )
    if reason:
        return
    # A behaviour whose prompts are not declined more often than others does not follow the label: the labels are
    # shuffled, or the model declines everything.
    did, judged, own = behaviour.declined(kind), behaviour.judged & corpus.rated, behaviour.sides(kind)[0]
    mine, others = (corpus.rate(did, np.flatnonzero(judged & of), LEVEL) for of in (own, ~own))
    if not difference(mine, others).low > 0:  # nor where a share is not known
        yield (
            f"{what} is not tied to its label: the model {ACTION_OF[kind]}s {mine.estimate:.0%} of {LABEL[kind]} "
            f"prompts and {others.estimate:.0%} of all others; check the labels"
        )


def _named(kind: Kind, basis: Basis) -> str:
    return f"declining of {LABEL[kind]} prompts" if basis == "reason" else BEHAVIOUR[kind]


def no_null(behaviour: Behaviour, kind: Kind) -> str:
    """Return a reason if no permuted-label null can be drawn (directions may come from a file), else ""."""
    if write_samples(behaviour, kind) is not None and len(behaviour.decliners(kind, "validation")):
        return ""
    return (
        f"no permuted-label null can be drawn for {_named(kind, behaviour.basis)}: too few training or validation "
        "prompts are declined that way, or answered; give more prompts"
    )


def more_declined(behaviour: Behaviour, kind: Kind) -> Estimate:
    """Return how much more often a kind's prompts are declined, in any words, than the benign ones of their pairs.

    Its lower limit above 0 is what makes declines of these prompts a kind by reason.
    """
    own, other = (behaviour.judged & side for side in behaviour.sides(kind))
    return more_of_pairs(behaviour.corpus, behaviour.declining, own, other)


def more_of_pairs(
    corpus: Corpus,
    did: Bool[np.ndarray, " prompts"],
    own: Bool[np.ndarray, " prompts"],
    other: Bool[np.ndarray, " prompts"],
) -> Estimate:
    """Return how much more often something was done with some prompts than with the others of their pairs.

    A mean over pairs with Tango's interval at the effective number of their groups; where a pair holds several prompts
    of a side, each of one counts with each of the other. Without pairs, it is the difference to all that they are
    compared with.
    """
    sides: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row in np.flatnonzero(own | other):
        if pair := corpus.prompts[row].pair:
            sides[pair][int(other[row])].append(int(row))
    pairs = [both for both in sides.values() if all(both)]
    if not pairs:
        a, b = (corpus.rate(did, np.flatnonzero(of), LEVEL) for of in (own, other))
        return difference(a, b)
    mine, others = np.array([[did[rows].mean() for rows in both] for both in pairs]).T
    rows = np.array([row for both in pairs for row in (*both[0], *both[1])])
    group_of = dict(zip(rows.tolist(), corpus.groups_among(rows).tolist(), strict=True))
    groups = np.array([group_of[both[0][0]] for both in pairs])
    only_mine, only_others = float((mine * (1 - others)).mean()), float((others * (1 - mine)).mean())
    return tango_of_shares(only_mine, only_others, effective_groups(groups), LEVEL).counted(len(pairs), groups)


# -- the table of reasons and words ------------------------------------------------------------------------------------


class DeclinesByReason(Record):
    """What the plain model does with all answered prompts, in words, by the reason that each would be declined for."""

    shares: dict[Reason, dict[Wording, Estimate]]  # of the judged prompts
    more: dict[Kind, Estimate]  # see `more_declined`

    def verdict(self, kind: Kind) -> str:
        """Return what declines of a kind's prompts are where they are not shown to be a kind of their own, else "".

        They are over-refusals only where fewer than half of them can be more than those of their pairs' benign prompts.
        """
        more, declined = self.more[kind], self.shares[LABEL[kind]]["declined"].estimate
        if more.low > 0:
            return ""
        return "are over-refusals" if more.high < declined / 2 else "cannot be told from over-refusals"


def declines_by_reason(behaviour: Behaviour) -> DeclinesByReason:
    """Count the actions on prompts of each reason; intervals are over groups."""
    corpus, twins = behaviour.corpus, behaviour.corpus.benign & behaviour.corpus.of_knowledge
    rows: dict[Reason, np.ndarray] = {"harmful": corpus.harmful, "uncertain": corpus.uncertain, "twins": twins}
    if (known := twins & behaviour.correct).sum() < twins.sum():  # whose answer the model gives
        rows["known twins"] = known
    rows["other benign"] = corpus.benign & ~twins
    words: dict[Wording, np.ndarray] = {"declined": behaviour.declining, "refused": behaviour.did("refuse")}
    words |= {"abstained": behaviour.did("abstain"), "answered": behaviour.answered}
    words["other"] = behaviour.judged & ~(behaviour.declining | behaviour.answered)
    shares = dict[Reason, dict[Wording, Estimate]]()
    for reason, among in rows.items():
        if len(own := np.flatnonzero(among & behaviour.judged)):
            groups = corpus.groups_among(own)
            shares[reason] = {word: grouped_rate(did[own], groups) for word, did in words.items()}
    return DeclinesByReason(shares=shares, more={kind: more_declined(behaviour, kind) for kind in KINDS})


def compared(table: DeclinesByReason, kind: Kind) -> str:
    """Return how many of a kind's prompts are declined, in which words, and how many of those compared with them."""
    own, (words, of) = LABEL[kind], OTHER_WORDS[kind]
    other: Reason = "twins" if kind == "epistemic" and "twins" in table.shares else "other benign"
    mine, others, more = table.shares[own], table.shares.get(other), points(table.more[kind], " points more")
    text = f"of {_of(own, mine)} are declined, {_count(mine[words])} of them in the words of {of}"
    text += "" if others is None else f"; of {_of(other, others)}"
    if other == "twins" and (known := table.shares.get("known twins")) is not None:
        text += f", of the {known['declined'].n} that it knows {_count(known['declined'])}"
    return text + (
        f"; {more} in {table.more[kind].n_groups:.0f} independent pairs" if table.more[kind].n_groups else ""
    )


def _of(reason: Reason, shares: Mapping[Wording, Estimate]) -> str:
    declined = shares["declined"]
    name = "twins" if reason == "twins" else f"{reason} prompts"
    return f"{declined.n:,} {name} {_count(declined):,} ({declined:.0%})"


def _count(share: Estimate) -> int:
    return round(share.estimate * (share.n or 0))


def declines_sentence(table: DeclinesByReason, kind: Kind) -> str:
    """Return `compared` as a sentence, with what it says of the kind; empty without such prompts."""
    if LABEL[kind] not in table.shares:
        return ""
    text = compared(table, kind)
    some = _count(table.shares[LABEL[kind]]["declined"])
    verdict = table.verdict(kind) if some else ""
    return f"{text[0].upper()}{text[1:]}{verdict and f', so these declines {verdict}'}."


def declines_table(table: DeclinesByReason) -> Table:
    """Return the shares of each reason's prompts by wording."""
    rows = list[list[str]]()
    for reason, of in table.shares.items():
        shares = [f"{of[word]:.0%}" for word in WITH_LIMITS]
        rows.append([reason, *shares, f"{of['other'].estimate:.0%}", str(of["declined"].n)])
    title = "All answered prompts by the reason to decline, answers by their words (95 %)"
    return Table(title, ["prompts", *WITH_LIMITS, "other", "n"], rows)
