"""DS, the Distinctiveness Score: the share of words that two or three summaries do not share."""

from __future__ import annotations

import functools
import importlib.resources
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

from claimscore.metrics.base import ChunkTables, Metric, Requirements, Score, scored, unscored
from claimscore.text import RULES_VERSION, split_sentences, word_tokenizer

REFERENCE = (
    "Iso et al. 2022, Comparative Opinion Summarization via Collaborative Decoding "
    "(Findings of ACL), Distinctiveness Score; evaluate.py of megagonlabs/cocosum"
)

_NAMES = ("a", "b", "common")
_COLUMNS = ("summary_a", "summary_b", "summary_common")


def distinctiveness(texts: Sequence[str], splitter: str = "rules") -> float:
    """DS of two or three texts over multisets of stemmed tokens (`ds_tokens`).

    Two: 100·(1 − |A∩B| / |A∪B|). Three: 100·(1 − (|A∩B| + |A∩C| + |B∩C| − 2·|A∩B∩C|) / |A∪B∪C|).
    Iso et al. 2022; ∩ takes the smaller count of a token, ∪ the larger. In [0, 100], 0 for the
    same text, 100 where nothing is shared, so also where only one text has any token.
    `ValueError` where none has: 0/0. The score of a data set is the mean over its records.
    """
    if len(texts) not in (2, 3):
        raise ValueError(f"distinctiveness compares two or three texts, not {len(texts)}")
    overlap, union = _overlap_and_union([Counter(ds_tokens(text, splitter)) for text in texts])
    if not union:
        raise ValueError("distinctiveness is not defined where no text has a token (0/0)")
    return 100 * (1 - overlap / union)


def ds_tokens(text: str, splitter: str = "rules") -> list[str]:
    """The tokens that the Distinctiveness Score counts (Iso et al. 2022, cocosum evaluate.py).

    Sentences are cut in the original text, because rules miss boundaries that are lower-cased;
    then each is lower-cased and tokenised by nltk's NLTKWordTokenizer. With "punkt" the text is
    lower-cased first, as the reference code does. Punctuation stays. A token longer than three
    characters becomes its entry in ROUGE-1.5.5's exception table, else its stem by the
    original Porter algorithm.
    """
    words = word_tokenizer()
    original = text.lower() if splitter == "punkt" else text
    return [
        stem(token)
        for sentence in split_sentences(original, splitter)
        for token in words(sentence.lower())
    ]


@functools.lru_cache(maxsize=1 << 17)
def stem(token: str) -> str:
    """ROUGE-1.5.5's stem of one lower-case token; three characters or fewer stay as they are."""
    if len(token) <= 3:
        return token
    exception = _stem_exceptions().get(token)
    return exception if exception is not None else _porter()(token)


@functools.cache
def _porter() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    stem_word: Callable[[str], str] = PorterStemmer(PorterStemmer.ORIGINAL_ALGORITHM).stem
    return stem_word


@functools.cache
def _stem_exceptions() -> dict[str, str]:
    table = importlib.resources.files("claimscore.metrics") / "data/rouge_stem_exceptions.tsv"
    lines = table.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


def _overlap_and_union(bags: Sequence[Counter[str]]) -> tuple[int, int]:
    """Numerator and denominator of the shared part, for two bags of tokens or three."""
    shared = sum((first & second).total() for first, second in combinations(bags, 2))
    union: Counter[str] = Counter()
    for bag in bags:
        union |= bag
    if len(bags) == 3:
        shared -= 2 * (bags[0] & bags[1] & bags[2]).total()
    return shared, union.total()


def _metric(name: str, n_texts: int, description: str) -> Metric:
    columns = _COLUMNS[:n_texts]

    def score_record(record: str, *texts: str | None) -> Score:
        bags = [Counter(ds_tokens(text or "")) for text in texts]
        components: dict[str, object] = {
            f"n_{name}": bag.total() for name, bag in zip(_NAMES, bags, strict=False)
        }
        empty = next((column for column, bag in zip(columns, bags, strict=True) if not bag), None)
        if empty:
            return unscored(record, f"no text in {empty}", components)
        overlap, union = _overlap_and_union(bags)
        return scored(
            record, 100 * (1 - overlap / union), components | {"overlap": overlap, "union": union}
        )

    def score(tables: ChunkTables) -> list[Score]:
        return [score_record(*row) for row in tables.records.select("id", *columns).iter_rows()]

    return Metric(
        name=name,
        requires=Requirements(columns=columns),
        score=score,
        signature_keys=("claimscore",),
        higher_is="fewer shared words",
        range=(0.0, 100.0),
        description=description,
        reference=REFERENCE,
        facts=(("splitter", RULES_VERSION), ("stems", "rouge-1.5.5")),
        verdict="{share} of the words are in one summary only",
        worst="highest",
    )


DS = _metric("ds", 2, "Share of the stemmed words that the two summaries do not have in common")
DS3 = _metric(
    "ds3", 3, "Share of the stemmed words that only one of the three summaries has (a, b, common)"
)
