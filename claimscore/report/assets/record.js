/* One record: its texts, its claims, its matrices, and where they come from. */
import { callButton, callsOf } from "./calls.js";
import { button, byId, el, fixed, whole } from "./dom.js";
import { factsOf } from "./facts.js";
import { blockMatrixOf, matrixOf } from "./matrix.js";
import { block } from "./packed.js";
import { addressOf, page } from "./selection.js";
import { blockMatrixFor, claimLabels, cutAt, partnerOf, sentenceLabel, supportLabel, supportOf, tag, textOf, VERDICTS } from "./sentences.js";
import { evidenceByClaim, supportFor, supportLabels, supportOfClaims, supportWords, textTag } from "./support.js";

export const article = byId("cs-record");

async function detailsOf(index) {
  const at = Math.floor(index / page.data.block);
  const [texts, more] = await Promise.all([block("cs-texts-" + at), block("cs-more-" + at)]);
  return { ...texts[index % page.data.block], ...more[index % page.data.block] };
}

function valuesOf(index, record) {
  return el("dl", { class: "values" }, ...page.data.metrics.map((name, metric) => {
    const value = page.data.values[metric][index];
    const why = record.reasons[metric];
    return el("div", {}, el("dt", {}, name), value === null
      ? el("dd", { class: "null", dir: "auto" }, why ? "null: " + why : "not scored")
      : el("dd", {}, fixed(value)));
  }));
}

function failuresOf(record) {
  if (!record.failures.length) return null;
  return el("div", { class: "panel failed" }, el("h3", {}, "What failed"),
    el("ul", {}, ...record.failures.map(([stage, side, index, kind, message, attempts, raw]) => {
      const where = [stage, side, index === null ? null : String(index + 1)].filter((part) => part !== null).join(" ");
      const tries = attempts > 1 ? " (" + attempts + " attempts)" : "";
      return el("li", { dir: "auto" }, where + ", " + kind + ": " + message + tries,
        raw === null ? null : el("details", {}, el("summary", {}, "Last answer"), el("code", { dir: "auto" }, raw)));
    })));
}

function legendFor(words, used) {
  return el("ul", { class: "legend" }, ...Object.entries(words).filter(([label]) => used.has(label)).map(([label, meaning]) =>
    el("li", {}, el("b", { class: label, "aria-hidden": "true" }), meaning)));
}

function sentence(text, label, words, note) {
  const line = el("p", { class: "sentence", dir: "auto" }, el("span", { class: label ? "tint " + label : "" }, text));
  if (label) line.append(" ", el("span", { class: "verdict" }, note || words[label]));
  return line;
}

const marksOf = (marks) => (marks || []).flatMap((words) => [" ", el("span", { class: "mark" }, words)]);

// Why a claim has its label: the claim, or the words of the source, that say or contradict it.
function reasonOf(record, side, label, index, evidence) {
  const partner = evidence ? null : partnerOf(record, side.side, index, label);
  const [name, text] = partner
    ? [tag(...partner), record.sides.find((one) => one.side === partner[0])?.claims[partner[1]]]
    : evidence?.get(index) || ["", ""];
  if (!text) return null;
  return el("span", { class: "reason" }, { C: "contradicted by ", E: evidence ? "supported by " : "said by " }[label] + name, name ? " " : "", el("q", { dir: "auto" }, text));
}

function claimItem(record, side, labels, words, evidence, index) {
  const label = labels?.[index];
  const marks = side.marks?.[index];
  const item = el("li", { "data-unit": side.side + ":" + index, class: marks ? "marked" : "" }, el("span", { class: "tag " + (label || "") }, tag(side.side, index)),
    el("span", {}, el("span", { dir: "auto" }, side.claims[index]), ...marksOf(marks), reasonOf(record, side, label, index, evidence)));
  if (label) item.append(el("span", { class: "sr" }, words[label]));
  return item;
}

// Sentences with their claims beneath.
function claimedText(record, side) {
  const support = supportFor(record, side.side);
  const labels = support ? supportLabels(support) : claimLabels(record, side.side);
  const evidence = support && evidenceByClaim(support);
  const words = support ? { ...VERDICTS.claims, ...supportWords(support) } : VERDICTS.claims;
  const used = new Set();
  const parts = side.segments.flatMap(([text, claims], place) => {
    const label = labels && claims.length ? sentenceLabel(labels, claims) : null;
    if (label) [label, ...claims.map((index) => labels[index])].forEach((one) => used.add(one));
    const asked = [...new Set(claims.map((index) => side.calls?.[index] ?? null))].filter((at) => record.calls[at]);
    const line = sentence(text, label, words);
    line.append(...marksOf(side.segment_marks?.[place]));
    return [line,
      claims.length ? el("ol", { class: "claims" }, ...claims.map((index) => claimItem(record, side, labels, words, evidence, index))) : null,
      asked.length ? el("p", { class: "asked" }, ...asked.map((at, n) => callButton(record, at, asked.length > 1 ? "Prompt and answer " + (n + 1) : "Prompt and answer"))) : null];
  });
  return [used.size ? legendFor(words, used) : null, ...parts];
}

// A text by its blocks: coloured by support where it is judged, only marked where it judges.
function blockText(record, side, text, matrix) {
  const name = textOf(matrix.rows) === side ? matrix.rows : matrix.columns;
  const parts = cutAt(text, record.blocks[name]);
  if (!parts) return null;
  const support = side === "source" ? null : supportOf(matrix, side);
  const used = new Set();
  const lines = parts.map(([part, index]) => {
    if (index === null) return part.trim() ? el("span", {}, part) : part;
    const unit = el("span", { "data-unit": name + ":" + index, class: "block" }, el("sup", { class: "tag" }, tag(name, index)), part);
    const found = support?.[index];
    if (!found) return unit;
    const label = supportLabel(found);
    used.add(label);
    unit.classList.add("tint", label);
    return el("span", { class: "judged" }, unit, " ", el("span", { class: "verdict" }, VERDICTS.blocks[label] + " (entailment " + found.entailment.toFixed(2) + ", contradiction " + found.contradiction.toFixed(2) + ")"), el("br"));
  });
  return [used.size ? legendFor(VERDICTS.blocks, used) : null, el("div", { class: "prose", dir: "auto" }, ...lines)];
}

const leftOut = (n) => (n ? el("p", { class: "hint" }, whole(n) + " more characters are not shown.") : null);

function sideOf(record, side) {
  const box = el("section", { class: "side", "data-texts": side.side }, el("h3", { dir: "auto" }, side.column));
  const matrix = side.claims.length ? null : blockMatrixFor(record, side.side);
  const byBlocks = matrix && blockText(record, side.side, side.segments.map((part) => part[0]).join(" "), matrix);
  box.append(...(byBlocks || claimedText(record, side)).filter(Boolean));
  if (!side.segments.length) box.append(el("p", { class: "note" }, "This text is empty."));
  if (!side.claims.length && page.data.claims) box.append(el("p", { class: "hint" }, "No claims."));
  box.append(leftOut(side.left_out) || "");
  return box;
}

// The source beside the summary; references, and the source of long pairs, are folded away.
function textsOf(record, [column, texts, more]) {
  const isSource = column === "source" || column === "sources";
  const matrix = isSource && blockMatrixFor(record, "source");
  const byBlocks = matrix && blockText(record, "source", texts.join("\n\n"), matrix);
  const several = texts.length > 1 && record.support.length;
  const parts = byBlocks ? byBlocks.filter(Boolean) : texts.map((text, place) => el("p", { class: "sentence", dir: "auto", "data-place": place },
    several ? el("span", { class: "tag" }, textTag(place) + " ") : null, text));
  if (!isSource) return el("details", { class: "panel" }, el("summary", {}, column), ...parts, leftOut(more));
  return el("section", { class: "side", "data-texts": "source" }, el("h3", {}, column), el("div", { class: "long", tabindex: "0", role: "region", "aria-label": column }, ...parts), leftOut(more));
}

function keyValues(label, pairs) {
  if (!pairs.length) return null;
  return el("details", { class: "panel" }, el("summary", {}, label), el("table", { class: "kv" }, el("tbody", {},
    ...pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, name), el("td", { dir: "auto" }, value))))));
}

function parts(record) {
  const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value, (_, one) => (typeof one === "number" && !Number.isInteger(one) ? Number(one.toPrecision(6)) : one), 1).replace(/\n\s*/g, " "));
  return record.components.flatMap((one, metric) =>
    Object.entries(one || {}).map(([name, value]) => [page.data.metrics[metric] + " " + name, plain(value)]));
}

// Hides the claims that no check marked.
function markedOnly(record) {
  const n = record.sides.reduce((sum, side) => sum + Object.keys(side.marks || {}).length, 0);
  article.classList.remove("only-marked");
  if (!n) return null;
  const only = el("input", { type: "checkbox" });
  only.addEventListener("change", () => article.classList.toggle("only-marked", only.checked));
  return el("label", { class: "only" }, only, "Only claims with a finding (" + whole(n) + ")");
}

function navigation(index) {
  const place = page.order.indexOf(index);
  const go = (to, label) => {
    const step = button(label, () => { location.hash = addressOf(page.order[to]); });
    step.disabled = place < 0 || to < 0 || to >= page.order.length;
    return step;
  };
  return el("nav", { class: "bar", "aria-label": "Records" }, button("← All records", () => { location.hash = "#explore"; }),
    go(place - 1, "Previous"), go(place + 1, "Next"),
    el("span", { class: "place" }, place < 0 ? "" : whole(place + 1) + " of " + whole(page.order.length)));
}

export async function openRecord(index) {
  const record = await detailsOf(index);
  page.current = index;
  const title = el("h2", { tabindex: "-1", dir: "auto" }, page.data.ids[index]);
  const sources = record.texts.filter(([column]) => column !== "references");
  article.setAttribute("aria-label", "Record " + page.data.ids[index]);
  article.replaceChildren(...[
    navigation(index), title, valuesOf(index, record), failuresOf(record),
    record.left_out ? el("p", { class: "note" }, "This file holds as much as it may: matrices, verdicts, prompts and answers of this record are in the run directory and in the cache.") : null,
    markedOnly(record),
    el("div", { class: "sides" }, ...record.sides.map((side) => sideOf(record, side)), ...sources.map((text) => textsOf(record, text))),
    ...record.texts.filter((text) => !sources.includes(text) && !record.sides.some((side) => side.column === text[0])).map((text) => textsOf(record, text)),
    ...record.support.map((found) => supportOfClaims(record, found)),
    record.facts ? factsOf(record) : null,
    ...record.matrices.map((matrix) => matrixOf(record, matrix)),
    ...record.block_matrices.map((matrix, place) => blockMatrixOf(record, matrix, place)),
    callsOf(record),
    keyValues("Parts of the scores", parts(record)),
    keyValues("Other columns of the record", record.other),
  ].filter(Boolean));
  title.focus({ preventScroll: true });
}
