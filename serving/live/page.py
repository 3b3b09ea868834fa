"""The live page at /ui: one HTML file with its style and script, under a policy that allows nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from experiments.report.page.document import HERE as REPORT
from experiments.report.page.document import script_hash
from extract.chat.thinking import CLOSING, OPENS_WITHIN, UNCLOSED

HERE = Path(__file__).resolve().parent
SCRIPTS = (REPORT / "dom.js", REPORT / "tokens.js", HERE / "live.js")  # in this order
THOUGHT = {"opening": UNCLOSED.pattern, "closing": CLOSING.pattern, "begins": OPENS_WITHIN}  # the script's too
STYLES = (REPORT / "page.css", HERE / "live.css")


def add_live_page(app: FastAPI) -> None:
    """Serve the page at /ui. It needs no key, since it holds nothing of the model; what it asks the API for does."""
    html, policy = live_page()
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

    @app.get("/ui", include_in_schema=False)
    async def ui() -> Response:
        return HTMLResponse(html, headers=headers)


def live_page() -> tuple[str, str]:
    """Return the page and its content policy: its own script, and requests to this server alone."""
    constants = f"const THOUGHT = {json.dumps(THOUGHT)};"
    script = "\n".join(['"use strict";', constants, *(path.read_text(encoding="utf-8") for path in SCRIPTS)])
    style = "\n".join(path.read_text(encoding="utf-8") for path in STYLES)
    policy = (
        f"default-src 'none'; script-src {script_hash(script)}; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    template = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return template.get_template("live.html").render(style=Markup(style), script=Markup(script)), policy
