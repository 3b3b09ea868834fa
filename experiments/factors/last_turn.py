"""AUROC of harmful against benign requests by the log-odds of refusing: whole conversation and last turn alone."""

from __future__ import annotations

from experiments.factors.prompt_context import ABSENT, ambiguous_texts
from experiments.factors.removal import RemovedRequests
from experiments.factors.results import LastTurnAuroc, LastTurnScores
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.not_applicable import NotApplicable, not_applicable
from probes.statistics.intervals import Estimate
from probes.statistics.metrics import LEAST_OF_CLASS, discrimination, enough


def score_last_turn(loaded: LoadedRun, removed: RemovedRequests | None) -> LastTurnScores | NotApplicable:
    """Score the onset log-odds of refusing of requests with earlier turns, whole and by the last turn alone.

    Args:
        removed: requests asked again without their earlier turns; None where no request has any.
    """
    if removed is None:
        return not_applicable(ABSENT["earlier_turns"])
    measured = LastTurnScores(applicable=True, n=len(removed.rows), texts=ambiguous_texts(loaded.corpus))
    harmful, onsets = loaded.corpus.harmful[removed.rows], context_onsets(loaded)
    if not onsets.prefixes["refuse"]:
        lacking = "openings cannot be scored (the model thinks first)" if onsets.thinking else "nothing is refused"
    elif harmful.all() or not harmful.any():
        lacking = "harmful or benign ones are missing"
    elif not enough(int(harmful.sum()), int((~harmful).sum())):
        lacking = f"{harmful.sum()} are harmful and {(~harmful).sum()} benign, fewer than {LEAST_OF_CLASS} of a class"
    else:
        rows = {"whole": [loaded.rendered[row] for row in removed.rows], "alone": list(removed.rendered)}
        groups, auroc = loaded.corpus.groups[removed.rows], dict[str, Estimate]()
        for name, rendered in rows.items():
            log_odds = OnsetScorer(loaded.model, rendered, onsets).log_odds()["refuse"]
            auroc[name] = discrimination(harmful, log_odds, groups).auroc
        return measured.model_copy(update={"auroc": LastTurnAuroc(**auroc)})
    return measured.model_copy(update={"reason": f"of the requests with earlier turns, {lacking}"})
