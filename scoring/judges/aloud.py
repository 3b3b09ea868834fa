"""What a completion said aloud, as the judges that ask a model read it: one that said nothing is not asked about."""

from __future__ import annotations

from scoring.judges import Judgement, Said
from scoring.judges.rules import spoken


def aloud(said: Said) -> str | Judgement:
    """Return what follows a closed thinking block and an echoed prompt, or the judgement that there is nothing."""
    text = spoken(said.completion, said.prompt)
    if text is None:
        return Judgement(None, "the thinking block never ends, so nothing was said")
    return text or Judgement(None, "the completion is empty")
