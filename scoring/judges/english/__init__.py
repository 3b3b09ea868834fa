"""The English rule table, `rules.txt`: patterns of refusing, abstaining, hedging and moralising, by kind; no logic.

`docs/judge-rules.md` shows the table with an example for each rule. Another language needs a folder like this one.
"""

from __future__ import annotations

from pathlib import Path

from scoring.judges.table import parse_table

HERE = Path(__file__).resolve().parent
CONTRACTIONS = (
    "can not =cannot |can't=cannot|won't=will not|shan't=shall not|n't= not|i'm=i am|'re= are|'ve= have|i'd=i would|"
    "'ll= will|it's=it is|that's=that is|there's=there is|let's=let us|here's=here is| dont = do not |"
    " doesnt = does not | didnt = did not | cant = cannot | wont = will not | isnt = is not | wasnt = was not |"
    " wouldnt = would not | couldnt = could not | shouldnt = should not | havent = have not | im = i am |"
    " ive = i have | id rather = i would rather | gonna = going to | gona = going to | ain't = is not "
)
ENGLISH = parse_table(
    "en",
    (HERE / "rules.txt").read_text(encoding="utf-8"),
    dict(pair.split("=") for pair in CONTRACTIONS.split("|")),
    weights=HERE / "weights.json",
)
