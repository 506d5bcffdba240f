/* Label matrices: claims with claims (CASPR), blocks with blocks (SummaC). */
import { el, labelled, option } from "./dom.js";
import { gridPanel, pairLine, shadeOf } from "./grid.js";
import { columnOf, pointOut, probabilities, tag } from "./sentences.js";

const NAMES = { E: "entailment", N: "neutral", C: "contradiction", "-": "not judged" };
const SHOWN = { labels: "labels", entailment: "P(entailment)", contradiction: "P(contradiction)" };

function unitsOf(record, side) {
  return record.blocks[side] || (record.sides.find((found) => found.side === side) || { claims: [] }).claims;
}

// Of the two directions of a cell the larger probability; null where there is none.
function largest(matrix, cell, which) {
  const known = [matrix.forward, matrix.backward].map((code) => probabilities(code, cell)).filter(Boolean);
  return known.length ? Math.max(...known.map((p) => p[which])) : null;
}

function readoutOf(record, matrix, row, column) {
  const cell = row * matrix.size[1] + column;
  const [one, two] = [tag(matrix.rows, row), tag(matrix.columns, column)];
  const label = matrix.labels[cell];
  const line = (name, p) => p && el("tr", {}, el("th", { scope: "row" }, name), ...p.map((value) =>
    el("td", { class: value === Math.max(...p) ? "num most" : "num" }, (value / 1000).toFixed(3))));
  return [
    el("p", { class: "what" }, one + " with " + two + ": ", el("b", { class: label }, NAMES[label])),
    pairLine(one, unitsOf(record, matrix.rows)[row]), pairLine(two, unitsOf(record, matrix.columns)[column]),
    el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Direction"),
      ...["Entailment", "Neutral", "Contradiction"].map((name) => el("th", { scope: "col", class: "num" }, name)))),
    el("tbody", {}, line(one + " → " + two, probabilities(matrix.forward, cell)), line(two + " → " + one, probabilities(matrix.backward, cell)))),
  ];
}

export const tooMany = (matrix, name) => el("p", { class: "note" },
  matrix.size[0] + " × " + matrix.size[1] + " pairs are too many to draw; they are in the table " + name + ".");

// How a cell is coloured and what stands in it, as labels or as a probability.
function faceOf(matrix, cell, shown) {
  if (shown === "labels") return { shade: { E: "e", N: "n", C: "c" }[matrix.labels[cell]] || "h0", kind: matrix.labels[cell], said: matrix.labels[cell] };
  const value = largest(matrix, cell, shown === "entailment" ? 0 : 2);
  return value === null ? { shade: "h0", kind: "h0", said: "-" } : { shade: shadeOf(value), kind: shadeOf(value), said: (value / 1000).toFixed(2).replace(/^0/, "") };
}

function matrixRows(record, matrix) {
  const [rows, columns] = [unitsOf(record, matrix.rows), unitsOf(record, matrix.columns)];
  const three = (code, cell) => (probabilities(code, cell) || [null, null, null]).map((value) => (value === null ? null : value / 1000));
  return [["row", "column", "row text", "column text", "label", ...["row to column", "column to row"].flatMap((way) => ["entailment", "neutral", "contradiction"].map((name) => name + " (" + way + ")"))],
    ...[...matrix.labels].map((label, cell) => {
      const [row, column] = [Math.floor(cell / matrix.size[1]), cell % matrix.size[1]];
      return [tag(matrix.rows, row), tag(matrix.columns, column), rows[row] ?? "", columns[column] ?? "", NAMES[label], ...three(matrix.forward, cell), ...three(matrix.backward, cell)];
    })];
}

function labelGrid(record, matrix, heading) {
  const columns = matrix.size[1];
  const count = (label) => [...matrix.labels].filter((found) => found === label).length;
  const legend = el("ul", { class: "legend" }, ...Object.keys(NAMES).filter((label) => label !== "-" || count(label)).map((label) =>
    el("li", {}, el("b", { class: label, "aria-hidden": "true" }, label), NAMES[label] + " " + count(label))));
  const named = unitsOf(record, matrix.rows);
  let shown = "labels";
  const { cells, parts } = gridPanel({
    hints: ["Point at a cell, or move through the cells with the arrow keys, to read the two texts and what the model said of them.",
      matrix.forward && matrix.backward && "A pair is entailment or contradiction where at least one direction says so and the other does not say the opposite. A probability is the larger of the two directions."],
    size: matrix.size,
    label: heading,
    kind: "matrix named" + (columns <= 16 ? " roomy" : ""),
    rowHead: (row) => el("th", { scope: "row" }, el("span", { class: "name", dir: "auto" }, named[row] || ""), el("span", { class: "tag" }, tag(matrix.rows, row))),
    columnHead: (column) => el("th", { scope: "col" }, tag(matrix.columns, column)),
    cell: (row, column) => {
      const label = matrix.labels[row * columns + column];
      return el("td", { class: label, "aria-label": tag(matrix.rows, row) + " with " + tag(matrix.columns, column) + ": " + NAMES[label] }, label);
    },
    look: (row, column, on) => {
      pointOut(matrix.rows, row, on);
      pointOut(matrix.columns, column, on);
    },
    told: (row, column) => readoutOf(record, matrix, row, column),
    rowName: (row) => tag(matrix.rows, row) + (named[row] ? " " + named[row] : ""),
    columnName: (column) => tag(matrix.columns, column),
    shade: (cell) => faceOf(matrix, cell, shown).shade,
    shown: (cell) => faceOf(matrix, cell, shown).said,
    rows: () => matrixRows(record, matrix),
  });
  const control = el("select", {}, ...Object.entries(SHOWN).map(([value, label]) => option(value, label)));
  control.addEventListener("change", () => {
    shown = control.value;
    cells.forEach((cell, at) => {
      const face = faceOf(matrix, at, shown);
      cell.className = face.kind + (cell.classList.contains("on") ? " on" : "");
      cell.textContent = face.said;
    });
  });
  return [el("div", { class: "matrix-bar" }, legend, labelled("Show", control)), ...parts];
}

export function matrixOf(record, matrix) {
  const heading = "Claim pairs: rows " + columnOf(record, matrix.rows) + ", columns " + columnOf(record, matrix.columns);
  return el("section", { class: "panel" }, el("h3", {}, heading),
    ...(matrix.labels ? labelGrid(record, matrix, heading) : [tooMany(matrix, "nli")]));
}

// Each is drawn when it is opened: a document has a hundred blocks, and may be cut in many ways.
export function blockMatrixOf(record, matrix, place) {
  const named = (side) => { const [text, cut] = side.split("."); return text + " by " + cut.replaceAll("_", " "); };
  const heading = "Block pairs: rows " + named(matrix.rows) + ", columns " + named(matrix.columns);
  const box = el("details", { class: "panel" }, el("summary", {}, heading + " (" + matrix.size[0] + " × " + matrix.size[1] + ")"));
  const fill = () => {
    if (box.children.length === 1) box.append(...(matrix.labels ? labelGrid(record, matrix, heading) : [tooMany(matrix, "block_nli")]));
  };
  box.addEventListener("toggle", fill);
  if (place === 0) { box.open = true; fill(); }
  return box;
}
