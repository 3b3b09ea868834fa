"""`refusal eval` against an endpoint of this machine: answers a second, and the memory of the command.

20,000 prompts (`--quick`: 400) of about ten words; the server answers each with one sentence, at once. The rate is that
of the asking, from the first request to the last; judging and scoring come after it. Memory is the command's, when a
tenth of the prompts and when all are answered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

from benchmarks.table import main
from extract.shipped import ROOT

PROMPTS = {False: 20_000, True: 400}
CONCURRENCY = 16
ANSWER = json.dumps(
    {
        "choices": [
            {
                "message": {"role": "assistant", "content": "Sure: take it to the garden and wait."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 9},
    }
).encode()


@dataclass
class Served:
    """When the first and the last request were answered, and how many."""

    url: str = ""
    n: int = 0
    first: float = 0.0
    last: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self) -> None:
        with self.lock:
            self.last = time.perf_counter()
            self.first = self.first or self.last
            self.n += 1


def measure(quick: bool) -> dict[str, float]:
    """Run the command once; return its rate and its memory."""
    n = PROMPTS[quick]
    with tempfile.TemporaryDirectory() as folder, _server() as served:
        suite = _suite(Path(folder), n)
        command = [
            sys.executable,
            "-m",
            "refusal",
            "eval",
            "m",
            "--base-url",
            served.url,
            "--suite",
            str(suite),
            "--concurrency",
            str(CONCURRENCY),
            "--json",
            "--out",
            str(Path(folder) / "out"),
        ]
        started = time.perf_counter()
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ | {"HF_HUB_OFFLINE": "1"}
        ) as run:
            early, late = _memory(run, served, n)
            assert run.stdout is not None
            found = json.loads(run.stdout.read())
        if (found["answered"], served.n) != (n, n):
            raise SystemExit(f"{found['answered']} of {n} prompts are answered, by {served.n} requests")
        return {
            "answers_per_s": (n - 1) / (served.last - served.first),
            "seconds_in_all": time.perf_counter() - started,
            "memory_early_mb": early,
            "memory_late_mb": late,
            "memory_growth": late / early,
        }


def _memory(run: subprocess.Popen[bytes], served: Served, n: int) -> tuple[float, float]:
    """Return the command's megabytes when a tenth of the prompts and when nearly all are answered."""
    process, found = psutil.Process(run.pid), list[float]()
    for wanted in (n // 10, n - CONCURRENCY):
        while served.n < wanted:
            if run.poll() is not None:
                raise SystemExit("the command ended early")
            time.sleep(0.01)
        found.append(process.memory_info().rss / 2**20)
    return found[0], found[1]


def _suite(folder: Path, n: int) -> Path:
    labels = ("benign", "harmful", "uncertain")
    with (folder / "prompts.jsonl").open("w") as file:
        for i in range(n):
            text = f"what should one know about item {i} before it is taken to the garden?"
            file.write(json.dumps({"id": str(i), "text": text, "label": labels[i % 3]}) + "\n")
    (folder / "suite.yaml").write_text(f"path: {folder / 'prompts.jsonl'}\n")
    return folder / "suite.yaml"


@contextmanager
def _server() -> Iterator[Served]:
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            served.count()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main("evaluation", measure)
