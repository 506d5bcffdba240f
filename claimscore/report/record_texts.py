"""The texts of a record as a page shows them: cut at sentences, cut off where they are long."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from claimscore.claim_checks import CHECKS, mark
from claimscore.tables import SIDE_COLUMNS

JSON = dict[str, Any]

MAX_TEXT_CHARS = 20_000
MAX_COMPARED_CHARS = 5_000
MAX_NOTE_CHARS = 600
PREVIEW_CHARS = 90


def sides_of(record: JSON, claims: Mapping[str, object], columns: Collection[str]) -> list[str]:
    """The sides of a record that have claims, or a text in one of these columns, the known ones
    first."""
    known = [
        side
        for side, column in SIDE_COLUMNS.items()
        if (column in columns and record.get(column) is not None) or side in claims
    ]
    return known + sorted(side for side in claims if side not in SIDE_COLUMNS)


def side_of(
    side: str,
    record: JSON,
    claims: list[JSON],
    findings: Sequence[JSON] = (),
) -> JSON:
    """One text, cut where its sentences are: `[text, [number of each claim, ...]]`.

    `marks` and `segment_marks` have in words what checks found, by the number of the claim or of
    the piece of text. The numbers of claims are their places among `claims`, of which those that
    count come first; `place` is the place of a claim in the text.
    """
    column = SIDE_COLUMNS.get(side, side)
    text = plain(record.get(column))
    in_text = sorted(enumerate(claims), key=lambda numbered: numbered[1]["place"])
    shown: JSON = {
        "side": side,
        "column": column,
        "claims": [cut_off(row["text"] or "", MAX_NOTE_CHARS) for row in claims],
        "segments": segments(text[:MAX_TEXT_CHARS], in_text),
    }
    if len(text) > MAX_TEXT_CHARS:
        shown["left_out"] = len(text) - MAX_TEXT_CHARS
    if findings:
        shown |= marks(shown["segments"], claims, findings)
    return shown


def segments(text: str, claims: Iterable[tuple[int, JSON]]) -> list[list[Any]]:
    """The text in order, each sentence with the numbers of the claims made of it.

    Sentences are found in the text from left to right; what lies between them had no
    claims. A sentence that is not in the text is shown where its claims come.
    """
    sentences: list[tuple[str, list[int]]] = []
    last: tuple[object, object] | None = None
    for number, row in claims:
        key = (row["sentence_index"], row["sentence"])
        if key != last:
            sentences.append((row["sentence"] or "", []))
            last = key
        sentences[-1][1].append(number)
    if len(sentences) == 1 and not sentences[0][0]:  # claims of the text as a whole
        return [[text, sentences[0][1]]]
    pieces: list[list[Any]] = []
    cursor = 0
    for sentence, numbers in sentences:
        start = text.find(sentence, cursor) if sentence else -1
        if start >= 0:
            pieces.append([text[cursor:start].strip(), []])
            cursor = start + len(sentence)
        pieces.append([sentence, numbers])
    pieces.append([text[cursor:].strip(), []])
    return [[piece, numbers] for piece, numbers in pieces if piece or numbers]


def marks(
    pieces: Sequence[Sequence[Any]], claims: Sequence[JSON], findings: Sequence[JSON]
) -> JSON:
    """Findings in words by the number of their claim, or of their sentence's piece of the text.

    A sentence without claims is in the piece before that of the next sentence with some.
    """
    number = {(row["sentence_index"], row["claim_index"]): n for n, row in enumerate(claims)}
    piece = {claims[of[0]]["sentence_index"]: n for n, (_, of) in enumerate(pieces) if of}
    of_claims: dict[int, list[str]] = {}
    of_pieces: dict[int, list[str]] = {}
    for row in sorted(findings, key=lambda row: list(CHECKS).index(row["check"])):
        index, claim, words = (
            row["sentence_index"],
            row["claim_index"],
            mark(row["check"], row["value"]),
        )
        if claim is not None:
            of_claims.setdefault(number[index, claim], []).append(words)
            continue
        after = (n for other, n in piece.items() if other > index)
        place = piece[index] if index in piece else min(after, default=len(pieces)) - 1
        of_piece = of_pieces.setdefault(place, [])
        if words not in of_piece:  # several sentences may be in one piece
            of_piece.append(words)
    return {"marks": of_claims, "segment_marks": of_pieces}


def compared_texts(record: JSON, most_chars: int = MAX_COMPARED_CHARS) -> list[list[Any]]:
    """The texts that a summary is compared with: `[column, [text, ...], characters left out]`."""
    shown: list[list[Any]] = []
    for column in ("source", "sources", "references"):
        value = record.get(column)
        if value is None or value == []:
            continue
        texts = value if isinstance(value, list) else [value]
        beginnings, room = [], most_chars
        for text in map(plain, texts):
            if room > 0:
                beginnings.append(text[:room])
            room -= len(text)
        shown.append([column, beginnings, max(0, -room)])
    return shown


def preview(record: JSON, columns: Collection[str]) -> str:
    """The beginning of the first summary in these columns of a record, in one line."""
    names = (name for name in SIDE_COLUMNS.values() if name in columns)
    text = next((record[name] for name in names if record.get(name)), "")
    return cut_off(" ".join(plain(text)[:1000].split()), PREVIEW_CHARS)


def plain(value: object) -> str:
    """A cell of the records as text; nothing where it is null."""
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def cut_off(text: str, length: int) -> str:
    """At most so many characters; the last one says that there were more."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
