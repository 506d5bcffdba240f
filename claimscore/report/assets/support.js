/* Claims with verdict and evidence, unsure and then unsupported ones first; of several texts also a grid of both. */
import { button, el, tableOf } from "./dom.js";
import { gridPanel, pairLine } from "./grid.js";
import { page } from "./selection.js";
import { columnOf, pointOut, tag } from "./sentences.js";

// A row is [claim, text, verdict, probability of support, evidence, votes]; verdicts in the order of a list.
const JUDGED = { C: "contradicted", N: "unmentioned", E: "supported" };
// Over several texts support counts before contradiction, and that before none.
const WEIGHT = { E: 2, C: 1, N: 0 };

export const textTag = (place) => "text " + (place + 1);
export const supportWords = ({ texts }) => ({ E: "supported by the " + texts, C: "contradicted by the " + texts, N: "unmentioned in the " + texts });
export const supportFor = (record, side) => record.support.find((found) => found.side === side && found.rows);

// Of each claim the row that decides.
function decisive(found) {
  const best = new Map();
  for (const row of found.rows) {
    const [now, weight] = [best.get(row[0]), WEIGHT[row[2]]];
    if (!now || weight > WEIGHT[now[2]] || (weight === WEIGHT[now[2]] && row[3] > now[3])) best.set(row[0], row);
  }
  return best;
}

/* Of each claim that is supported or contradicted the text that decides, and its words there. */
export function evidenceByClaim(found) {
  return new Map([...decisive(found)].filter(([, row]) => row[2] !== "N" && row[4])
    .map(([claim, row]) => [claim, [found.count > 1 ? textTag(row[1]) : "", row[4]]]));
}

export function supportLabels(found) {
  const labels = [];
  for (const [claim, row] of decisive(found)) labels[claim] = row[2];
  return labels;
}

// The first place of a text in an element, marked and scrolled to; numbers of blocks do not count.
function showIn(box, text) {
  for (const old of document.querySelectorAll("mark.evidence")) {
    const parent = old.parentNode;
    old.replaceWith(...old.childNodes);
    parent.normalize();
  }
  const nodes = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (node) => (node.parentElement.closest(".tag, .verdict") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  while (walker.nextNode()) nodes.push(walker.currentNode);
  const start = nodes.map((node) => node.data).join("").indexOf(text);
  if (start < 0) return false;
  let at = 0;
  let first = null;
  for (const node of nodes) {
    const [from, to] = [Math.max(0, start - at), Math.min(node.length, start + text.length - at)];
    at += node.length;
    if (from >= to) continue;
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    const mark = el("mark", { class: "evidence" });
    range.surroundContents(mark);
    first ||= mark;
  }
  first.scrollIntoView({ block: "center", behavior: "instant" });
  return true;
}

function evidenceOf(record, found, row) {
  const [claim, place, verdict, , text] = row;
  if (!text) return el("span", { class: "soft" }, "none");
  const said = el("span", { class: "hint", role: "status" });
  const show = button("Show", () => {
    const texts = [...document.querySelectorAll("[data-texts]")].find((box) => box.dataset.texts === found.texts);
    const part = texts?.querySelector('[data-place="' + Number(place) + '"]') || texts;
    said.textContent = part && showIn(part, text) ? "" : " It lies in a part that is not shown here.";
  }, { class: "small", "aria-label": "Show the evidence of claim " + (claim + 1) + " in the " + found.texts });
  return el("div", { class: "evidence-of" }, found.count > 1 ? el("span", { class: "tag" }, textTag(place)) : null,
    el("q", { dir: "auto", class: verdict === "N" ? "soft" : "" }, text), show, said);
}

function claimRows(record, found) {
  const claims = (record.sides.find((side) => side.side === found.side) || { claims: [] }).claims;
  const order = Object.keys(JUDGED);
  const sure = (row) => (found.unsure.includes(row[0]) ? found.unsure.indexOf(row[0]) : found.unsure.length);
  return [...decisive(found).values()]
    .sort((one, other) => sure(one) - sure(other) || order.indexOf(one[2]) - order.indexOf(other[2]) || one[0] - other[0])
    .map((row) => [row, claims[row[0]] || ""]);
}

function claimTable(record, found, heading) {
  const rows = claimRows(record, found);
  const line = ([row, claim]) => {
    const made = el("tr", { "data-unit": found.side + ":" + row[0] },
      el("th", { scope: "row" }, el("span", { class: "tag" }, tag(found.side, row[0])), el("span", { dir: "auto" }, claim)),
      el("td", {}, el("span", { class: "tint " + row[2] }, JUDGED[row[2]]), row[3] === null ? null : el("span", { class: "score" }, " " + row[3].toFixed(2)),
        found.unsure.includes(row[0]) ? el("span", { class: "mark" }, "unsure") : null, row[5] ? el("span", { class: "hint" }, " " + row[5]) : null),
      el("td", { class: "message" }, row[2] === "N" ? el("span", { class: "sr" }, "nearest: ") : null, evidenceOf(record, found, row)));
    made.addEventListener("mouseenter", () => pointOut(found.side, row[0], true));
    made.addEventListener("mouseleave", () => pointOut(found.side, row[0], false));
    return made;
  };
  return tableOf(heading, "support stack", ["Claim", "Verdict", "Evidence"], rows.map(line));
}

// Claims by texts, for reviews: which of them carry which claim.
function supportGrid(record, found, heading) {
  const ordered = claimRows(record, found);
  const places = [...new Set(found.rows.map((row) => row[1]))].sort((one, other) => one - other);
  const cells = new Map(found.rows.map((row) => [row[0] + ":" + row[1], row]));
  const rowAt = (row, column) => cells.get(ordered[row][0][0] + ":" + places[column]);
  const columns = places.length;
  const verdictAt = (at) => rowAt(Math.floor(at / columns), at % columns)?.[2];
  const { parts } = gridPanel({
    hints: ["Point at a cell, or move through the cells with the arrow keys, to read the claim and the evidence."],
    size: [ordered.length, columns],
    label: heading,
    kind: "matrix named" + (columns <= 16 ? " roomy" : ""),
    rowHead: (row) => el("th", { scope: "row" }, el("span", { class: "name", dir: "auto" }, ordered[row][1]), el("span", { class: "tag" }, tag(found.side, ordered[row][0][0]))),
    columnHead: (column) => el("th", { scope: "col", "aria-label": textTag(places[column]) }, String(places[column] + 1)),
    cell: (row, column) => {
      const verdict = rowAt(row, column)?.[2] || "-";
      return el("td", { class: verdict, "aria-label": tag(found.side, ordered[row][0][0]) + " by " + textTag(places[column]) + ": " + (JUDGED[verdict] || "not judged") }, verdict);
    },
    look: (row, column, on) => pointOut(found.side, ordered[row][0][0], on),
    told: (row, column) => {
      const [, , verdict, probability, evidence] = rowAt(row, column) || [0, 0, null, null, null];
      return [el("p", { class: "what" }, textTag(places[column]) + ": ", el("b", { class: verdict || "" }, JUDGED[verdict] || "not judged"), probability === null ? "" : " " + probability.toFixed(2)),
        pairLine(tag(found.side, ordered[row][0][0]), ordered[row][1]), evidence ? pairLine(textTag(places[column]), evidence) : ""];
    },
    rowName: (row) => ordered[row][1],
    columnName: (column) => textTag(places[column]),
    shade: (at) => ({ E: "e", C: "c" })[verdictAt(at)] || "n",
    shown: (at) => verdictAt(at) || "",
    rows: () => [["claim", "text", "verdict", "probability", "evidence"], ...found.rows.map((row) => [row[0] + 1, row[1] + 1, JUDGED[row[2]], row[3], row[4]])],
  });
  const legend = Object.entries(JUDGED).map(([label, meaning]) => el("li", {}, el("b", { class: label, "aria-hidden": "true" }, label), meaning));
  return [el("h4", {}, heading), el("ul", { class: "legend" }, ...legend), ...parts];
}

export function supportOfClaims(record, found) {
  const heading = "Claims of the " + columnOf(record, found.side) + ", and what the " + found.texts + " says of them";
  const panel = el("section", { class: "panel support-of" }, el("h3", {}, heading));
  const evidence = found.quotes ? "The evidence is quoted by it; what is not in the text is left out." : "The evidence of a claim without support is the sentence that shares most of its words.";
  panel.append(el("p", { class: "hint" }, "The number is the probability of support" + (found.quotes ? "" : ", supported from " + page.data.threshold.toFixed(2) + " on") + "; verifier: " + found.verifier + ". " + evidence),
    claimTable(record, found, heading));
  if (found.count > 1) panel.append(...supportGrid(record, found, "Which texts carry which claim"));
  return panel;
}
