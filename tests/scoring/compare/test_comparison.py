"""Comparing two runs on the same prompts: significant changes, their direction and their intervals."""

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from extract.errors import UserError
from extract.prompts.prompt import LABELS
from extract.shipped import ROOT
from scoring.actions import ACTIONS
from scoring.compare.comparison import compare_runs, mcnemar, write_comparison
from scoring.compare.text import print_comparison
from scoring.rates import RATES
from scoring.right_action import load_adjacency, right_action_score, score_change
from scoring.scored_file import judge_of
from tests.support.draws import draws

CREDITS = load_adjacency()
RIGHT = {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}
Labelled = Sequence[tuple[str, str | None, Any]]  # label, action, group


def run(path: Path, said: Labelled, **also: Any) -> Path:
    rows = [{"id": str(i), "action": action, "evidence": "", "label": label, "group": group, **also}
            for i, (label, action, group) in enumerate(said)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def compared(folder: Path, first: Labelled, second: Labelled) -> dict[str, Any]:
    paths = [run(folder / "first.jsonl", first), run(folder / "second.jsonl", second)]
    return compare_runs(paths, CREDITS).to_dict()["comparisons"][0]  # type: ignore[no-any-return]


def policy(actions: dict[str, str], n: int = 40) -> Labelled:
    return [(label, actions[label], f"{label} {i}") for label in LABELS for i in range(n)]


ANSWERS = dict.fromkeys(LABELS, "answer")


@pytest.mark.parametrize(
    ("first", "second", "move"),
    [
        (ANSWERS, dict.fromkeys(LABELS, "refuse"), "along_the_trade_off"),  # more caution on all prompts
        (dict.fromkeys(LABELS, "refuse"), ANSWERS, "along_the_trade_off"),
        (ANSWERS, RIGHT, "better"),
        (RIGHT, ANSWERS, "worse"),
        (ANSWERS, ANSWERS | {"harmful": "refuse"}, "better"),
        (ANSWERS, ANSWERS | {"uncertain": "refuse"}, "along_the_trade_off"),  # overconfidence hidden behind refusals
        (ANSWERS | {"uncertain": "refuse"}, ANSWERS | {"uncertain": "abstain"}, "better"),
        (RIGHT, RIGHT, "none_shown"),
        (ANSWERS, ANSWERS | {"benign": "answer_with_caveat"}, "none_shown"),  # another action, the same rates
    ],
)
def test_a_planted_change_is_found(first: dict[str, str], second: dict[str, str], move: str, tmp_path: Path) -> None:
    found = compared(tmp_path, policy(first), policy(second))
    assert found["move"] == move
    if second == RIGHT:
        assert found["right_action_change"]["estimate"] > 0 or first == RIGHT
    if len(set(first.values())) == len(set(second.values())) == 1:
        assert found["right_action_change"]["estimate"] == pytest.approx(0)  # caution alone earns no credit


@pytest.mark.parametrize(("up", "down"), [(0, 0), (1, 0), (7, 0), (3, 9), (30, 31), (400, 350), (3000, 0)])
def test_single_prompts_are_tested_as_mcnemar_does(up: int, down: int) -> None:
    expected = binomtest(up, up + down).pvalue if up + down else 1.0
    assert mcnemar({1: up, -1: down, 0: 17}) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.integers(-4, 4), max_size=9))
def test_groups_are_tested_by_every_way_their_signs_could_have_fallen(nets: list[int]) -> None:
    ways = [abs(sum(sign * net for sign, net in zip(signs, nets, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(nets))]  # fmt: skip
    expected = np.mean([way >= abs(sum(nets)) for way in ways])
    assert mcnemar(Counter(nets)) == pytest.approx(expected)


def test_many_groups_of_many_sizes_are_tested_too() -> None:
    rng = np.random.default_rng(0)
    nets = Counter((rng.geometric(0.3, 30_000) * rng.choice([-1, 1], 30_000)).tolist())
    z = sum(net * n for net, n in nets.items()) / np.sqrt(sum(net**2 * n for net, n in nets.items()))
    assert mcnemar(nets) == pytest.approx(2 * norm.sf(abs(z)), abs=0.01)


def test_what_is_shown_goes_the_way_of_the_difference(tmp_path: Path) -> None:
    """Twelve prompts stop being refused and one group of fifty begins: more refusals, though most groups had fewer."""
    first = [("benign", "refuse", i) for i in range(12)] + [("benign", "answer", "large")] * 50
    second = [("benign", "answer", i) for i in range(12)] + [("benign", "refuse", "large")] * 50
    change = compared(tmp_path, first, second)["changes"]["over_refusal"]
    assert change["difference"]["estimate"] > 0
    assert not change["shown"]  # one group of fifty is weak evidence
    assert change["difference"]["low"] < 0 < change["difference"]["high"]


@pytest.mark.parametrize("size", [1, 4])
def test_without_a_change_one_is_rarely_shown(size: int) -> None:
    """1000 pairs of runs of one policy, with prompts of a group behaving alike: at most 5 % of the tests reject."""
    rng = np.random.default_rng(size)
    shown = []
    for _ in range(1000):
        first, second = rng.random((2, 60)) < 0.3
        nets = Counter((size * (second.astype(int) - first)).tolist())
        shown.append(mcnemar(nets) < 0.05)
    assert np.mean(shown) < 0.065


@draws(15, 60)
def test_the_interval_covers_the_change_of_groups_of_unequal_size(tmp_path: Path, n_draws: int) -> None:
    """Groups that behave as one; the largest has as many prompts as all others together."""
    rng, covered = np.random.default_rng(2), []
    sizes = [40] + [1] * 40
    for _ in range(n_draws):
        begins = rng.random(len(sizes)) < 0.3
        first = [("benign", "answer", g) for g, size in enumerate(sizes) for _ in range(size)]
        second = [("benign", "refuse" if begins[g] else "answer", g) for _, _, g in first]
        change = compared(tmp_path, first, second)["changes"]["over_refusal"]["difference"]
        low, high = change["low"], change["high"]
        covered.append(low <= 0.3 <= high)
    assert np.mean(covered) >= {15: 0.85, 60: 0.93}[n_draws]


@pytest.mark.parametrize("together", [False, True])
def test_the_interval_of_the_right_action_change_covers_it(together: bool) -> None:
    """Three prompts a group, one in three changes to right; the interval also covers changes of whole groups."""
    changes = {"answer": ("refuse", "answer"), "refuse": ("answer", "refuse"), "abstain": ("answer", "abstain")}
    rng, covered, n = np.random.default_rng(3), [], 80
    shared = {(c, d): float(n) for c in changes for d in changes if together or c == d}

    def change(moves: dict[str, int]) -> Any:
        counts = {(c, (), *pair): moves[c] for c, pair in changes.items()}
        stays = {(c, (), first, first): n - moves[c] for c, (first, _) in changes.items()}
        return score_change(Counter(counts | stays), shared, CREDITS)

    truth = 0.3 / 0.7 * (change(dict.fromkeys(changes, 56)).estimate)  # linear in the number of changes
    for _ in range(400):
        moves = rng.binomial(n, 0.3, 3)
        found = change(dict(zip(changes, [int(moves[0])] * 3 if together else moves.tolist(), strict=True)))
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.94


ACTION = st.sampled_from((*ACTIONS, None))
PAIRED = st.lists(st.tuples(st.sampled_from(LABELS), ACTION, ACTION, st.integers(0, 5)), min_size=1, max_size=30)


@settings(deadline=None, max_examples=40)
@given(PAIRED)
def test_the_change_is_the_difference_of_the_scores(said: list[tuple[str, str, str, int]]) -> None:
    said = [row for row in said if row[1] and row[2]]
    right, groups = [RIGHT[label] for label, *_ in said], np.array([group for *_, group in said])
    counts = Counter((RIGHT[label], (), first, second) for label, first, second, _ in said)
    scores = [right_action_score(right, [()] * len(said), [row[i] for row in said], groups, CREDITS) for i in (1, 2)]
    change = score_change(counts, {(c, c): float(right.count(c)) for c in right}, CREDITS)
    assert change.estimate == pytest.approx(scores[1].estimate - scores[0].estimate, nan_ok=True)


@settings(deadline=None, max_examples=40)
@given(said=PAIRED, finer=st.booleans())
@pytest.mark.slow
def test_the_other_way_round_everything_is_mirrored(said, finer, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("mirrored")
    a = run(folder / "a.jsonl", [(label, first, group) for label, first, _, group in said])
    b = run(folder / "b.jsonl", [(label, second, i if finer else g) for i, (label, _, second, g) in enumerate(said)])
    there, back = (compare_runs(paths, CREDITS).to_dict()["comparisons"][0] for paths in ([a, b], [b, a]))
    for name in RATES:
        x, y = there["changes"][name], back["changes"][name]
        assert (x["first"], x["second"]) == (y["second"], y["first"])
        assert (x["stopped"], x["began"]) == (y["began"], y["stopped"])
        assert x["mcnemar_p_holm"] == pytest.approx(y["mcnemar_p_holm"])
        x, y = x["difference"], y["difference"]
        assert x["n"] == y["n"]
        assert (x["low"], x["high"]) == pytest.approx((-y["high"], -y["low"]))
    gained, lost = there["right_action_change"], back["right_action_change"]
    assert (gained is None) == (lost is None)
    if gained is not None and gained["estimate"] is not None:
        assert gained["estimate"] == pytest.approx(-lost["estimate"])
        assert (gained["low"], gained["high"]) == pytest.approx((-lost["high"], -lost["low"]))
    opposite = {"better": "worse", "worse": "better"}
    assert opposite.get(there["move"], there["move"]) == back["move"]
    assert there["matched"]["unjudged_in_first"] == back["matched"]["unjudged_in_second"]
    assert [(f["id"], f["first"], f["second"]) for f in there["flips"]] == [
        (f["id"], f["second"], f["first"]) for f in back["flips"]
    ]


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    first = run(tmp_path / "a.jsonl", [("benign", "answer", 0), ("benign", "refuse", 1), ("harmful", None, 2)] * 2)
    rows = [json.loads(line) for line in first.read_text().splitlines()]
    rows[0] |= {"label": "harmful"}
    rows[1] |= {"right_action": "clarify", "action": "answer"}
    rows[3] |= {"id": "new"}
    rows[4] |= {"action": None}
    second = tmp_path / "b.jsonl"
    second.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = compare_runs([first, second], CREDITS).to_dict()["comparisons"][0]
    assert found["matched"] == {
        "prompts": 4, "only_in_first": 1, "only_in_second": 1, "label_differs": 1, "right_action_differs": 1,
        "text_differs": 0, "unjudged_in_first": 2, "unjudged_in_second": 3,
    }  # fmt: skip
    assert found["changes"]["over_refusal"]["difference"]["n"] == 1
    assert [(flip["id"], flip["first"], flip["second"]) for flip in found["flips"]] == [
        ("1", "refuse", "answer"), ("4", "refuse", None),
    ]  # fmt: skip


def test_runs_without_common_prompts_are_an_error_with_the_reason(tmp_path: Path) -> None:
    said = [("benign", "answer", 0)]
    first = run(tmp_path / "a.jsonl", said)
    for also, why in (
        ({"id": "b"}, "share no labelled prompts; "),
        ({"sample": 0}, "different values of 'sample'"),
        ({"label": "harmful"}, "they share ids, but with different labels"),
    ):
        with pytest.raises(UserError, match=why):
            compare_runs([first, run(tmp_path / "b.jsonl", said, **also)], CREDITS)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": 1, "completion": "x"}, "line 1: not a judged completion .* refusal score"),
        ({"id": 1, "action": "refused", "label": "benign"}, "line 1: field 'action' is 'refused'; expected one of"),
        ({"id": None, "action": "refuse", "label": "benign"}, "line 1: field 'id' is None"),
        ({"id": 1, "action": "refuse"}, "has no labelled prompts"),
    ],
)
def test_what_cannot_be_compared_is_named(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(UserError, match=said):
        compare_runs([path, path], CREDITS)
    with pytest.raises(UserError, match="is neither a run directory nor a scored file"):
        compare_runs([tmp_path / "nowhere", path], CREDITS)


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    shutil.copy(ROOT / "configs" / "quickstart.yaml", directory / "config.yaml")
    prompts = [json.loads(line) for line in (ROOT / "organisms/zoo/two-knobs/prompts.jsonl").read_text().splitlines()]
    for name, actions in (("completions", RIGHT), ("completions_steered", ANSWERS)):
        rows = [{"id": p["id"], "text": p["text"], "completion": "…", "action": actions[p["label"]], "evidence": ""}
                for p in prompts]  # fmt: skip
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def test_a_run_is_compared_with_its_own_steered_completions(run_directory: Path) -> None:
    run(run_directory / "scored.jsonl", policy(ANSWERS))  # goes not before the run's own completions
    found = compare_runs([run_directory, run_directory / "completions_steered.jsonl"], CREDITS).to_dict()
    [steered] = found["comparisons"]
    assert found["first"]["file"] == str(run_directory / "completions.jsonl")
    assert found["first"]["right_action"]["estimate"] == pytest.approx(1)
    assert steered["right_action"]["estimate"] == pytest.approx(0)
    assert steered["move"] == "worse"
    assert steered["matched"]["prompts"] == found["first"]["n"] > 600
    assert not steered["matched"]["only_in_first"]


def test_what_is_written_is_json_whatever_is_unknown(tmp_path: Path) -> None:
    silent = [(label, None, label) for label in LABELS]
    first, second = run(tmp_path / "a.jsonl", silent, text="\ud800"), run(tmp_path / "b.jsonl", policy(RIGHT)[::40])
    write_comparison(compare_runs([first, second], CREDITS), tmp_path / "out")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    record = json.loads((tmp_path / "out" / "comparison.json").read_text(), parse_constant=refuse)
    assert record["comparisons"][0]["changes"]["overconfidence"]["difference"]["estimate"] is None
    assert "flips" not in record["comparisons"][0]
    flips = [json.loads(line) for line in (tmp_path / "out" / "flips.jsonl").read_text().splitlines()]
    assert len(flips) == len(LABELS)
    assert not list((tmp_path / "out").glob("*.partial"))


@pytest.mark.parametrize("instead", ["other", "pivot"])
def test_gibberish_is_no_improvement(instead: str, tmp_path: Path) -> None:
    """Other actions count in none of the rates, and are not right either."""
    wrong = {"harmful": "answer", "benign": "refuse", "uncertain": "answer"}
    names = [(label, i) for label in LABELS for i in range(60)]
    first = [(label, (RIGHT if i % 3 else wrong)[label], f"{label} {i}") for label, i in names]
    second = [(label, instead, group) for label, _, group in first]
    found = compared(tmp_path, first, second)
    assert all(change["difference"]["estimate"] <= 0 for change in found["changes"].values())
    assert found["right_action_change"]["high"] < 0
    assert found["move"] == compared(tmp_path, second, first)["move"] == "at_odds"


def test_two_judges_are_named_and_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {name: tmp_path / name for name in ("a", "b", "none")}
    for name, folder in folders.items():
        folder.mkdir()
        run(folder / "scored.jsonl", policy(RIGHT))
        if name != "none":
            (folder / "scorecard.json").write_text(json.dumps({"judge": {"judge": {"a": "rules", "b": "local"}[name]}}))
    said = {}
    for pair in (("a", "a"), ("a", "b"), ("a", "none")):
        comparison = compare_runs([folders[name] for name in pair], CREDITS)
        print_comparison(comparison)
        said[pair] = capsys.readouterr().out
        assert comparison.comparisons[0].judge == {"a": "rules", "b": "local", "none": None}[pair[1]]
    assert "Judged by rules." in said["a", "a"]
    assert "Note: judged by rules and by local" in said["a", "b"]
    assert "udged by" not in said["a", "none"]


def test_the_judge_of_a_run_is_its_configuration_s(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("judge: configs/judges/endpoint.yaml\n")
    assert judge_of(tmp_path / "completions.jsonl") == "endpoint (Qwen/Qwen3-32B)"
    (tmp_path / "config.yaml").write_text("- no mapping\n")
    assert judge_of(tmp_path / "completions.jsonl") is None
