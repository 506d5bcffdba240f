"""The claims of a parsed sentence.

Each verb with its subject makes a claim: alone where it has an object, and with each of its
adjuncts. Of coordinations each member makes one. What hangs on a noun and can be said of it alone
(a relative clause, a participle, an apposition, a title) makes one of its own, with the noun in
the place of the pronoun. Only words of the sentence, "is" or "was", articles and the past tense of
a participle are put in. Where a part would not be sound, fewer cuts are tried; a sentence that
cannot be cut stays whole. The way of cutting follows ClausIE (Del Corro and Gemulla 2013) and the
decompositions of FActScore (Min et al. 2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from claimscore.baseline import modifiers
from claimscore.baseline.clauses import Clause, separate
from claimscore.baseline.conjuncts import (
    Coordination,
    Inserts,
    choose,
    coordinations,
    is_distributive,
    is_listing,
    is_plain_list,
    shares_object,
)
from claimscore.baseline.doubts import (
    is_doubtful,
    is_doubtful_beside,
    is_doubtful_word,
    is_universal,
)
from claimscore.baseline.surface import Draft, Items, Unsure, article, be, past_of, text_of
from claimscore.baseline.tree import SUBJECTS, Tree, Words, words_of

MAX_WORDS = 90
#: More claims of one clause than this: coordinations are cut in its adjuncts only.
_MANY = 8
_MOST_MEMBERS = 10
_OBJECTS = ("dobj", "attr", "acomp", "oprd", "ccomp", "dative")
_SUBJECTS = (*SUBJECTS, "expl")
#: Prepositions that belong to a noun without an article before them: "in line for".
_AFTER_BARE = ("by", "for", "from", "in", "of", "on", "over", "to", "with")
_SINGULAR = {"were": "was", "are": "is", "have": "has", "do": "does"}
_PLURAL = {"was": "were", "is": "are", "'s": "are"}


class VerbForm(NamedTuple):
    """What changes where a verb gets a subject from elsewhere: words before it, or another form."""

    before: Items = ()
    instead: str | None = None


class _Part(NamedTuple):
    """Words of a clause with what is put before some of them."""

    nodes: set[int]
    inserts: Inserts
    #: Forms of its verb that change, for a subject of another number.
    verbs: Mapping[str, str] = MappingProxyType({})


def extract(tree: Tree) -> list[str] | None:
    """The claims of a sentence, at least two; None where it is one, or its parts are unsure.
    A headline without its "is" may be one claim, which has it.

    The tree is cut between the clauses of the sentence.
    """
    if len(tree) > MAX_WORDS or is_doubtful(tree):
        return None
    titles = list(filter(None, (modifiers.title_of(tree, index) for index in range(len(tree)))))
    claims: dict[str, str] = {}
    is_mended, is_clause = False, tree.is_clause()
    try:
        clauses = separate(tree)
        for clause in clauses:
            of_clause = _claims_of(tree, clause, titles)
            is_mended |= bool(of_clause) and not is_clause
            for claim in of_clause or [_whole(tree, clause)]:
                claims.setdefault(claim.lower(), claim)
    except Unsure:
        return None
    return list(claims.values()) if len(claims) > 1 or is_mended else None


def _claims_of(tree: Tree, clause: Clause, titles: list[modifiers.Title]) -> list[str]:
    """The claims of a clause; none where its parts are unsure."""
    most: list[str] = []
    if any(is_doubtful_word(tree, index) for index in tree.subtree(clause.root)):
        return most
    for cuts_lists, cuts_adjuncts in ((True, True), (False, True), (True, False), (False, False)):
        try:
            claims = _Extraction(tree, titles, cuts_lists, cuts_adjuncts).claims(clause)
        except Unsure:
            continue
        if len(claims) > 1:
            return claims
        most = most or claims
    return most


def _whole(tree: Tree, clause: Clause) -> str:
    """A clause as one claim, without the words that join it to others."""
    root = clause.root
    nodes = sorted(tree.subtree(root))
    beside = [n for n in tree.children[root] if tree.lower[n] in words_of("dropped_adverbs")]
    while nodes and (tree.labels[nodes[0]] in ("cc", "punct", "intj") or nodes[0] in beside):
        nodes.pop(0)
    return text_of(tree, [*(clause.subject or ()), *clause.verbs, *nodes], set())


class _Extraction:
    def __init__(
        self, tree: Tree, titles: list[modifiers.Title], cuts_lists: bool, cuts_adjuncts: bool
    ) -> None:
        self.tree, self.titles = tree, titles
        self.cuts_lists = cuts_lists
        self.cuts_adjuncts = cuts_adjuncts

    def claims(self, clause: Clause) -> list[str]:
        tree, root = self.tree, clause.root
        form = VerbForm(clause.verbs) if clause.verbs else None
        is_said = tree.is_verb(root) and tree.is_finite(root) and tree.subject(root) is not None
        if clause.subject is None and not is_said:
            drafts = self._headline(root)
        elif clause.subject is None or tree.is_verb(root):
            drafts = self._clause(root, clause.subject, form)
        else:
            nodes = modifiers.without_modifiers(tree, tree.subtree(root))
            parts = self._parts(nodes, None, nodes)
            drafts = [self._draft(part, root, False, clause.subject, form) for part in parts]
        for noun in sorted(tree.subtree(root)):
            drafts += self._of_noun(noun)
        self._refuse_loss(root, drafts)
        before_names = {word for title in self.titles for word in title.words}
        texts = {text_of(tree, draft.items, before_names): None for draft in drafts}
        return list({text.lower(): text for text in reversed(texts)}.values())[::-1]

    def _refuse_loss(self, root: int, drafts: Iterable[Draft]) -> None:
        """Every word that says something is in a claim."""
        tree = self.tree
        covered = frozenset().union(*(draft.covers for draft in drafts))
        for index in tree.subtree(root) - covered:
            if tree.labels[index] == "neg":
                raise Unsure
            if index in tree.brackets:
                continue
            is_content = tree.tags[index][:2] in ("NN", "VB", "JJ", "CD", "FW", "RB")
            if is_content and tree.lower[index] not in words_of("may_be_lost"):
                raise Unsure

    # Clauses

    def _headline(self, root: int) -> list[Draft]:
        """The claims of a sentence without its "is": "Spurs tracking a star", "Man charged"."""
        tree, verb = self.tree, root
        subject = tree.subject(root)
        participles = [c for c in tree.of(root, "acl") if tree.tags[c] == "VBN"]
        if subject is None and len(participles) == 1 and tree.tags[root].startswith("NN"):
            subject, verb = root, participles[0]
        passive = tree.labels[verb] == "acl" or bool(tree.of(verb, "nsubjpass", "neg"))
        is_known = passive if tree.tags[verb] == "VBN" else tree.tags[verb] in ("VBG", "JJ")
        if subject is None or not is_known or tree.auxiliaries(verb):
            raise Unsure
        others = [n for n in tree.subtree(verb) - {verb} if tree.labels[n] in ("acl", "conj")]
        if passive and (tree.of(verb, "dobj") or any(tree.tags[n][:2] == "VB" for n in others)):
            raise Unsure  # a past tense: "Man charged a friend"
        phrase = tree.subtree(subject).difference(tree.subtree(verb) if subject == root else ())
        who = tree.trim(modifiers.without_modifiers(tree, phrase) - tree.brackets)
        plural = tree.tags[subject] in ("NNS", "NNPS") or bool(tree.of(subject, "conj"))
        form = VerbForm((be(tree.tags[verb] == "VBN", plural),))
        return self._clause(verb, who, form, dropped=None if subject == root else subject)

    def _clause(
        self,
        verb: int,
        subject: Sequence[int | str] | None = None,
        form: VerbForm | None = None,
        dropped: int | None = None,
    ) -> list[Draft]:
        """The claims of a verb; `subject` and `form` where they are not its own."""
        tree = self.tree
        own_subject = tree.subject(verb)
        needed = [verb, *tree.of(verb, *_SUBJECTS, *_OBJECTS)]
        if tree.unsure.intersection(needed):
            raise Unsure
        if own_subject == dropped:
            own_subject = None
        nodes, verbs, participles = self._kept(verb)
        gone = tree.brackets | (tree.subtree(dropped) if dropped is not None else set())
        kept = modifiers.without_modifiers(tree, nodes - gone)
        drafts = self._variants(verb, kept, own_subject is not None, subject, form)
        carried = subject
        if own_subject is not None:
            carried = modifiers.subject_phrase(tree, own_subject)
        for other in verbs:
            drafts += self._coordinated(other, verb, carried, form)
        for participle in participles:
            if carried is not None:
                is_past = tree.is_past(verb) or any(
                    tree.lower[a] in ("has", "have") for a in tree.auxiliaries(verb)
                )
                drafts += self._participle(participle, carried, is_past)
        return drafts

    def _kept(self, verb: int) -> tuple[frozenset[int], list[int], list[int]]:
        """The words of a clause, the verbs beside its own, the participles that say more of its
        subject."""
        tree = self.tree
        nodes = tree.subtree(verb)
        verbs, participles = [], []
        for child in tree.children[verb]:
            label, low = tree.labels[child], tree.lower[child]
            if label in ("parataxis", "dep"):
                raise Unsure
            if label == "conj":
                if not tree.is_verb(child):
                    if tree.tags[verb].startswith("VB"):
                        raise Unsure
                    continue
                verbs.append(child)
            elif label == "advcl" and modifiers.is_free_participle(tree, child):
                participles.append(child)
            elif not (
                label in ("intj", "meta", "cc")
                or (label == "prep" and child < verb and self._is_set_phrase(child))
                or (
                    label == "advmod"
                    and low in words_of("dropped_adverbs")
                    and not tree.children[child]
                )
            ):
                continue
            nodes -= tree.subtree(child)
        if verbs and any(tree.lower[c] in ("or", "nor") for c in tree.of(verb, "cc")):
            raise Unsure
        if any(shares_object(tree, verb, other) for other in verbs):
            raise Unsure
        return nodes, verbs, participles

    def _is_set_phrase(self, preposition: int) -> bool:
        """Whether a phrase is one such as "for example"."""
        nodes = self.tree.subtree(preposition)
        return len(nodes) == 2 and self.tree.lower[max(nodes)] in words_of("phrases") | {"that"}

    def _coordinated(
        self, verb: int, first: int, subject: Sequence[int | str] | None, form: VerbForm | None
    ) -> list[Draft]:
        """The claims of a verb that is coordinated with another one."""
        tree = self.tree
        if tree.subject(verb) is not None and tree.is_finite(verb):
            return self._clause(verb)
        if subject is None or tree.subject(verb) is not None:
            raise Unsure
        auxiliaries = [c for c in tree.auxiliaries(verb) if c < verb]
        if is_doubtful_beside(tree, verb, first):
            raise Unsure
        tag, shared = tree.tags[verb], [c for c in tree.auxiliaries(first) if c < first]
        if auxiliaries or tree.lower[verb] in words_of("intransitive"):
            return self._clause(verb, subject)
        if form and form.instead and tag == "VBG":
            return self._clause(verb, subject, VerbForm(instead=past_of(tree.lower[verb])))
        if not form and tag in ("VB", "VBN", "VBG"):
            if tag == tree.tags[first] and shared:
                return self._clause(verb, subject, VerbForm(tuple(shared)))
            if (tag, tree.tags[first]) != ("VBN", "VBD"):  # that is a past tense, tagged wrongly
                raise Unsure
        return self._clause(verb, subject)

    def _participle(
        self, participle: int, subject: Sequence[int | str], is_past: bool, is_plural: bool = False
    ) -> list[Draft]:
        tree = self.tree
        says_past = any(tree.is_year_or_month(n) for n in tree.subtree(participle))
        if tree.tags[participle] == "VBG" and not is_past:
            raise Unsure
        if tree.tags[participle] == "VBN":
            is_past = is_past or says_past or tree.lower[participle] in words_of("done")
        if tree.tags[participle] == "VBG":
            form = VerbForm(instead=past_of(tree.lower[participle]))
        else:
            form = VerbForm((be(is_past, is_plural),))
        return self._clause(participle, subject, form)

    def _variants(
        self,
        verb: int,
        nodes: set[int],
        has_subject: bool,
        subject: Sequence[int | str] | None,
        form: VerbForm | None,
    ) -> list[Draft]:
        """A clause without its adjuncts, and with each of them."""
        tree = self.tree
        chain = [verb]
        while True:
            below = [
                c
                for c in tree.of(chain[-1], "xcomp", "ccomp")
                if c in nodes and tree.is_verb(c) and self._is_link(chain[-1], c)
            ]
            if len(below) != 1:
                break
            chain += below
        has_object = any(
            tree.labels[c] in _OBJECTS or (tree.labels[c] == "xcomp" and not tree.is_verb(c))
            for c in tree.children[chain[-1]]
            if c in nodes
        )
        asides = list(self._asides(nodes, verb)) if self.cuts_adjuncts else []
        nodes = nodes.difference(*asides)
        adjuncts = self._adjuncts(chain, nodes) if self.cuts_adjuncts else []
        if tree.labels[chain[-1]] == "xcomp":
            # "is in the frame to replace", "calls for wages to be paid"
            adjuncts = [a for a in adjuncts if not verb < min(a) < chain[1]]
        if tree.of(chain[-1], "acomp"):  # "is fine for lunch"
            adjuncts = [a for a in adjuncts if tree.lower[min(a)] != "for" or tree.is_time(min(a))]
        self._take_complements_of_objects(chain[-1], adjuncts)
        if not has_object:
            self._take_complements(chain, adjuncts)
        elif tree.lower[chain[-1]] in words_of("placing"):
            adjuncts = [a for a in adjuncts if min(a) < verb]
        adjuncts = [a for a in adjuncts if not self._is_interrupting(a, chain, adjuncts)]
        whole = nodes.difference(*adjuncts)
        core = self._shortened(whole, verb) if self.cuts_adjuncts else whole
        if adjuncts and any(tree.labels[n] == "prep" and tree.heads[n] in chain for n in core):
            has_object = True
        has_object = has_object or self._is_complete(chain[-1], core)
        variants: list[tuple[Words, Words]] = [(core, core)] if has_object or not adjuncts else []
        if core != whole:
            variants.append((whole, whole))
        after = [adjunct for adjunct in adjuncts if min(adjunct) > verb]
        for adjunct in adjuncts:
            is_clause = any(
                (tree.labels[n] == "pcomp" and tree.is_verb(n))
                or (tree.labels[n] == "advcl" and tree.heads[n] in chain)
                for n in adjunct
            )
            needs = after and not has_object and (min(adjunct) < verb or is_clause)
            needed = after[0] if needs else set()
            if self._may_be_of_noun(adjunct):
                needed = frozenset(needed).union(*after)
            beside = self._instead_of(verb, adjunct)
            base = whole if tree.words[min(adjunct) - 1] == "," else core
            for phrase in dict.fromkeys((self._shortened(adjunct, verb), adjunct)):
                variants.append(((base - beside) | phrase | needed, phrase | needed))

        def drafts(only: bool) -> list[Draft]:
            return [
                self._draft(part, verb, has_subject, subject, form)
                for words, new in variants
                for part in self._parts(words, verb, new if only else words)
            ]

        claims = drafts(only=False)
        if len(claims) > _MANY and adjuncts:
            claims = drafts(only=True)
        for aside in asides:
            heads = {tree.heads[n] for n in aside} - aside
            holders = [a for a in adjuncts if a & heads] or ([] if has_object else after[:1])
            part = _Part(whole.union(aside, *holders), {})
            claims.append(self._draft(part, verb, has_subject, subject, form))
        return claims

    def _is_link(self, verb: int, other: int) -> bool:
        """Whether what is true of a verb's adjuncts is true of those of the clause below it:
        "began to sing", "said that he sang"."""
        tree = self.tree
        if tree.labels[other] == "xcomp":
            return True
        reported = tree.lower[verb] in words_of("reporting") and verb < other
        return reported and tree.is_finite(other) and tree.quoted_in(other) is None

    def _is_complete(self, verb: int, core: Words) -> bool:
        """Whether a verb says enough without object and adjuncts: "resigned", "was arrested"."""
        tree = self.tree
        known = "completed_by_agents" if tree.of(verb, "auxpass") else "complete"
        rest = [tree.tags[n] for n in core if n > verb]
        return tree.lower[verb] in words_of(known) and set(rest) <= {"RB", "RP", ",", "."}

    def _shortened(self, nodes: Words, verb: int) -> Words:
        """Some words of a clause without the last phrases, which nouns do not need."""
        tree = self.tree
        for noun in sorted(nodes):
            if tree.labels[noun] not in ("dobj", "pobj", "attr"):
                continue
            above = [noun, *itertools.takewhile(lambda n: n != verb, tree.ancestors(noun))]
            if verb not in tree.ancestors(noun) or any(
                tree.labels[n] not in ("dobj", "pobj", "attr", "prep", "agent") for n in above
            ):
                continue
            for phrase in tree.of(noun, "prep", "acl", "relcl"):
                words = tree.subtree(phrase)
                behind = (n for n in nodes if n > max(words))
                ends = words <= nodes and all(tree.labels[n] == "punct" for n in behind)
                if ends and min(words) > noun and modifiers.is_optional(tree, noun, phrase):
                    nodes = nodes - words
        return nodes

    def _asides(self, nodes: Words, verb: int) -> Iterable[Words]:
        """The clauses behind a comma that say something of a word which is not certain: one claim
        has them where they stand."""
        tree = self.tree
        inside: Words = frozenset()
        for clause in sorted(nodes, key=lambda n: min(tree.subtree(n))):
            if clause in inside or not modifiers.is_aside(tree, clause):
                continue
            if clause != verb and tree.heads[clause] in nodes and clause not in tree.hypothetical:
                inside |= tree.subtree(clause)
                yield tree.subtree(clause) & nodes

    def _is_interrupting(self, adjunct: Words, chain: list[int], adjuncts: list[Words]) -> bool:
        """Whether what stands behind an adjunct and is none itself may belong to it: a phrase whose
        place is not certain, or a clause about a noun before."""
        tree, following = self.tree, max(adjunct) + 1
        while following in tree.quote_marks or tree.words[following : following + 1] == [","]:
            following += 1
        if following >= len(tree) or any(following in other for other in adjuncts):
            return False
        labels = ("prep", "relcl", "acl", "appos")
        phrases = (n for n in (following, *tree.ancestors(following)) if tree.labels[n] in labels)
        top = next(phrases, following)
        if min(tree.subtree(top)) < following:
            return False
        if tree.words[following - 1] == "," and tree.labels[top] != "appos":
            return False
        if tree.labels[top] == "prep":
            timed = tree.is_time(tree.trim(adjunct)[-1]) or tree.is_time(top)
            return tree.heads[top] in chain and following > chain[0] and not timed
        return tree.labels[top] in labels and tree.heads[top] < min(adjunct)

    def _is_last(self, adjunct: int) -> bool:
        """Whether a phrase ends the sentence, so that the rest stands whatever it belongs to."""
        tree, words = self.tree, self.tree.subtree(adjunct)
        before, rest = max(0, min(words) - 1), range(max(words) + 1, len(tree))
        known = tree.lower[adjunct] in words_of("separable_prepositions")
        return (
            (known if tree.labels[adjunct] == "prep" else tree.tags[adjunct] == "VB")
            and tree.tags[before][:2] in ("NN", "CD", ",", "''")
            and tree.lower[before] not in words_of("relational")
            and all(tree.labels[n] == "punct" for n in rest)
        )

    def _may_be_of_noun(self, adjunct: Words) -> bool:
        """Whether an adjunct may belong to the noun before it, so that it stays beside it."""
        tree, before = self.tree, min(adjunct) - 1
        unsure = any(n in tree.unsure and tree.heads[n] not in adjunct for n in adjunct)
        return unsure and tree.words[before] != "," and not tree.is_year_or_month(before)

    def _instead_of(self, verb: int, adjunct: Words) -> Words:
        """Of "is cheap and always on time" the "cheap and", where the adjunct is the last part."""
        tree, before = self.tree, min(adjunct) - 1
        if before < 0 or tree.labels[before] != "cc":
            return frozenset()
        predicates = tree.of(verb, "acomp", "attr")
        if len(predicates) != 1 or tree.lower[before] != "and":
            raise Unsure
        if before - 1 not in tree.subtree(predicates[0]):
            raise Unsure
        return tree.subtree(predicates[0]) | {before}

    def _adjuncts(self, chain: list[int], nodes: set[int]) -> list[Words]:
        tree = self.tree
        adjuncts: list[Words] = []
        for link in chain:
            for child in (c for c in tree.children[link] if c in nodes):
                if self._is_adjunct(child, link, link == chain[0]):
                    adjuncts.append(tree.subtree(child) & nodes)
                prepositions = {
                    "dobj": words_of("separable_prepositions"),
                    "attr": frozenset(("from", "during", "since", "until")),
                }.get(tree.labels[child], frozenset())
                for below in tree.of(child, "prep"):
                    phrase = tree.subtree(below) & nodes
                    known = below not in tree.unsure and tree.lower[below] in prepositions
                    if known and len(phrase) > 1:
                        adjuncts.append(phrase)
        universal = [
            c for link in chain for c in tree.of(link, "dobj", "pobj") if is_universal(tree, c)
        ]
        adjuncts = [a for a in adjuncts if not any(c < min(a) for c in universal)]
        if any(tree.lower[n] in ("first", "only", "last") or tree.tags[n] == "JJS" for n in nodes):
            adjuncts = [a for a in adjuncts if tree.lower[min(a)] != "since"]
        adjuncts.sort(key=min)
        merged: list[Words] = []
        for adjunct in adjuncts:
            if tree.lower[min(adjunct)] == "including" and tree.is_verb(tree.heads[min(adjunct)]):
                raise Unsure
            if tree.lower[max(adjunct)] in ("'s", "’s"):
                raise Unsure
            if any(tree.is_year_or_month(n) and tree.of(n, "relcl", "advcl") for n in adjunct):
                raise Unsure
            if merged and self._continues(merged[-1], adjunct):
                merged[-1] = merged[-1] | adjunct
            else:
                merged.append(adjunct)
        return merged

    def _is_adjunct(self, child: int, verb: int, is_main: bool) -> bool:
        tree = self.tree
        label = tree.labels[child]
        if verb in tree.hypothetical:
            return False
        if child in tree.unsure and not self._is_last(child):
            return False
        if label in ("prep", "agent"):
            names = tree.lower[child] == "as" and not tree.of(child, "pobj")  # "as dead"
            return len(tree.subtree(child)) > 1 and not names and not self._is_set_phrase(child)
        if label == "npadvmod":
            return is_main and tree.is_time(child)
        if label == "advmod":
            return tree.lower[child] in words_of("end_adverbs") and child > verb
        return (
            label == "advcl"
            and child not in tree.hypothetical
            and self._is_no_complement(child, verb)
        )

    def _is_no_complement(self, clause: int, verb: int) -> bool:
        """Whether a clause is finite, or a purpose ("to help") behind an object or
        a place."""
        tree = self.tree
        if not any(tree.lower[a] == "to" for a in tree.of(clause, "aux")):
            return True
        between = [c for c in tree.of(verb, "dobj", "prep") if verb < c < clause]
        excluded = words_of("causing") | words_of("be")
        return bool(between) and tree.lower[verb] not in excluded

    def _continues(self, before: Words, adjunct: Words) -> bool:
        """Whether an adjunct belongs to the one before it: "from 1990 to 2000", "with X as Y"."""
        low, opening = self.tree.lower[min(adjunct)], self.tree.lower[min(before)]
        beside = min(adjunct) == max(before) + 1
        tree = self.tree
        noun = max(before)
        if beside and len(before) == 2 and tree.tags[noun] == "NN" and low in _AFTER_BARE:
            return not tree.is_time(noun) and not tree.is_time(min(adjunct))  # "in line for"
        narrows = low in ("of", "than", "to") or tree.lower[noun] in ("those", "one", "ones")
        return (low in ("to", "until", "through") and opening == "from") or (narrows and beside)

    def _take_complements(self, chain: list[int], adjuncts: list[Words]) -> None:
        """Take from the adjuncts what a verb without an object cannot be without."""
        tree, last = self.tree, max(chain)
        if tree.lower[chain[-1]] in words_of("staying"):
            after = [adjunct for adjunct in adjuncts if min(adjunct) > chain[0]]
            adjuncts[:] = [a for a in adjuncts if a not in after[:1]]
            return
        for adjunct in adjuncts if len(adjuncts) > 1 else ():
            first = tree.lower[min(adjunct)]
            if min(adjunct) == last + 1 and (
                first in words_of("obligatory_prepositions")
                or tree.lower[last] in words_of("governing")
            ):
                adjuncts.remove(adjunct)
                break
        if tree.lower[chain[0]] in words_of("be"):
            after = [adjunct for adjunct in adjuncts if min(adjunct) > chain[0]]
            if after:
                adjuncts.remove(after[0])

    def _take_complements_of_objects(self, verb: int, adjuncts: list[Words]) -> None:
        """Take from the adjuncts what an object cannot be without: "took advantage of", "left them
        with", "had three players in", "described him as", "turned it into"."""
        tree = self.tree
        complements = words_of("completing_prepositions")
        for index in tree.of(verb, "dobj"):
            pronoun = tree.tags[index] == "PRP"
            bare = tree.tags[index] == "NN" and not tree.children[index]
            bare = bare or tree.lower[index] in words_of("times")
            needs = pronoun or bare or tree.lower[verb] in ("have", "has", "had", "having")
            kept = {*tree.subtree(index).difference(*adjuncts), *tree.of(verb, "prt")}
            adjuncts[:] = [
                a
                for a in adjuncts
                if not (needs and min(a) == 1 + max(kept))
                and not (pronoun and tree.lower[min(a)] == "as")
                and tree.lower[min(a)] != "into"
                and (
                    min(a) < verb
                    or tree.is_time(min(a))
                    or f"{tree.lower[verb]}-{tree.lower[min(a)]}" not in complements
                )
            ]

    # Coordinations

    def _parts(self, nodes: Words, verb: int | None, within: Words) -> list[_Part]:
        """Some words with one member of each coordination that begins in `within`."""
        parts = [_Part(set(nodes), {})]
        if self.cuts_lists:
            for listing in sorted(nodes):
                parts = self._items(parts, nodes, listing)
        listings = [n for part in parts for n in part.nodes if is_listing(self.tree, n)]
        cut = [
            c
            for c in coordinations(self.tree, nodes)
            if c.members[0] in within
            and not any(c.members[-1] < n for n in listings)  # whose items are they?
            and (self.cuts_lists or self.tree.tags[c.members[0]].startswith("VB"))
            and is_distributive(self.tree, c, verb)
        ]
        number = 1
        for coordination in cut:
            number *= len(coordination.members)
        if number > _MOST_MEMBERS:
            cut = [c for c in cut[-1:] if len(c.members) <= _MOST_MEMBERS]
        for coordination in cut:
            parts = [chosen for part in parts for chosen in self._members(part, coordination)]
        return parts

    def _members(self, part: _Part, coordination: Coordination) -> Iterable[_Part]:
        tree = self.tree
        if not all(member in part.nodes for member in coordination.members):
            yield part
            return
        first = coordination.members[0]
        is_there = tree.labels[first] == "attr" and tree.of(tree.heads[first], "expl")
        for member in coordination.members:
            nodes, inserts = choose(tree, part.nodes, coordination, member)
            verbs = part.verbs
            if tree.labels[first] in SUBJECTS or (is_there and member != first):
                if tree.tags[member] in ("NN", "NNP"):
                    verbs = _SINGULAR
                elif tree.tags[member] == "NNS" and is_there:
                    verbs = _PLURAL
            yield _Part(nodes, {**part.inserts, **inserts}, verbs)

    def _items(self, parts: list[_Part], nodes: Words, listing: int) -> list[_Part]:
        """Of "films including X and Y": the films without the list, X, and Y."""
        tree = self.tree
        if not is_listing(tree, listing) or listing in tree.hypothetical:
            return parts
        noun = tree.heads[listing]
        head = tree.first_conjunct(noun)
        if tree.tags[noun] not in ("NNS", "NNPS") or tree.labels[head] not in ("dobj", "pobj"):
            return parts
        above = {tree.lower[n] for n in [*tree.ancestors(head)][:2]}
        if tree.labels[head] == "pobj" and above & {"across", "between", "different"}:
            return parts
        if tree.lower[noun] in words_of("not_listed") or tree.is_year_or_month(noun):
            return parts
        if tree.labels[head] != "dobj" and (listing - noun > 6 or tree.of(noun, "poss")):
            return parts
        while tree.labels[head] == "pobj" and tree.lower[tree.heads[head]] == "of":
            if tree.lower[tree.heads[tree.heads[head]]] not in words_of("amounts"):
                break
            head = tree.heads[tree.heads[head]]
        if tree.labels[head] == "attr":
            return parts  # "there are plenty of sights such as"
        items = tree.of(listing, "pobj")
        if len(items) != 1 or head not in nodes or not tree.subtree(listing) <= tree.subtree(head):
            return parts
        for item in items:
            items += tree.of(item, "conj")
        conjunctions = [c for item in items for c in tree.of(item, "cc")]
        if (
            (len(items) > 1 and not (conjunctions and is_plain_list(tree, items)))
            or any(tree.lower[c] not in ("and", "&") for c in conjunctions)
            or len(items) > _MOST_MEMBERS
            or any(not tree.tags[item].startswith("NN") for item in items)
        ):
            return parts
        cut = []
        for part in parts:
            if listing not in part.nodes:
                cut.append(part)
                continue
            cut.append(part._replace(nodes=part.nodes - tree.subtree(listing)))
            for item in (item for item in items if tree.lower[item] != "others"):
                beside = tree.of(item, "conj", "cc", "punct")
                of_item = tree.subtree(item).difference(*map(tree.subtree, beside))
                words = {n for n in of_item if tree.lower[n] not in ("others", "among")}
                rest = part.nodes - tree.subtree(head)
                cut.append(part._replace(nodes=rest | (words & part.nodes)))
        return cut

    def _draft(
        self,
        part: _Part,
        verb: int | None,
        has_subject: bool = True,
        subject: Sequence[int | str] | None = None,
        form: VerbForm | None = None,
    ) -> Draft:
        tree = self.tree
        items: list[int | str] = []
        if not has_subject and subject is not None:
            items += subject
            items += form.before if form else ()
        for index in tree.trim(part.nodes):
            items += part.inserts.get(index, ())
            if index == verb and form and form.instead:
                items.append(form.instead)
            else:
                items.append(index)
        covers = frozenset(x for x in items if isinstance(x, int))
        if verb is not None:
            covers |= {verb}
            finite = {verb, *tree.auxiliaries(verb)}
            items = [
                part.verbs.get(tree.lower[x], x) if isinstance(x, int) and x in finite else x
                for x in items
            ]
        return Draft(tuple(items), covers)

    # Nouns

    def _of_noun(self, noun: int) -> list[Draft]:
        """The claims that phrases of a noun make."""
        tree = self.tree
        drafts: list[Draft] = []
        if not tree.children[noun]:
            return drafts
        titles = [title for title in self.titles if title.name[-1] == noun]
        phrases = tree.of(noun, "appos", "relcl", "acl")
        is_subject = tree.labels[noun] in _SUBJECTS
        is_past = bool(phrases or titles or is_subject) and self._is_past_around(noun)
        for child in phrases:
            label = tree.labels[child]
            if label == "appos" and modifiers.is_apposition_claim(tree, noun, child):
                if tree.tags[noun].startswith("NN"):
                    drafts += self._apposition(noun, child, is_past)
            elif child in tree.brackets:
                continue
            elif label == "relcl" and modifiers.is_relative_claim(tree, noun, child):
                drafts += self._relative(noun, child)
            elif label == "acl" and noun == tree.heads[noun]:
                continue  # what the headline says
            elif label == "acl" and modifiers.is_participle_claim(tree, noun, child):
                about = self._antecedent(noun, child)
                plural = tree.tags[noun] in ("NNS", "NNPS")
                drafts += self._participle(child, about, is_past, plural)
        drafts += [modifiers.said_by_title(tree, title, is_past) for title in titles]
        return [*drafts, *modifiers.said_of_name(tree, noun, is_past)]

    def _is_past_around(self, noun: int) -> bool:
        """Whether the clause that a noun stands in is about the past."""
        tree, verb = self.tree, noun
        while tree.heads[verb] != verb and not (tree.is_verb(verb) and tree.is_finite(verb)):
            verb = tree.heads[verb]
        return tree.is_verb(verb) and tree.is_past(verb)

    def _antecedent(self, noun: int, clause: int) -> Items:
        about = modifiers.antecedent(self.tree, noun, clause)
        if about is None:
            raise Unsure
        return about

    def _apposition(self, noun: int, other: int, is_past: bool) -> Iterable[Draft]:
        tree = self.tree
        words = (n for n in modifiers.noun_phrase(tree, noun) if n not in tree.brackets)
        name = modifiers.defined(tree, tree.trim(words))
        verb = be(is_past, tree.tags[noun] in ("NNS", "NNPS"))
        nodes = set(tree.trim(modifiers.without_modifiers(tree, tree.subtree(other))))
        for part in self._parts(nodes, None, nodes):
            draft = self._draft(part, None)
            first = next(x for x in draft.items if isinstance(x, int))
            bare = tree.tags[other] == "NN" and not tree.of(other, "det", "poss")
            needs = bare and draft.items[0] == first and tree.tags[first] not in ("NNP", "CD")
            put_in = (article(tree.words[first]),) if needs and tree.lower[first] != "one" else ()
            items = (*name, verb, *put_in, *draft.items)
            yield Draft(items, frozenset(x for x in items if isinstance(x, int)) | draft.covers)

    def _relative(self, noun: int, clause: int) -> list[Draft]:
        tree = self.tree
        about = self._antecedent(noun, clause)
        word = modifiers.relative_word(tree, clause)
        low = tree.lower[word] if word is not None else ""
        if low == "whose":
            owner: Items = (*about, "'s")
            return [
                Draft(sum((owner if x == word else (x,) for x in d.items), ()), d.covers)
                for d in self._clause(clause)
            ]
        if word is not None and modifiers.is_with_preposition(tree, clause, word):
            drafts = self._clause(clause, dropped=word - 1)
            return [Draft((*d.items, word - 1, *about), d.covers) for d in drafts]
        if low != "where":
            return self._clause(clause, about, dropped=word)
        place: Items = (modifiers.place_of(tree, noun), *about)
        return [Draft(place + d.items, d.covers) for d in self._clause(clause, dropped=word)]
