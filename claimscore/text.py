"""Sentences and words of a text, without any download.

nltk and regex are imported inside functions: nltk takes a second.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from claimscore.errors import ConfigError

#: Version of the rules splitter; in the signature of every score that depends on its cuts.
RULES_VERSION = "rules-4"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Words whose full stop does not end the sentence, without that stop and in lower case.
_ABBREVIATIONS = _words(
    "dr mr mrs ms mx prof st ste mt ft jr sr rev hon fr gov gen col maj capt lt sgt cmdr adm sen "
    "supt messrs mme mlle vs v cf al approx ca e.g i.e eg viz a.m p.m a.d b.c b.c.e c.e u.s u.k "
    "u.s.a u.n e.u d.c l.a n.y ph.d m.d b.a m.a dept univ inc ltd pvt co cos corp bros est assn "
    "ave blvd rd jan feb mar apr jun jul aug sept oct nov dec etc incl excl min mins hr hrs max "
    "eds trans z.b d.h u.a bzw usw str sra srta"
)

#: Abbreviations only before a number, because they are words too: "room no. 5".
_BEFORE_NUMBERS = _words(
    "no nos nr c p pp fig figs vol ch sec eq art apt rm bldg hwy tel ext ed av"
)

#: Capitalised after an abbreviation, these begin a sentence: "in the U.S. The rooms".
_SENTENCE_STARTERS = _words(
    "the a an this that these those there here it its he she they we i you his her their our my "
    "your in on at by for from with of to as if when while although though because since after "
    "before during despite once and but or so yet nor however also both all some many most "
    "several each every no not nothing none everything everyone overall additionally moreover "
    "furthermore therefore thus then finally first second unfortunately fortunately what who how "
    "why where which only even other others another"
)

#: Full stops and question marks that end nothing but a sentence, with or without a space: of
#: Chinese, Japanese, Arabic, Urdu, Hindi, Armenian, Amharic, Burmese, Khmer and Tibetan.
_OTHER_ENDS = "。！？｡؟۔।॥։።။។།"

_SENTENCE_ENDS = (".", "?", "!", *_OTHER_ENDS)

#: Where a sentence ends whatever comes before: a line's end; one of `_OTHER_ENDS` (but
#: 「良い！」でした goes on); an ellipsis, or an abbreviation that often ends a
#: sentence, before a capitalised word (but not inside a title: "Mitzi... Zings into Spring").
#: Runs are taken whole, so long ones cost no backtracking.
_ALWAYS_CUT = rf"""
    [\n\r\u2028\u2029\x85]
    | (?<![{_OTHER_ENDS}]) [{_OTHER_ENDS}]++
      (?: [」』）】”’"')\]]++ (?=\s|\Z|[「『（【“]) | (?![」』）】”’"')\]]) )
    | (?: (?<!\.)\.{{3,}}+ | … | \b(?:etc|[ap]\.m|mins?|hrs?|max)\. ) [”’"')\]]*+
      (?= \s++ (?! (?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day ) \p{{Lu}}(?:\p{{Ll}}|\s) )
      (?! (?<= (?<!\S)["“] (?=\S) [^"“”\n]{{1,40}}) [^"“”.?!\n]{{1,60}} (?<=\S)["”] )
"""

#: No end before a small letter: `"Is it good?" he asked`, `(really!) and`.
_QUOTED_QUESTION = r"""[?!] ["'”’»)\]]++ \Z"""

#: No end before a name or a small letter: `J.J. Pryor`, `a unit of Framatome S.A. also`.
_INITIALS = r"(?<!\w) (?:\p{Lu}\.){2,} \Z"

#: No sentence of its own: the `1.` of a list.
_LIST_MARK = r"\(? (?:\d{1,3}|\p{L}) [.)] \Z"


#: What `normalised` makes a space of: a run of punctuation, spaces and controls. Marks stay: they
#: are the vowels of some scripts. So does %, which Unicode counts as punctuation.
GAPS = r"[^\p{L}\p{M}\p{N}\p{S}%]+"


#: Version of `normal_form`; in the signature of every score whose models read it.
NORMAL_FORM = "form-1"

_ONE_SIGN = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»″", '"'),
        **dict.fromkeys("‘’‚‛`´′", "'"),
        **dict.fromkeys("‐‑‒–−", "-"),
        **dict.fromkeys("—―", " - "),
        **dict.fromkeys("\u00ad\u200b\ufeff", ""),
        "…": "...",
    }
)

#: What `normal_form` replaces, in this order.
_RETYPED = (
    (r"-L[RSC]B-", "("),
    (r"-R[RSC]B-", ")"),
    (r"\ ?@([-,.:])@\ ?", r"\1"),
    (r"''", '"'),
    (r"(?<=\s)-{2,}(?=\s)|(?<=\w)--(?=\w)", " - "),
    (r"\ (?=(?:n't|'(?:s|m|d|re|ve|ll))\b)", ""),
    (r"\ (?=[,;:!?%)\]}](?!\w)|\.(?=[\s\"')]|$))", ""),
    (r"(?<=[(\[{])\ |(?<=[£$€¥])\ (?=\d)", ""),
)
_QUOTE = re.compile(r'(^|\s)?"(\s|$)?(?=(.?))')


class _Span(NamedTuple):
    start: int
    end: int


class _Orthography(dict[str, int]):
    """Punkt's orthographic evidence; unlike its own defaultdict, asking does not fill it."""

    def __missing__(self, word: str) -> int:
        return 0


def split_sentences(text: str, splitter: str = "rules") -> list[str]:
    """The sentences of `text`: slices of it, stripped, none empty.

    "rules" is nltk's Punkt algorithm (Kiss and Strunk 2006) with word lists of our own in
    place of its trained data, so nothing has to be downloaded, and with line ends as
    boundaries. "punkt" is nltk's trained English model, `ConfigError` where it is missing.
    """
    try:
        spans = _SPLITTERS[splitter]
    except KeyError:
        known = ", ".join(_SPLITTERS)
        raise ConfigError(f"unknown sentence splitter {splitter}; known: {known}") from None
    sentences = (text[span.start : span.end].strip() for span in spans(text))
    return [sentence for sentence in sentences if sentence]


def normal_form(text: str) -> str:
    """The text as a model reads it, however it was typed or tokenised.

    One kind of quotation mark, apostrophe, dash and space; no space before punctuation, after
    currency signs and inside brackets; contractions in one piece; the brackets and quotation marks
    of the Penn Treebank and Moses' `@-@` as the signs that they stand for. Case stays. A second
    call changes nothing.
    """
    previous = ""
    while text != previous:
        previous = text
        text = " ".join(text.translate(_ONE_SIGN).split())
        for pattern, replacement in _RETYPED:
            text = _compile(pattern).sub(replacement, text)
        text = _QUOTE.sub(_Quotes(), text).strip()
    return text


class _Quotes:
    """Attaches each quotation mark to what it opens or closes; between spaces they take turns."""

    opened = False

    def __call__(self, match: re.Match[str]) -> str:
        before, after, following = match.groups()
        if before is None and after is None:
            return '"'
        closes = before is None or (self.opened if after is not None else following in ".,;:!?)")
        self.opened = not closes
        return f'"{after or ""}' if closes else f'{before}"'


def copy_key(text: str, *, case: bool = True) -> str:
    """Equal for two texts that differ in spaces, typing (`normal_form`) and final marks alone."""
    key = "".join(normal_form(text).split()).strip("\"'.,;:!?")
    return key if case else key.casefold()


def normalised(text: str) -> str:
    """Lower case, with single spaces for whatever is no letter, digit or symbol."""
    spaced: str = _compile(GAPS).sub(" ", text.lower())
    return spaced.strip()


def word_tokens(text: str) -> list[str]:
    """nltk's word tokens (NLTKWordTokenizer), punctuation among them, sentence by sentence."""
    words = word_tokenizer()
    return [token for sentence in split_sentences(text) for token in words(sentence)]


def _punkt_spans(text: str) -> Iterator[_Span]:
    return itertools.starmap(_Span, _trained_punkt().span_tokenize(text))


def _rule_spans(text: str) -> Iterator[_Span]:
    """Punkt's cuts inside the pieces between the certain ones, without those where it errs."""
    punkt = _punkt_with_our_words()
    for piece in _pieces(text):
        cuts = punkt.span_tokenize(text[piece.start : piece.end])
        spans = [_Span(piece.start + start, piece.start + end) for start, end in cuts]
        yield from _joined(text, spans)


def _pieces(text: str) -> Iterator[_Span]:
    start = 0
    for match in _compile(_ALWAYS_CUT).finditer(text):
        yield _Span(start, match.end())
        start = match.end()
    yield _Span(start, len(text))


def _joined(text: str, spans: list[_Span]) -> Iterator[_Span]:
    """The spans, those that go on taken together with their successor."""
    first = 0
    for index, span in enumerate(spans):
        if index + 1 == len(spans) or not _goes_on(text, span, spans[index + 1]):
            yield _Span(spans[first].start, span.end)
            first = index + 1


def _goes_on(text: str, span: _Span, following: _Span) -> bool:
    first = text[following.start]
    if first in ",;" or (first.islower() and _compile(_QUOTED_QUESTION).search(text, *span)):
        return True
    if first.isalpha() and _compile(_INITIALS).search(text, *span):
        word = _compile(r"\w+").match(text, *following)[0]
        return first.islower() or word.lower() not in _SENTENCE_STARTERS
    return _compile(_LIST_MARK).match(text, *span) is not None


_SPLITTERS: dict[str, Callable[[str], Iterator[_Span]]] = {
    "rules": _rule_spans,
    "punkt": _punkt_spans,
}


@functools.cache
def _compile(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped] # no type hints published

    return regex.compile(pattern, regex.VERBOSE)


@functools.cache
def _punkt_with_our_words() -> Any:
    from nltk.tokenize import punkt

    class LanguageVars(punkt.PunktLanguageVars):  # type: ignore[misc] # nltk has no types
        sent_end_chars = _SENTENCE_ENDS

    class Tokenizer(punkt.PunktSentenceTokenizer):  # type: ignore[misc]
        def text_contains_sentbreak(self, text: str) -> bool:
            """Whether a sentence ends between the two words: not whether one does in the second,
            as in `Mr. Hyde."`."""
            second = re.sub(r"(\s\S*\w)[.?!][\"'”’)]+$", r"\1", text)
            return bool(super().text_contains_sentbreak(second))

    words = punkt.PunktParameters()
    words.abbrev_types = set(_ABBREVIATIONS)
    words.collocations = {(word, "##number##") for word in _BEFORE_NUMBERS}
    words.sent_starters = set(_SENTENCE_STARTERS)
    seen_in_both_cases = punkt._ORTHO_BEG_UC | punkt._ORTHO_MID_LC
    words.ortho_context = _Orthography.fromkeys(_SENTENCE_STARTERS - {"i"}, seen_in_both_cases)
    return Tokenizer(words, lang_vars=LanguageVars())


@functools.cache
def _trained_punkt() -> Any:
    from nltk.tokenize.punkt import PunktTokenizer

    try:
        return PunktTokenizer("english")
    except LookupError:
        raise ConfigError(
            "splitter punkt: nltk's punkt_tab data is not installed; run "
            "`python -m nltk.downloader punkt_tab`, or use the splitter rules"
        ) from None


@functools.cache
def word_tokenizer() -> Callable[[str], list[str]]:
    """nltk's NLTKWordTokenizer: the words of a sentence, punctuation among them."""
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenize: Callable[[str], list[str]] = NLTKWordTokenizer().tokenize
    return tokenize


#: Words that say nothing about what a claim is about.
STOP_WORDS = _words(
    """
    a an the and or but if of at by for with about against between into through during before after
    above below to from up down in out on off over under again further then once here there when
    where why how all any both each few more most other some such no nor not only own same so than
    too very s t can will just don should now i me my we our ours you your he him his she her hers
    it its they them their what which who whom this that these those am is are was were be been
    being have has had having do does did doing would could as until while because also
    """
)

#: Subjects that say of themselves not whom they mean.
PRONOUNS = _words("he she it they his her their its this these those who which")

_ARTICLES = frozenset(("a", "an", "the"))


def content_words(text: str) -> Counter[str]:
    """The stemmed content words of a text and how often each is there (decision 92).

    Runs of `a-z` and digits of the lower-case text, without stop words, by Porter's stemmer.
    """
    words = re.findall("[a-z0-9]+", text.lower())
    return Counter(_stem(word) for word in words if word not in STOP_WORDS)


def has_dangling_subject(claim: str) -> bool:
    """Whether the first word is a pronoun: a claim by itself does not say whom it means."""
    first = re.match(r"\W*(\w+)", claim)
    return first is not None and first[1].lower() in PRONOUNS


def claim_key(claim: str) -> str:
    """The same text for two claims that say the same words.

    Case, punctuation (`normalised`) and articles do not count; a claim without words is its own
    key.
    """
    words = normalised(claim).split()
    return " ".join(word for word in words if word not in _ARTICLES) or claim


@functools.lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    return _stemmer()(word)


@functools.cache
def _stemmer() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    stem: Callable[[str], str] = PorterStemmer().stem
    return stem
