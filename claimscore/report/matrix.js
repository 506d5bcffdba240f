  /* Matrices: a grid to move through, and beside it what the cell under the pointer holds. */
  const NAMES = { E: "entailment", N: "neutral", C: "contradiction", "-": "not judged" };
  const TAGS = { a: "A", b: "B", common: "AB", summary: "S", source: "D" };
  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  // A side is `a` or, of blocks, `source.sentence`: the text and how it is cut.
  const tag = (side, index) => (TAGS[side.split(".")[0]] || side.slice(0, 8) + " ") + (index + 1);

  function probabilities(code, cell) {
    if (!code || code.startsWith("__", cell * 4)) return null;
    const at = (place) => ALPHABET.indexOf(code[place]) * 64 + ALPHABET.indexOf(code[place + 1]);
    const entailment = at(cell * 4), contradiction = at(cell * 4 + 2);
    return [entailment, Math.max(0, 1000 - entailment - contradiction), contradiction];
  }

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
    const places = new Map(cells.map((found, number) => [found, number]));
    let current = -1;
    const mark = (number, on) => {
      const [row, column] = [Math.floor(number / columns), number % columns];
      cells[number].classList.toggle("on", on);
      lines.rows[row].cells[0].classList.toggle("on", on);
      table.tHead.rows[0].cells[column + 1].classList.toggle("on", on);
      look(row, column, on);
    };
    const turn = (number) => {
      if (number === undefined || number === current) return;
      if (current >= 0) mark(current, false);
      current = number;
      mark(current, true);
    };
    const placeOf = (event) => places.get(event.target.closest("td"));
    table.addEventListener("mouseover", (event) => turn(placeOf(event)));
    table.addEventListener("click", (event) => { if (placeOf(event) !== undefined) event.target.closest("td").focus(); });
    table.addEventListener("focusin", (event) => {
      const number = placeOf(event);
      if (number === undefined) return;
      for (const found of table.querySelectorAll('td[tabindex="0"]')) found.tabIndex = -1;
      cells[number].tabIndex = 0;
      turn(number);
    });
    table.addEventListener("keydown", (event) => {
      const number = placeOf(event);
      const column = number % columns;
      const next = { ArrowRight: column < columns - 1 ? number + 1 : number, ArrowLeft: column ? number - 1 : number,
        ArrowDown: number + columns, ArrowUp: number - columns, Home: number - column, End: number - column + columns - 1 }[event.key];
      if (number === undefined || next === undefined) return;
      event.preventDefault();
      if (cells[next]) cells[next].focus();
    });
    return table;
  }

  function readoutOf(record, matrix, row, column) {
    const cell = row * matrix.size[1] + column;
    const [one, two] = [tag(matrix.rows, row), tag(matrix.columns, column)];
    const unit = (side, index) => {
      const texts = record.blocks[side] || (record.sides.find((found) => found.side === side) || { claims: [] }).claims;
      return texts[index] || "";
    };
    const label = matrix.labels[cell];
    const line = (name, p) => p && el("tr", {}, el("th", { scope: "row" }, name), ...p.map((value) =>
      el("td", { class: value === Math.max(...p) ? "num top" : "num" }, (value / 1000).toFixed(3))));
    return [
      el("p", { class: "what" }, one + " with " + two + ": ", el("b", { class: label }, NAMES[label])),
      el("p", { class: "pair" }, el("span", { class: "tag" }, one), el("span", { dir: "auto" }, unit(matrix.rows, row))),
      el("p", { class: "pair" }, el("span", { class: "tag" }, two), el("span", { dir: "auto" }, unit(matrix.columns, column))),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Direction"),
        ...["Entailment", "Neutral", "Contradiction"].map((name) => el("th", { scope: "col", class: "num" }, name)))),
      el("tbody", {}, line(one + " → " + two, probabilities(matrix.forward, cell)), line(two + " → " + one, probabilities(matrix.backward, cell)))),
    ];
  }

  const tooMany = (matrix, name) => el("p", { class: "note" }, matrix.left_out === "page"
    ? "This file holds as much as it may; these " + matrix.size[0] + " × " + matrix.size[1] + " pairs are in the table " + name + "."
    : matrix.size[0] + " × " + matrix.size[1] + " pairs are too many to draw; they are in the table " + name + ".");

  function labelGrid(record, matrix, heading) {
    const [rows, columns] = matrix.size;
    const count = (label) => [...matrix.labels].filter((found) => found === label).length;
    const legend = el("ul", { class: "legend" }, ...Object.keys(NAMES).filter((label) => label !== "-" || count(label)).map((label) =>
      el("li", {}, el("b", { class: label, "aria-hidden": "true" }, label), NAMES[label] + " " + count(label))));
    const readout = el("div", { class: "readout", "aria-live": "polite" },
      el("p", { class: "hint" }, "Point at a cell, or move through the cells with the arrow keys, to read the two texts and what the model said of them."),
      matrix.forward && matrix.backward ? el("p", { class: "hint" }, "A pair is entailment or contradiction where at least one direction says so and the other does not say the opposite.") : null);
    const table = gridOf({
      size: [rows, columns],
      label: heading,
      kind: columns <= 16 ? "matrix roomy" : "matrix",
      rowHead: (row) => el("th", { scope: "row" }, tag(matrix.rows, row)),
      columnHead: (column) => el("th", { scope: "col" }, tag(matrix.columns, column)),
      cell: (row, column) => {
        const label = matrix.labels[row * columns + column];
        return el("td", { class: label, "aria-label": tag(matrix.rows, row) + " with " + tag(matrix.columns, column) + ": " + NAMES[label] }, label);
      },
      look: (row, column, on) => {
        for (const key of [matrix.rows + ":" + row, matrix.columns + ":" + column]) {
          for (const item of article.querySelectorAll("[data-claim]")) {
            if (item.dataset.claim === key) item.classList.toggle("on", on);
          }
        }
        if (on) readout.replaceChildren(...readoutOf(record, matrix, row, column));
      },
    });
    return [legend, el("div", { class: "matrix-row" }, el("div", { class: "scroll tall" }, table), readout)];
  }

  function matrixOf(record, matrix) {
    const heading = "Claim pairs: rows " + columnOf(record, matrix.rows) + ", columns " + columnOf(record, matrix.columns);
    return el("section", { class: "panel" }, el("h4", {}, heading),
      ...(matrix.labels ? labelGrid(record, matrix, heading) : [tooMany(matrix, "nli")]));
  }

  // Each is drawn when it is opened: a document has a hundred blocks, and may be cut in many ways.
  function blockMatrixOf(record, matrix, number) {
    const named = (side) => { const [text, cut] = side.split("."); return text + " by " + cut.replaceAll("_", " "); };
    const heading = "Block pairs: rows " + named(matrix.rows) + ", columns " + named(matrix.columns);
    const box = el("details", { class: "panel" }, el("summary", {}, heading + " (" + matrix.size[0] + " × " + matrix.size[1] + ")"));
    const draw = () => {
      if (box.children.length === 1) box.append(...(matrix.labels ? labelGrid(record, matrix, heading) : [tooMany(matrix, "block_nli")]));
    };
    box.addEventListener("toggle", draw);
    if (number === 0) { box.open = true; draw(); }
    return box;
  }
