"""Readings at every token in an open row of the report, in a real browser."""

import re
from pathlib import Path
from typing import Any

import pytest

from experiments.dials.results import TokenReadings
from tests.support.browser import AXE, faults, needs_browser, opened

pytestmark = needs_browser


@pytest.fixture(scope="module")
def lines(run: Path) -> list[TokenReadings]:
    text = (run / "token_readings.jsonl").read_text()
    return [TokenReadings.model_validate_json(line) for line in text.splitlines()]


@pytest.fixture
def benign(page: Any, lines: list[TokenReadings]) -> tuple[Any, TokenReadings]:
    """An open row of a benign test prompt, and its line in the run's file."""
    chosen = page.evaluate("""runs[0].prompts.id.findIndex((id, i) => runs[0].prompts.tokens[i]
        && runs[0].labels[runs[0].prompts.label[i]] === "benign")""")
    page.evaluate(f"runs[0].list.open({chosen})")
    name = page.evaluate(f"runs[0].prompts.id[{chosen}]")
    return page.locator(".each details[open]").first, next(line for line in lines if line.id == name)


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


@pytest.mark.slow
def test_each_token_shows_the_run_s_reading_below_it(benign: tuple[Any, TokenReadings]) -> None:
    row, line = benign
    for d, kind in enumerate(("normative", "epistemic")):
        shown = row.locator(".token-line").nth(d).locator(".token")
        assert [token.strip() for token in line.tokens] == shown.locator("bdi").all_inner_texts()
        numbers = [number(text) for text in shown.locator("small").all_inner_texts()]
        assert numbers == pytest.approx(line.log_odds[kind], abs=0.0551)
        tones = shown.evaluate_all("of => of.map((one) => one.classList.contains('declines'))")
        assert tones == [value >= 0 for value in numbers]
        assert shown.evaluate_all("of => of.findIndex((one) => one.classList.contains('read'))") in line.read_at[kind]


@pytest.mark.slow
def test_keys_and_pointer_tell_the_exact_readings_of_a_token(page: Any, benign: tuple[Any, TokenReadings]) -> None:
    row, line = benign
    about, first = row.locator(".token-about"), row.locator(".token-line").first
    row.locator("summary").focus()
    page.keyboard.press("Tab")
    assert first.evaluate("line => line === document.activeElement")
    told = []
    for _ in line.tokens:
        told.append(about.inner_text())
        page.keyboard.press("ArrowRight")
    for k, text in enumerate(told):
        assert text.startswith(f"Token {k + 1} of {len(line.tokens)}, ")
        values = [number(value) for value in re.findall(r"(?:normative|epistemic) ([+\u2212][\d.]+)", text)]
        expected = [line.log_odds[kind][k] for kind in ("normative", "epistemic")]
        assert values == pytest.approx(expected, abs=6e-3)
    (own,) = line.read_at["normative"]
    probability = row.locator("dd", has_text="at threshold").first.inner_text().split(",")[0]
    assert f"the dial reads here: probability {probability[:4]}" in told[own]
    row.locator(".token").nth(2).hover()
    assert about.inner_text().startswith("Token 3 of ")


@pytest.mark.slow
def test_a_harmful_prompt_shows_no_tokens_until_it_is_opened(page: Any) -> None:
    chosen = page.evaluate("""runs[0].prompts.id.findIndex((id, i) => runs[0].prompts.tokens[i]
        && runs[0].labels[runs[0].prompts.label[i]] === "harmful")""")
    page.evaluate(f"runs[0].list.open({chosen})")
    row = page.locator(".each details.prompt[open]").first
    assert row.locator(".token").count() == 0
    row.get_by_role("button", name="Show this harmful prompt").click()
    page.locator(".each details.prompt[open] .token").nth(8).wait_for(state="attached")  # drawn after the click returns
    assert page.locator(".each details.prompt[open] .token").count() > 8


@pytest.mark.slow
@pytest.mark.skipif(not AXE, reason="pip install axe-playwright-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readings_are_accessible_in_light_and_dark(browser: Any, report: Path, scheme: str) -> None:
    with opened(browser, report, scheme=scheme, bypass_csp=True) as page:
        page.evaluate("runs[0].list.open(runs[0].prompts.id.findIndex((id, i) => runs[0].prompts.tokens[i] "
                      "&& runs[0].labels[runs[0].prompts.label[i]] === 'benign'))")  # fmt: skip
        page.locator(".token").first.wait_for()
        assert faults(page, ".each") == []
