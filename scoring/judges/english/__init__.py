"""The English rule table: patterns of refusing, abstaining, hedging and moralising, by kind; no logic.

`docs/judge-rules.md` shows the table with an example for each rule. Another language needs a package like this one.
"""

from __future__ import annotations

from pathlib import Path

from scoring.judges.english.answering import ANSWERING
from scoring.judges.english.declining import DECLINING
from scoring.judges.english.knowing import KNOWING
from scoring.judges.english.shape import SHAPE
from scoring.judges.table import parse_table

CONTRACTIONS = (
    "can not =cannot |can't=cannot|won't=will not|shan't=shall not|n't= not|i'm=i am|'re= are|'ve= have|i'd=i would|"
    "'ll= will|it's=it is|that's=that is|there's=there is|let's=let us|here's=here is| dont = do not |"
    " doesnt = does not | didnt = did not | cant = cannot | wont = will not | isnt = is not | wasnt = was not |"
    " wouldnt = would not | couldnt = could not | shouldnt = should not | havent = have not | im = i am |"
    " ive = i have | id rather = i would rather | gonna = going to | gona = going to | ain't = is not "
)
ENGLISH = parse_table(
    "en",
    SHAPE + KNOWING + DECLINING + ANSWERING,
    dict(pair.split("=") for pair in CONTRACTIONS.split("|")),
    weights=Path(__file__).resolve().parent / "weights.json",
)
