"""Asks a model behind an OpenAI-compatible endpoint, several prompts at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from extract.progress import Advance
from extract.prompts.prompt import Prompt
from scoring.evaluation.answers import Answer, KeptAnswers
from scoring.judges.chat_endpoint import FILTERED, ChatEndpoint, Reply, RequestFailedError
from scoring.judges.config import EndpointConfig
from scoring.judges.replies import UnreadableError

READ_AHEAD = 2  # prompts handed out for each concurrent request


def ask_endpoint(
    prompts: Sequence[Prompt], config: EndpointConfig, answers: KeptAnswers, advance: Advance
) -> Counter[str]:
    """Ask all prompts, keep each answer at once, and return the numbers of failed requests by kind.

    A prompt whose request and retries failed has no answer; it is asked again when the evaluation is run again.

    Raises:
        UserError: no request can succeed (the key, the model, the address), or an answer cannot be kept.
    """
    endpoint, failed = ChatEndpoint(config), Counter[str]()

    def ask(prompt: Prompt) -> str | None:
        """Ask and keep the answer; return the kind of failure."""
        for _ in range(config.retries + 1):
            try:
                reply = endpoint.reply(prompt.messages)
                break
            except RequestFailedError as error:
                if error.kind != FILTERED:
                    return error.kind
                reply = Reply("", False, None, None, by="filter")
                break
            except UnreadableError:
                continue
        else:
            return "unreadable"
        text = reply.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be written
        answers.put([prompt], [Answer(text, reply.cut_off, reply.input_tokens, reply.output_tokens, reply.by)])
        return None

    def end(future: Future[str | None]) -> None:
        kind = future.result()
        advance(1)
        if kind is not None:
            failed[kind] += 1

    waiting: deque[Future[str | None]] = deque()
    with ThreadPoolExecutor(config.concurrency) as pool:
        try:
            for i, prompt in enumerate(prompts):
                waiting.append(pool.submit(ask, prompt))
                while waiting and (i == 0 or len(waiting) > READ_AHEAD * config.concurrency):
                    end(waiting.popleft())  # the first alone: it shows whether any request can succeed
            while waiting:
                end(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()
    return failed
