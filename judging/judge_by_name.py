"""Open a judge by name or YAML file; its dependencies (torch, openai) are imported only then."""

from __future__ import annotations

from pathlib import Path

from scoring.judges import CompletionJudge
from scoring.judges.config import EndpointConfig, LocalConfig, load_judge
from scoring.judges.rules import RuleJudge
from scoring.judges.site_phrases import SitePhrases, read_phrases


def open_judge(given: str, cache: Path | None = None, also_refuses: Path | None = None) -> CompletionJudge:
    """Open the judge `rules`, or the one that a YAML file describes; a UserError says why it cannot be opened.

    Args:
        given: `rules`, the path of a YAML file, or the name of one in configs/judges.
        cache: a file that stores the replies of an endpoint, so that no request is repeated; unused by other judges.
        also_refuses: a file of phrases, one a line; a completion with one of them is a refusal for any judge.
    """
    if also_refuses is not None:
        phrases = read_phrases(also_refuses)  # before a model is loaded
        return SitePhrases(open_judge(given, cache), phrases)
    if given == "rules":
        return RuleJudge()
    if isinstance(config := load_judge(given), EndpointConfig):
        from scoring.judges.endpoint import EndpointJudge  # loads openai

        return EndpointJudge(config, cache)
    from extract.model.loading_options import quiet_libraries

    quiet_libraries()
    if isinstance(config, LocalConfig):
        from judging.local import LocalJudge

        return LocalJudge(config)
    from judging.classifier import ClassifierJudge

    return ClassifierJudge(config)
