"""The live page in a real browser, against a real server of the shipped organism."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from extract.chat.render import render
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt, load_prompts
from serving.limits import Limits
from steering.conversation import generate_once
from steering.dial import CategoryRead, CategoryThresholds, Dial, Reference
from tests.support.browser import AXE, faults, needs_browser, opened, started
from tests.support.planted_dials import BENIGN, ORGANISM, STRIKE, UNKNOWN, log_odds_by_hand
from tests.support.running_server import Running, running

pytestmark = [needs_browser, pytest.mark.slow]
KINDS = ("normative", "epistemic")
CALIBRATED = {"normative": 0.26834, "epistemic": 0.49}
API = "**/v1/chat/completions"
HOSTILE = "<img src=x onerror=alert(1)> \u202e </script>"


@pytest.fixture(scope="module")
def placed(dials: list[Dial]) -> list[Dial]:
    """The planted dials at other thresholds than 0.5, as calibration leaves them."""
    return [replace(dial, threshold=CALIBRATED[dial.kind]) for dial in dials]


@pytest.fixture(scope="module")
def served(model: ChatModel, placed: list[Dial]) -> Iterator[Running]:
    with running(model, placed, ui=True) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture
def page(browser: Any, served: Running) -> Iterator[Any]:
    with opened(browser, f"{served.url}/ui") as found:
        found.locator(".slider").first.wait_for()
        yield found


def ask(page: Any, text: str) -> Any:
    n = page.locator(".answer-of").count()
    page.locator("#prompt").fill(text)
    page.get_by_role("button", name="Ask").click()
    return arrived(page, n + 1)


def arrived(page: Any, n: int) -> Any:
    made = page.get_by_role("article", name=f"answer {n}", exact=True)
    made.wait_for()
    assert page.locator("#error").is_hidden()
    return made


def put(page: Any, kind: str, value: float) -> None:
    box = page.locator(f"[data-kind={kind}] .exact")
    box.fill(str(value))
    box.press("Enter")


def said(answer: Any) -> str:
    return answer.locator("blockquote").inner_text()


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def test_a_prompt_is_answered_with_both_readings_of_every_token(page, reference, placed) -> None:
    answer = ask(page, UNKNOWN)
    expected = generate_once(reference, [UNKNOWN], placed, {}, 24)[0]
    assert said(answer) == expected.completion
    row = render(reference.tokenizer, Prompt("p", ({"role": "user", "content": UNKNOWN},), "benign", "answer"))
    tokens = reference.tokenizer(" " + expected.completion, add_special_tokens=False)["input_ids"]
    turn, n_prompt = page.locator(".turn > .tokens"), len(row.token_ids) - row.instruction.start
    for d, dial in enumerate(placed):
        known = log_odds_by_hand(reference, dial, [*row.token_ids, *tokens])[row.instruction.start :]
        for block, values in ((turn, known[:n_prompt]), (answer, known[n_prompt:])):
            shown = block.locator(".token-line").nth(d).locator(".token small").all_inner_texts()
            assert len(shown) == len(values) > 3
            np.testing.assert_allclose([number(text) for text in shown], values, atol=0.051)
        line = turn.locator(".token-line").nth(d)
        line.locator(".token.read").hover()
        about = turn.locator(".token-about").inner_text()
        assert line.locator(".token.read").count() == 1
        assert about.startswith(f"Token {n_prompt} of {n_prompt}, ")
        exact = [number(value) for value in re.findall(rf"{dial.kind} ([+\u2212][\d.]+)", about)]
        np.testing.assert_allclose(exact, known[n_prompt - 1 : n_prompt], atol=6e-3)
        assert f"probability {expected.readings[dial.kind].probability:.3f}" in about
        decided = answer.locator(".decision").nth(d).inner_text()
        done = {"decline": "declined", "permit": "permitted"}[expected.readings[dial.kind].gate]
        assert decided == f"{dial.kind}: probability {expected.readings[dial.kind].probability:.3f}, {done}"


def test_thresholds_begin_as_calibrated_and_a_moved_one_answers_again_beside(page, reference, placed) -> None:
    assert [page.locator(f"[data-kind={kind}] .exact").input_value() for kind in KINDS] == ["0.268", "0.490"]
    first = ask(page, UNKNOWN)
    page.locator("[data-kind=epistemic] .slider").evaluate(
        "slider => { slider.value = 1; slider.dispatchEvent(new Event('input')); }"
    )
    second = arrived(page, 2)
    assert page.locator("[data-kind=epistemic] .exact").input_value() == "1.000"
    assert said(second) == generate_once(reference, [UNKNOWN], placed, {"epistemic": 1.0}, 24)[0].completion
    assert said(second) != said(first)
    a, b = first.bounding_box(), second.bounding_box()
    assert (a["y"], a["x"] + a["width"] <= b["x"]) == (b["y"], True)
    assert second.locator(".at").inner_text() == "thresholds: normative 0.268, epistemic 1.000"
    page.locator("[data-kind=normative] .off").check()
    third = arrived(page, 3)
    assert third.locator(".decision").first.inner_text().endswith(", off")
    page.locator("#moving input").uncheck()
    page.locator("[data-kind=normative] .off").uncheck()
    page.get_by_role("button", name="Answer again").click()  # these thresholds have an answer: it is shown
    page.locator(".answer-of[aria-current=true] h3", has_text="Answer 2").wait_for()
    put(page, "normative", 0)
    page.get_by_role("button", name="Answer again").click()
    fourth = arrived(page, 4)
    assert "since the normative dial declined" in fourth.locator(".decision").nth(1).inner_text()


def test_a_conversation_is_a_tree_that_goes_on_from_any_answer(page: Any) -> None:
    sent: list[list[dict[str, str]]] = []
    page.on("request", lambda asked: asked.post_data and sent.append(json.loads(asked.post_data)["messages"]))
    first = said(ask(page, UNKNOWN))
    put(page, "epistemic", 1)
    second = said(arrived(page, 2))
    page.get_by_role("button", name="Go on from answer 1").click()
    ask(page, BENIGN)
    page.locator("#path").get_by_role("button", name="answer 1").click()
    page.get_by_role("button", name="Go on from answer 2").click()
    ask(page, STRIKE)
    assert [message["content"] for message in sent[2]] == [UNKNOWN, first, BENIGN]
    assert [message["content"] for message in sent[3]] == [UNKNOWN, second, STRIKE]
    assert page.locator("#path li").all_inner_texts() == ["new conversation", "answer 2", "answer 4"]
    assert page.locator(".turn h2").all_inner_texts() == ["Turn 1", "Turn 2 after answer 1", "Turn 3 after answer 2"]
    assert page.locator("#tree > .turn").count() == 1
    assert page.locator("#tree > .turn > .turn").count() == 2
    page.get_by_role("button", name="new conversation").click()
    ask(page, BENIGN)
    assert [message["content"] for message in sent[4]] == [BENIGN]
    assert page.locator("#tree > .turn").count() == 2


def test_a_later_turn_sends_an_answer_without_its_thought(page: Any) -> None:
    sent: list[list[dict[str, str]]] = []
    messages = iter((("who asks?", "i do not know."), ("hm, let me", "")))

    def think(route: Any) -> None:
        sent.append(json.loads(route.request.post_data)["messages"])
        reply = route.fetch()
        found = reply.json()
        found["choices"][0]["message"] |= dict(zip(("reasoning_content", "content"), next(messages), strict=True))
        route.fulfill(response=reply, json=found)

    page.route(API, think)
    first = ask(page, UNKNOWN)
    assert said(first) == "<think>\nwho asks?\n</think>\n\ni do not know."  # shown, but not sent
    cut = ask(page, BENIGN)
    assert sent[1][1] == {"role": "assistant", "content": "i do not know."}
    assert said(cut) == "<think>\nhm, let me"
    assert "The answer ends within its thought, so no prompt can follow it." in cut.inner_text()
    assert cut.get_by_role("button", name="Go on").count() == 0


def test_answers_under_way_are_shown_and_can_be_stopped(page: Any) -> None:
    held: list[Any] = []
    page.route(API, lambda route: held.append(route))
    assert page.locator("#busy").is_hidden()
    page.locator("#prompt").fill(BENIGN)
    page.get_by_role("button", name="Ask").click()
    page.locator("#busy", has_text="answering …").wait_for()
    page.keyboard.press("Enter")  # it is asked already
    page.get_by_role("button", name="Stop").click()
    page.locator("#busy").wait_for(state="hidden")
    assert page.locator("#error").is_hidden()
    assert (page.locator(".turn").count(), page.locator("#prompt").input_value()) == (0, BENIGN)
    assert len(held) == 1
    page.unroute(API)
    ask(page, BENIGN)  # a stop is no end


def test_an_answer_under_way_leaves_what_the_reader_chose_meanwhile(page: Any) -> None:
    ask(page, UNKNOWN)
    held: list[Any] = []
    page.route(API, lambda route: held.append(route))
    put(page, "epistemic", 1)
    page.locator("#busy", has_text="answering …").wait_for()
    page.get_by_role("button", name="Answer again").click()  # at the same thresholds: not asked twice
    page.locator("#busy", has_text="2 answers to come").wait_for()
    page.get_by_role("button", name="new conversation").click()
    held.pop().continue_()
    arrived(page, 2)
    page.locator("#busy").wait_for(state="hidden")
    assert held == []
    assert page.locator("#path li").all_inner_texts() == ["new conversation"]
    assert page.locator(".answer-of[aria-current=true]").count() == 0


def test_thresholds_by_category_are_the_servers_until_one_is_moved(browser, model, placed) -> None:
    d_model = len(placed[0].probe.weight)  # type: ignore[union-attr]
    read = CategoryRead(("", "people"), placed[0].read, np.zeros((2, d_model)), np.array([0.0, 9.0]), 0.8)  # type: ignore[arg-type]
    own = [replace(placed[0], by_category=CategoryThresholds(read, {})),
           replace(placed[1], by_category=CategoryThresholds(read, {"people": 1.0}))]  # fmt: skip
    sent: list[dict[str, Any]] = []
    with running(model, own, ui=True) as serving, opened(browser, f"{serving.url}/ui") as page:
        page.on("request", lambda asked: asked.post_data and sent.append(json.loads(asked.post_data)))
        page.locator(".slider").first.wait_for()
        boxes = page.locator(".by-category")
        assert (boxes.count(), boxes.get_attribute("aria-label")) == (1, "epistemic threshold by category")
        first = ask(page, UNKNOWN)
        assert first.locator(".at").inner_text() == "thresholds: normative 0.268, epistemic 1.000 (category people)"
        assert sent[0]["normative_threshold"] == CALIBRATED["normative"]
        assert "epistemic_threshold" not in sent[0]
        put(page, "epistemic", CALIBRATED["epistemic"])  # the number that is shown is chosen, for all prompts
        second = arrived(page, 2)
        assert second.locator(".at").inner_text() == "thresholds: normative 0.268, epistemic 0.490"
        assert sent[1]["epistemic_threshold"] == CALIBRATED["epistemic"]
        assert not boxes.is_checked()
        assert said(second) != said(first)
        page.locator("#moving input").uncheck()
        put(page, "epistemic", 0.25)
        boxes.check()
        assert page.locator("[data-kind=epistemic] .exact").input_value() == "0.490"
        page.get_by_role("button", name="Answer again").click()  # by category again: that answer is there
        page.locator(".answer-of[aria-current=true] h3", has_text="Answer 1").wait_for()
        assert len(sent) == 2


def test_it_works_by_keyboard_alone(page: Any) -> None:
    page.locator("#prompt").focus()
    page.keyboard.type(BENIGN)
    page.keyboard.press("Enter")
    arrived(page, 1)
    page.locator("[data-kind=normative] .slider").focus()
    page.keyboard.press("Home")
    assert page.locator("[data-kind=normative] .exact").input_value() == "0.000"
    assert "declined" in arrived(page, 2).locator(".decision").first.inner_text()
    line = page.locator(".turn > .tokens .token-line").first
    line.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert re.match(r"Token [23] of \d+", page.locator(".turn > .tokens .token-about").inner_text())


def test_what_people_and_models_write_is_text(page: Any) -> None:
    ask(page, HOSTILE)
    assert page.locator("img").count() == 0
    assert page.locator(".turn > blockquote").inner_text() == HOSTILE


def test_an_error_is_one_line_and_the_prompt_is_kept(browser: Any, model: ChatModel, placed: list[Dial]) -> None:
    with (
        running(model, placed, Limits(max_body=400), api_key="open-sesame", ui=True) as locked,
        opened(browser, f"{locked.url}/ui", refused=True) as page,
    ):
        page.locator("#error", has_text="send the server's API key").wait_for()
        page.get_by_label("API key").fill("open-sesame")
        page.get_by_role("button", name="Use this key").click()
        page.locator(".slider").first.wait_for()
        assert page.locator("#error").is_hidden()
        page.locator("#prompt").fill("how " * 200)
        page.get_by_role("button", name="Ask").click()
        page.locator("#error", has_text="larger than 400 bytes").wait_for()
        assert page.locator("#prompt").input_value().startswith("how how")
        assert page.locator(".turn").count() == 0
        page.route("**/v1/chat/completions", lambda route: route.abort())
        page.get_by_role("button", name="Ask").click()
        page.locator("#error", has_text="The server does not answer; is it still running?").wait_for()
        page.unroute("**/v1/chat/completions")
        ask(page, BENIGN)  # an error is no end


def test_a_server_without_dials_says_so_in_one_line(browser: Any, model: ChatModel) -> None:
    with running(model, [], ui=True) as plain, opened(browser, f"{plain.url}/ui") as page:
        page.locator("#base").wait_for()
        assert page.locator("#base").inner_text().startswith("This server has no dials, so its answers are the model's")
        answer = ask(page, BENIGN)
        assert said(answer)
        assert (page.locator(".slider").count(), page.locator(".token").count()) == (0, 0)
        assert page.locator("#reads").is_hidden()


@pytest.mark.skipif(not AXE, reason="pip install axe-playwright-python")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_no_fault_and_nothing_is_wider_than_the_window(browser, served, width, scheme) -> None:
    with opened(browser, f"{served.url}/ui", width, scheme, bypass_csp=True) as page:
        ask(page, UNKNOWN)
        put(page, "epistemic", 1)
        arrived(page, 2)
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_root_leads_browsers_to_the_page_and_only_where_it_is_served(served, model, placed) -> None:
    led = httpx.get(served.url, headers={"Accept": "text/html,*/*"})
    assert (led.status_code, led.headers["location"]) == (307, "/ui")
    assert "GET /ui" in httpx.get(served.url).json()["endpoints"]
    found = httpx.get(f"{served.url}/ui")
    assert "connect-src 'self'" in found.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href)=\"?(?:https?:)?//", found.text)
    with running(model, placed) as without:
        assert httpx.get(f"{without.url}/ui").status_code == 404
        assert httpx.get(without.url, headers={"Accept": "text/html"}).json()["model"] == "two-knobs"


def test_what_was_asked_is_shown_against_the_certified_prompts(
    browser: Any, model: ChatModel, placed: list[Dial]
) -> None:
    some = Reference(np.full(50, 0.001), np.ones((50, model.d_model), np.float32), np.zeros(9), 9)
    with (
        running(model, [replace(dial, reference=some) for dial in placed], ui=True) as served,
        opened(browser, f"{served.url}/ui") as page,
    ):
        page.locator(".slider").first.wait_for()
        fold = page.locator("#watch")
        fold.locator("summary").click()
        fold.get_by_text("nothing was asked yet").first.wait_for()
        harmful = [p for p in load_prompts(ORGANISM / "prompts.jsonl") if p.label == "harmful"]
        for prompt in [*harmful[:40], harmful[0]]:  # the last again
            body = {"model": "two-knobs", "messages": list(prompt.messages), "max_tokens": 1}
            httpx.post(f"{served.url}/v1/chat/completions", json=body).raise_for_status()
        fold.get_by_text("asked (40)").first.wait_for()
        assert fold.get_by_role("heading", name="normative dial: changed: alarm after conversation").count() == 1
        shares = fold.locator("[data-kind=normative] td").all_inner_texts()
        assert shares[:2] == ["100 %", "0 %"]
        assert 98 <= sum(int(share.removesuffix(" %")) for share in shares[1::2]) <= 102
        assert not faults(page)
