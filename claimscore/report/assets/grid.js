/* Tables of cells, as elements and as pictures. */
import { draw } from "./charts.js";
import { el } from "./dom.js";
import { takeAway } from "./download.js";
import { loadLibrary } from "./packed.js";
import { page } from "./selection.js";

/* A table of cells, of which one at a time is looked at: by pointer, by click, by arrow keys.
   `cell(row, column)` gives a td; `look(row, column, on)` is told which one it is. */
function gridOf({ size, label, kind, rowHead, columnHead, cell, look }) {
  const [rows, columns] = size;
  const table = el("table", { class: kind, role: "grid", "aria-label": label });
  table.append(el("thead", {}, el("tr", {}, el("td", { class: "corner" }), ...Array.from({ length: columns }, (_, column) => columnHead(column)))));
  const cells = [];
  const lines = el("tbody");
  for (let row = 0; row < rows; row += 1) {
    const line = el("tr", {}, rowHead(row));
    for (let column = 0; column < columns; column += 1) {
      const made = cell(row, column);
      made.setAttribute("role", "gridcell");
      made.tabIndex = cells.length ? -1 : 0;
      cells.push(made);
      line.append(made);
    }
    lines.append(line);
  }
  table.append(lines);
  const places = new Map(cells.map((made, at) => [made, at]));
  let current = -1;
  const mark = (at, on) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    cells[at].classList.toggle("on", on);
    lines.rows[row].cells[0].classList.toggle("on", on);
    table.tHead.rows[0].cells[column + 1].classList.toggle("on", on);
    look(row, column, on);
  };
  const turn = (at) => {
    if (at === undefined || at === current) return;
    if (current >= 0) mark(current, false);
    current = at;
    mark(current, true);
  };
  const placeOf = (event) => places.get(event.target.closest("td"));
  table.addEventListener("mouseover", (event) => turn(placeOf(event)));
  table.addEventListener("click", (event) => { if (placeOf(event) !== undefined) event.target.closest("td").focus(); });
  table.addEventListener("focusin", (event) => {
    const at = placeOf(event);
    if (at === undefined) return;
    for (const made of table.querySelectorAll('td[tabindex="0"]')) made.tabIndex = -1;
    cells[at].tabIndex = 0;
    turn(at);
  });
  table.addEventListener("keydown", (event) => {
    const at = placeOf(event);
    const column = at % columns;
    const next = { ArrowRight: column < columns - 1 ? at + 1 : at, ArrowLeft: column ? at - 1 : at,
      ArrowDown: at + columns, ArrowUp: at - columns, Home: at - column, End: at - column + columns - 1 }[event.key];
    if (at === undefined || next === undefined) return;
    event.preventDefault();
    if (cells[next]) cells[next].focus();
  });
  return { table, cells };
}

/* The same as a picture, for a paper: made when it is asked for. */
function gridPicture({ size, name, rowName, columnName, shade, shown }) {
  const [rows, columns] = size;
  const cells = Array.from({ length: rows * columns }, (_, at) => ({ row: Math.floor(at / columns), column: at % columns, at }));
  const side = columns > 40 || rows > 40 ? 12 : 30;
  const cut = (text) => (text.length > 44 ? text.slice(0, 43) + "…" : text);
  const longest = (count, label) => Math.min(290, 14 + 6.3 * Math.max(...Array.from({ length: count }, (_, at) => cut(label(at)).length)));
  const [left, top] = [longest(rows, rowName), longest(columns, columnName)];
  return draw({
    width: left + columns * side + 12, height: top + rows * side + 12, marginLeft: left, marginTop: top, marginRight: 12, marginBottom: 12,
    ariaLabel: name, padding: 0.05,
    x: { axis: "top", label: null, tickSize: 0, tickRotate: -90, tickFormat: (at) => cut(columnName(at)) },
    y: { label: null, tickSize: 0, tickFormat: (at) => cut(rowName(at)) },
    marks: [
      Plot.cell(cells, { x: "column", y: "row", rx: 2, fill: (cell) => "var(--" + shade(cell.at) + ")" }),
      side > 20 ? Plot.text(cells, { x: "column", y: "row", text: (cell) => shown(cell.at), fontSize: 9.5, fill: (cell) => "var(--" + inkOn(shade(cell.at)) + ")" }) : null,
    ],
  });
}

const inkOn = (shade) => ({ e: "e-ink", n: "n-ink", c: "c-ink" })[shade] || (Number(shade.slice(1)) <= 3 ? "heat-low" : Number(shade.slice(1)) <= 8 ? "heat-mid" : "heat-high");
export const shadeOf = (thousandths) => "h" + Math.min(10, Math.floor(thousandths / 100));

export const pairLine = (name, text) => el("p", { class: "pair" }, el("span", { class: "tag" }, name), el("span", { dir: "auto" }, text || ""));

/* A grid beside what it tells of the cell that is looked at, and buttons to take it away. `hints` stand
   there at first, `told(row, column)` gives what stands there then; the rest is for `gridOf` and `gridPicture`. */
export function gridPanel({ hints, told, look, rows, ...grid }) {
  const readout = el("div", { class: "readout", role: "status" }, ...hints.filter(Boolean).map((hint) => el("p", { class: "hint" }, hint)));
  const { table, cells } = gridOf({ ...grid, look: (row, column, on) => {
    look(row, column, on);
    if (on) readout.replaceChildren(...told(row, column));
  } });
  const name = grid.label + ", record " + page.data.ids[page.current];
  const svg = async () => {
    await loadLibrary();
    return gridPicture({ ...grid, name });
  };
  return { cells, parts: [el("div", { class: "matrix-row" }, el("div", { class: "scroll tall" }, table), readout), takeAway(name, { rows, svg })] };
}
