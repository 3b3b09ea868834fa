"""The texts that side effects need: plain prose and wraps, read and hashed."""

from __future__ import annotations

from pathlib import Path

from experiments.run.config import DissociateConfig
from experiments.run.manifest import file_hash
from experiments.side_effects import wraps
from extract.errors import UserError
from extract.shipped import resolve_shipped

PLAIN_TEXT = Path("configs/plain_text.txt")


def load_passages(path: Path | None = None) -> list[str]:
    """Read passages, by default the shipped ones: one for each paragraph; lines that begin with # are left out.

    Raises:
        UserError: the file is missing, unreadable or holds no passage; names it and the remedy.
    """
    file = resolve_shipped(path or PLAIN_TEXT)
    remedy = "give a UTF-8 text file with one passage a paragraph (dissociate.plain_text)"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read the plain text {file}: {error.strerror}; {remedy}") from None
    except UnicodeDecodeError:
        raise UserError(f"the plain text {file} is not UTF-8; {remedy}") from None
    kept = "\n".join(line.strip() for line in lines if not line.startswith("#"))
    passages = [" ".join(paragraph.split()) for paragraph in kept.split("\n\n") if paragraph.strip()]
    if not passages:
        raise UserError(f"the plain text {file} holds no passage; {remedy}")
    return passages


def text_hashes(config: DissociateConfig) -> dict[str, str | None]:
    """Check the files that side effects need, before a long run, and return the SHA-256 of each.

    Raises:
        UserError: a file is missing or malformed.
    """
    wraps.load_wraps(config.wraps)
    load_passages(config.plain_text)
    given = {"wraps": config.wraps or wraps.SHIPPED, "plain_text": config.plain_text or PLAIN_TEXT}
    return {name: file_hash(resolve_shipped(path)) for name, path in given.items()}
