/* The facts of a record (FactSim, figure 4): missing ones, unsupported ones, and how alike they are. */
import { callButton } from "./calls.js";
import { el } from "./dom.js";
import { gridPanel, pairLine, shadeOf } from "./grid.js";
import { tooMany } from "./matrix.js";
import { ALPHABET, pointOut } from "./sentences.js";

const FACT_TAGS = { source: "D", summary: "S" };

function factCells(facts) {
  if (!facts.cells) return null;
  return Array.from({ length: facts.size[0] * facts.size[1] }, (_, cell) =>
    ALPHABET.indexOf(facts.cells[2 * cell]) * 64 + ALPHABET.indexOf(facts.cells[2 * cell + 1]));
}

const similarity = (thousandths) => (thousandths / 1000).toFixed(2);

// The best match of a fact: [its place on the other side, thousandths]; of equals the first.
function bestMatch(facts, cells, side, index) {
  const [rows, columns] = facts.size;
  const n = side === "source" ? columns : rows;
  let best = [0, -1];
  for (let other = 0; other < n; other += 1) {
    const value = side === "source" ? cells[index * columns + other] : cells[other * columns + index];
    if (value > best[1]) best = [other, value];
  }
  return best;
}

function factList(facts, cells, side, absent, title) {
  const other = side === "source" ? "summary" : "source";
  const lacking = new Set(absent);
  const box = el("section", {}, el("h4", {}, title));
  if (!facts[side].length) box.append(el("p", { class: "hint" }, "None."));
  const item = (_, index) => {
    const line = el("li", { "data-unit": side + ":" + index, class: lacking.has(index) ? "absent" : "" },
      el("span", { class: "tag" }, FACT_TAGS[side] + (index + 1)), el("span", { dir: "auto", class: "fact" }, facts[side][index]));
    if (cells) {
      const [place, value] = bestMatch(facts, cells, side, index);
      line.append(el("span", { class: "nearest", dir: "auto" }, similarity(value) + " " + facts[other][place]));
    }
    return line;
  };
  if (facts[side].length) box.append(el("ol", { class: "claims facts-list", tabindex: "0", "aria-label": title }, ...facts[side].map(item)));
  return box;
}

function factRows(facts, cells) {
  return [["source fact", ...facts.summary], ...facts.source.map((fact, row) => [fact, ...facts.summary.map((_, column) => cells[row * facts.size[1] + column] / 1000)])];
}

// The tag of a column stands next to its cells, below the name.
const nearCells = (scope, tag, name) => (scope === "col" ? [name, tag] : [tag, name]);

function factGrid(facts, cells) {
  const [rows, columns] = facts.size;
  const absent = { source: new Set(facts.missing), summary: new Set(facts.unsupported) };
  const best = Array.from({ length: rows }, (_, row) => bestMatch(facts, cells, "source", row)[0]);
  const bestOfColumn = Array.from({ length: columns }, (_, column) => bestMatch(facts, cells, "summary", column)[0]);
  const head = (side, index, scope) => el("th", { scope, class: absent[side].has(index) ? "absent" : "", title: facts[side][index] },
    ...nearCells(scope, el("span", { class: "tag" }, FACT_TAGS[side] + (index + 1)), el("span", { class: "name", dir: "auto" }, facts[side][index])));
  return gridPanel({
    hints: ["Point at a cell, or move through the cells with the arrow keys, to read the two facts. Outlined: the best match of a row or a column. Coloured names: missing or unsupported."],
    size: facts.size,
    label: "Similarity of facts: rows source, columns summary",
    kind: "matrix heat",
    rowHead: (row) => head("source", row, "row"),
    columnHead: (column) => head("summary", column, "col"),
    cell: (row, column) => {
      const value = cells[row * columns + column];
      const top = best[row] === column || bestOfColumn[column] === row;
      return el("td", { class: shadeOf(value) + (top ? " best" : ""),
        "aria-label": facts.source[row] + " with " + facts.summary[column] + ": " + similarity(value) }, similarity(value).replace(/^0/, ""));
    },
    look: (row, column, on) => {
      pointOut("source", row, on);
      pointOut("summary", column, on);
    },
    told: (row, column) => [el("p", { class: "what" }, "Similarity " + (cells[row * columns + column] / 1000).toFixed(3)),
      pairLine("D" + (row + 1), facts.source[row]), pairLine("S" + (column + 1), facts.summary[column])],
    rowName: (row) => facts.source[row],
    columnName: (column) => facts.summary[column],
    shade: (cell) => shadeOf(cells[cell]),
    shown: (cell) => similarity(cells[cell]).replace(/^0/, ""),
    rows: () => factRows(facts, cells),
  }).parts;
}

export function factsOf(record) {
  const facts = record.facts;
  const panel = el("section", { class: "panel of-facts" }, el("h3", {}, "Facts: rows source, columns summary"));
  const cells = factCells(facts);
  if (facts.missing) {
    panel.append(el("p", { class: "hint" }, "A fact is missing or unsupported where its best match on the other side is below " + facts.match
      + ". The similarity is the cosine of the two facts' embeddings, 0 where that is negative; the score does not depend on the limit."),
    el("div", { class: "fact-lists" },
      factList(facts, cells, "source", facts.missing, "Facts of the source: " + facts.missing.length + " of " + facts.source.length + " missing in the summary"),
      factList(facts, cells, "summary", facts.unsupported, "Facts of the summary: " + facts.unsupported.length + " of " + facts.summary.length + " unsupported by the source")));
  } else {
    panel.append(el("div", { class: "fact-lists" }, factList(facts, null, "source", [], "Facts of the source"), factList(facts, null, "summary", [], "Facts of the summary")));
  }
  const asked = record.calls.map((call, at) => [call, at]).filter(([call]) => call.task === "facts");
  const same = (side) => asked.filter(([call]) => call.side === side);
  const named = ([call, at]) => callButton(record, at, call.side + (same(call.side).length > 1 ? " " + (same(call.side).findIndex((one) => one[1] === at) + 1) : ""));
  if (asked.length) panel.append(el("p", { class: "asked" }, el("span", { class: "soft" }, "Prompts and answers:"), ...asked.map(named)));
  if (cells) panel.append(...factGrid(facts, cells));
  else if (facts.left_out) panel.append(tooMany(facts, "similarities"));
  return panel;
}
