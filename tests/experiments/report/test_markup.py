"""Prompts, names and numbers are data: whatever they hold, the page shows it as text."""

import json
import re

import numpy as np
import pytest
from matplotlib import colormaps

from experiments.report.markup import escaped, hidden_if_harmful, json_script, paragraphs, shortened, table
from experiments.report.page.document import document
from experiments.report.page.drawing import ChartPoint, share_chart, x_of, y_of
from experiments.report.page.heat import HeatCell, heat_map, ink_on
from experiments.report.triggers_section import request_html
from experiments.triggers.results import AttributedRequest

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'><b>",
    "<!--",
    "\u202eabc",
    "&amp;",
    "]]>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_an_element(text: str) -> None:
    mark = ChartPoint(0.5, 0.5, "before", text)
    shown = (table([text], [[text, text]], text) + paragraphs([text]) + escaped(text) + share_chart(text, text, [mark])
             + heat_map(text, text, [text], [text], {(text, text): HeatCell(0.5, text, text)}))  # fmt: skip
    assert not re.search(r"<(script|img|b>|!--)", shown)
    assert 'data-tip="' in shown
    assert shown.count("<bdi>") >= 3  # and the direction of a text does not leak into what stands around it


@pytest.mark.parametrize("text", [*HOSTILE, "a\u2028b", "half \ud800 of a pair"])
def test_no_text_ends_the_script_it_stands_in(text: str) -> None:
    script = json_script("payload", {"text": [text]})
    inside = script.removeprefix('<script type="application/json" class="payload">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028\u2029")
    written = inside.encode("utf-8", "backslashreplace").decode()
    assert json.loads(written) == {"text": [text]}


def test_only_the_page_s_own_script_may_run_and_nothing_is_loaded() -> None:
    page = document("<title>", ["<p>x</p>"])
    assert "<title>&lt;title&gt;</title>" in page
    assert "default-src 'none'" in page
    assert len(re.findall(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'\"", page)) == 1
    assert not re.search(r"(src|href)=\"?(http|//)", page)


def test_long_texts_are_cut_and_it_is_said() -> None:
    assert shortened("a" * 100_000, 3) == "aaa … (99,997 characters more)"
    assert shortened("abc", 3) == "abc"


def test_a_harmful_prompt_waits_to_be_opened() -> None:
    assert hidden_if_harmful("benign", escaped("<b>")) == "<bdi>&lt;b&gt;</bdi>"
    shown = table(["a", "b"], [["x", hidden_if_harmful("harmful", escaped("<b>"))]])
    assert "<td><details" in shown
    assert "<bdi>&lt;b&gt;</bdi></details></td>" in shown


def test_a_request_of_many_words_is_cut_and_each_word_keeps_its_direction_to_itself() -> None:
    shown = request_html(
        AttributedRequest.model_construct(
            label="harmful", words=("\u202ekill", *["word"] * 20_000), scores=(7.0, *[0.0] * 20_000)
        )
    )
    assert "<mark><bdi>\u202ekill</bdi>" in shown
    assert "words more)" in shown
    assert len(shown) < 20_000
    assert "<summary>" in shown


@pytest.mark.parametrize("share", np.linspace(0, 1, 101))
def test_numbers_contrast_with_every_colour_of_the_scale(share: float) -> None:
    colour = np.array(colormaps["cividis"](share)[:3])
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    ink = 0.0 if ink_on(colour) == "#000" else 1.0
    assert (max(luminance, ink) + 0.05) / (min(luminance, ink) + 0.05) >= 4.5


def test_what_quotes_a_text_of_any_length_stays_short() -> None:
    line = "x" * 100_000
    assert len(table(["a", "b"], [[line, line]]) + paragraphs([line])) < 7_000


def test_a_chart_places_shares_on_its_axes() -> None:
    assert (x_of(0), x_of(1), y_of(0), y_of(1)) == (52, 336, 254, 12)
    shown = share_chart("x", "y", [ChartPoint(0.25, 0.5, "before", "told", (0.1, 0.4), None)], live="overconfidence")
    assert f"translate({x_of(0.25)} {y_of(0.5)})" in shown
    assert f"M{x_of(0.1)} {y_of(0.5)}H{x_of(0.4)}" in shown
    assert 'data-live="overconfidence"' in shown
