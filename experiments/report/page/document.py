"""The HTML document: templates, style, scripts, and a content policy that allows nothing else to run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import JsonValue

from experiments.report.blocks import Block
from experiments.report.page.glossary import TERMS, with_terms

HERE = Path(__file__).resolve().parent
SCRIPTS = (  # in this order
    "counting.js",
    "dom.js",
    "charts.js",
    "scatter.js",
    "tokens.js",
    "prompts.js",
    "sliders.js",
    "sortable.js",
    "page.js",
)
IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
MOST_CHARACTERS = 2000  # of a cell or a paragraph, since quoted data may have any length


def document(title: str, parts: Sequence[Markup]) -> str:
    """Return the whole page. The policy allows its own scripts alone, by hash, and no request."""
    own = '"use strict";\n' + "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    bundle = vega_bundle()
    allowed = f"{script_hash(bundle)} {script_hash(own)}"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
    style = (HERE / "page.css").read_text(encoding="utf-8")
    return render(
        "document.html",
        title=title,
        policy=Markup(policy),
        style=Markup(style),
        bundle=Markup(bundle),
        script=Markup(own),
        parts=parts,
        terms=TERMS,
    )


def render(template: str, **values: object) -> Markup:
    """Return a template of this folder with every value escaped."""
    return Markup(_environment().get_template(template).render(**values))


def blocks_html(blocks: Sequence[Block]) -> Markup:
    """Return the HTML of the blocks of a section."""
    return render("blocks_only.html", blocks=blocks)


def json_script(text: str, name: str) -> Markup:
    """Return a script element with JSON as data; no text in it can end the element."""
    for character, written in IN_SCRIPTS.items():
        text = text.replace(character, written)
    return Markup(f'<script type="application/json" class="{name}">{text}</script>')


def to_json(value: Mapping[str, JsonValue]) -> str:
    """Return JSON without spaces; NaN is an error."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def shortened(text: str, n: int = MOST_CHARACTERS) -> str:
    """Return the first n characters of a text, with the number of characters left out."""
    return text if len(text) <= n else f"{text[:n]} … ({len(text) - n:,} characters more)"


@cache
def vega_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, without a network; 0.9 MB."""
    return str(vl_convert.javascript_bundle())  # type: ignore[call-arg]


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"short": shortened, "terms": with_terms, "json_script": json_script}
    return made


def script_hash(script: str) -> str:
    """Return the source of a content policy that allows this script alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
