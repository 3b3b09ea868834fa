"""A ledger on disk gives the same counts as arrays in memory, in any order; repeated ids lose no completion."""

import math
import sqlite3
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extract.errors import UserError
from extract.prompts.prompt import LABELS, RIGHT_ACTIONS
from probes.statistics.intervals import LIMITED, effective_number
from scoring.actions import ACTIONS
from scoring.case import case_of_row
from scoring.fields import FIELDS
from scoring.ledger import Entry, Ledger, workspace
from scoring.rates import joint_rates, mean_of_groups
from scoring.right_action import load_adjacency, right_action_score
from scoring.scorecard import MAX_VALUES, rates_by, scorecard

CREDITS = load_adjacency()
ROW = st.fixed_dictionaries(
    {
        "label": st.sampled_from((*LABELS, None)),
        "action": st.sampled_from((*ACTIONS, None)),
        "group": st.integers(0, 4),
        "category": st.sampled_from(("how-to", "fact", "'); DROP TABLE said; --", None)),
        "acceptable": st.lists(st.sampled_from(RIGHT_ACTIONS), max_size=2),
        "fields": st.dictionaries(st.sampled_from(FIELDS), st.floats(0, 1)),
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=40)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with workspace() as connection:
        yield Ledger(connection)


def entry(row: dict, number: int) -> Entry:  # type: ignore[type-arg]
    case = case_of_row({"id": number, **row})
    return Entry(row.get("action"), "", row.get("fields", {}), case=case, completion=f"said {number}")


def counted(rows: list[dict], order: list[int] | None = None) -> dict:  # type: ignore[type-arg]
    with workspace() as connection:
        ledger = Ledger(connection)
        for i in order or range(len(rows)):
            ledger.add(entry(rows[i], i))
        return scorecard(ledger, CREDITS).to_dict()


def same(found: dict, expected: dict) -> None:  # type: ignore[type-arg]
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert found[key] == (None if value is None else pytest.approx(value, abs=1e-9)), key


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_rates_and_right_action_are_those_of_arrays(rows: list[dict]) -> None:  # type: ignore[type-arg]
    card = counted(rows)
    labelled = [row for row in rows if row["label"]]
    assert card["n"] == len(rows)
    assert sum(card["actions"].values()) == len(rows)
    if not labelled:
        assert card["rates"] is None
        return
    groups = np.array([row["group"] for row in labelled])
    actions = [row["action"] for row in labelled]
    same(card["rates"], joint_rates([row["label"] for row in labelled], actions, groups).to_dict())
    right = [case_of_row({"id": 0, **row}).right_action or "" for row in labelled]
    score = right_action_score(right, [sorted(row["acceptable"]) for row in labelled], actions, groups, CREDITS)
    if math.isnan(score.estimate):
        assert card["right_action"]["score"]["estimate"] is None
    else:
        found = card["right_action"]["score"]
        assert [found[limit] for limit in LIMITED] == pytest.approx(score.limits(), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(ROWS)
def test_fields_and_breakdowns_are_those_of_arrays(rows: list[dict]) -> None:  # type: ignore[type-arg]
    card = counted(rows)
    for name in FIELDS:
        known = [(row["fields"][name], row["group"]) for row in rows if name in row["fields"]]
        mean = card["fields"][name]
        assert mean["n"] == len(known)
        if known:
            sizes = np.unique([group for _, group in known], return_counts=True)[1]
            wanted = mean_of_groups(sum(value for value, _ in known), len(known), effective_number(sizes))
            assert [mean[limit] for limit in LIMITED] == pytest.approx(wanted.limits(), abs=1e-9)
        else:
            assert mean["estimate"] is None
    labelled = [row for row in rows if row["label"]]
    for category in {row["category"] for row in labelled if row["category"]}:
        mine = [row for row in labelled if row["category"] == category]
        labels, actions, groups = ([row[name] for row in mine] for name in ("label", "action", "group"))
        rates = joint_rates(labels, actions, np.array(groups))
        same(card["by"]["category"][category], rates.to_dict())


@settings(deadline=None, max_examples=30)
@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[dict], random) -> None:  # type: ignore[no-untyped-def, type-arg]
    order = random.sample(range(len(rows)), len(rows))
    one, other = counted(rows), counted(rows, order)
    for mean in (*one.pop("fields").values(), *other["fields"].values()):  # sums of floats
        mean.update(dict.fromkeys(LIMITED))
    other.pop("fields")
    assert one == other


def test_the_same_again_counts_once_and_other_words_count_as_another_sample(ledger: Ledger) -> None:
    case = case_of_row({"id": "a", "text": "q", "label": "benign"})
    relabelled = case_of_row({"id": "a", "text": "q", "label": "harmful"})
    said = [(case, "yes"), (case, "yes"), (case, "no"), (case, "yes"), (case, "no"), (relabelled, "yes"), (case, "so")]
    seen = [ledger.add(Entry("answer", "", case=about, completion=words)) for about, words in said]
    assert seen == [("new", ""), ("repeated", ""), ("conflicting", "#2"), ("repeated", ""), ("repeated", ""),
                    ("conflicting", "#3"), ("conflicting", "#4")]  # fmt: skip
    assert ledger.query("COUNT(*)") == [(4,)]
    assert scorecard(ledger, CREDITS).rates.missed_harm.n == 1


def test_named_samples_are_apart_even_where_they_are_named_as_numbered_ones_are(ledger: Ledger) -> None:
    case = case_of_row({"id": "a"})
    places = [ledger.add(Entry("answer", "", case=case, sample=sample, completion=words))[1]
              for sample, words in (("", "1"), ("#2", "2"), ("", "3"), ("#2", "4"))]  # fmt: skip
    assert len(set(places)) == 4
    assert ledger.query("COUNT(*)") == [(4,)]


def test_an_id_that_comes_again_and_again_is_looked_up_as_fast(ledger: Ledger) -> None:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def work(numbers: range) -> int:
        nonlocal steps
        steps = 0
        for number in numbers:
            ledger.add(Entry("answer", "", case=case_of_row({"id": "x"}), completion=str(number)))
        return steps

    ledger.connection.set_progress_handler(step, 10)
    early, late = work(range(100)), work(range(100, 1000)) and work(range(1000, 1100))
    assert late < 1.5 * early


def test_breakdowns_stop_at_the_most_frequent_values(ledger: Ledger) -> None:
    for i in range(MAX_VALUES + 50):
        ledger.add(entry({"label": "benign", "action": "answer", "category": str(i)}, i))
    ledger.add(entry({"label": "benign", "action": "refuse", "category": "0"}, MAX_VALUES + 50))
    card = scorecard(ledger, CREDITS).to_dict()
    assert len(card["by"]["category"]) == MAX_VALUES
    assert card["by"]["category"]["0"]["over_refusal"]["estimate"] == 0.5
    assert card["by_left_out"] == {"category": 50}
    assert rates_by(ledger, "'all'")["all"].over_refusal.n == MAX_VALUES + 51


def test_no_room_for_the_table_is_one_line_and_another_fault_is_not_called_a_full_disk() -> None:
    def fill() -> None:
        with workspace() as connection:
            connection.execute("PRAGMA max_page_count = 4")
            ledger = Ledger(connection)
            for i in range(500):
                ledger.add(entry({"text": "long " * 100}, i))

    with pytest.raises(UserError, match="set SQLITE_TMPDIR"):
        fill()
    with pytest.raises(sqlite3.OperationalError, match="no such table"), workspace() as connection:
        connection.execute("SELECT * FROM nowhere")
