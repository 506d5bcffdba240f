  /* The facts of a record (FactSim): which are missing, which are unsupported, and how alike they are. */
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

  function factList(facts, cells, side, indices, title, nothing) {
    const other = side === "source" ? "summary" : "source";
    const box = el("section", {}, el("h5", {}, title + " (" + indices.length + " of " + facts[side].length + ")"));
    if (!indices.length) box.append(el("p", { class: "hint" }, nothing));
    const item = (index) => {
      const line = el("li", {}, el("span", { class: "tag" }, FACT_TAGS[side] + (index + 1)), el("span", { dir: "auto", class: "fact" }, facts[side][index]));
      if (cells) {
        const [place, value] = bestMatch(facts, cells, side, index);
        line.append(el("span", { class: "nearest", dir: "auto" }, similarity(value) + " " + facts[other][place]));
      }
      return line;
    };
    if (indices.length) box.append(el("ol", { class: "claims facts-list", role: "list", tabindex: "0" }, ...indices.map(item)));
    return box;
  }

  function factGrid(facts, cells) {
    const [rows, columns] = facts.size;
    const absent = { source: new Set(facts.missing), summary: new Set(facts.unsupported) };
    const best = Array.from({ length: rows }, (_, row) => bestMatch(facts, cells, "source", row)[0]);
    const bestOfColumn = Array.from({ length: columns }, (_, column) => bestMatch(facts, cells, "summary", column)[0]);
    const head = (side, index, scope) => el("th", { scope, class: absent[side].has(index) ? "absent" : "", title: facts[side][index] },
      el("span", { class: "tag" }, FACT_TAGS[side] + (index + 1)), el("span", { class: "name", dir: "auto" }, facts[side][index]));
    const readout = el("div", { class: "readout", "aria-live": "polite" },
      el("p", { class: "hint" }, "Point at a cell, or move through the cells with the arrow keys, to read the two facts. Outlined: the best match of a row or a column. Coloured names: missing or unsupported."));
    const table = gridOf({
      size: facts.size,
      label: "Similarity of facts: rows source, columns summary",
      kind: "matrix heat",
      rowHead: (row) => head("source", row, "row"),
      columnHead: (column) => head("summary", column, "col"),
      cell: (row, column) => {
        const value = cells[row * columns + column];
        const top = best[row] === column || bestOfColumn[column] === row;
        return el("td", { class: "h" + Math.min(10, Math.floor(value / 100)) + (top ? " best" : ""),
          "aria-label": facts.source[row] + " with " + facts.summary[column] + ": " + similarity(value) }, similarity(value).replace(/^0/, ""));
      },
      look: (row, column, on) => {
        if (!on) return;
        readout.replaceChildren(
          el("p", { class: "what" }, "Similarity " + (cells[row * columns + column] / 1000).toFixed(3)),
          el("p", { class: "pair" }, el("span", { class: "tag" }, "D" + (row + 1)), el("span", { dir: "auto" }, facts.source[row])),
          el("p", { class: "pair" }, el("span", { class: "tag" }, "S" + (column + 1)), el("span", { dir: "auto" }, facts.summary[column])));
      },
    });
    return el("div", { class: "matrix-row" }, el("div", { class: "scroll tall" }, table), readout);
  }

  function factsOf(facts) {
    const panel = el("section", { class: "panel of-facts" }, el("h4", {}, "Facts: rows source, columns summary"));
    if (!facts.source) {
      panel.append(el("p", { class: "note" }, "This file holds as much as it may; the " + facts.size[0] + " facts of the source and the "
        + facts.size[1] + " of the summary are in the table facts."));
      return panel;
    }
    const cells = factCells(facts);
    if (facts.missing) {
      const limit = "no match of " + facts.match + " or more on the other side";
      panel.append(el("p", { class: "hint" }, "Named here: facts with " + limit + ", each with its best one. The similarity is the cosine of the two "
        + "facts' embeddings, 0 where that is negative; the score does not depend on the limit."),
      el("div", { class: "fact-lists" },
        factList(facts, cells, "source", facts.missing, "Missing: in the source, not in the summary", "Every fact of the source has a match in the summary."),
        factList(facts, cells, "summary", facts.unsupported, "Unsupported: in the summary, not in the source", "Every fact of the summary has a match in the source.")));
    } else {
      const all = (side) => facts[side].map((_, index) => index);
      panel.append(el("div", { class: "fact-lists" }, factList(facts, null, "source", all("source"), "Facts of the source", "None."),
        factList(facts, null, "summary", all("summary"), "Facts of the summary", "None.")));
    }
    if (cells) panel.append(factGrid(facts, cells));
    else if (facts.left_out) panel.append(tooMany(facts, "similarities"));
    return panel;
  }
