"use strict";
/* Draws the list of records and one record at a time from the JSON blocks of this file.
   Texts are only ever set as textContent: nothing here parses markup. */
(() => {
  const PAGE = 20;
  const NAMES = { E: "entailment", N: "neutral", C: "contradiction", "-": "not judged" };
  const TAGS = { a: "A", b: "B", common: "AB", summary: "S", source: "D" };
  const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("cs-records").textContent);
  const blocks = new Map();

  function el(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "class") element.className = value;
      else element.setAttribute(key, value);
    }
    for (const child of children) {
      if (child !== null && child !== undefined) element.append(child); // strings become text nodes
    }
    return element;
  }

  function button(label, action, attributes) {
    const element = el("button", { type: "button", ...attributes }, label);
    element.addEventListener("click", action);
    return element;
  }

  function detailsOf(index) {
    const number = Math.floor(index / data.block);
    if (!blocks.has(number)) blocks.set(number, JSON.parse(byId("cs-details-" + number).textContent));
    return blocks.get(number)[index % data.block];
  }

  const fixed = (value) => (value === null ? "–" : value.toFixed(2));
  const tag = (side, index) => (TAGS[side] || side.slice(0, 8) + " ") + (index + 1);
  const columnOf = (record, side) => (record.sides.find((found) => found.side === side) || { column: side }).column;

  // Signatures ------------------------------------------------------------------------
  for (const code of document.querySelectorAll("code.copyable")) {
    const copy = button("Copy", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // no clipboard here: selected, ready for Ctrl+C
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 1600);
    }, { class: "copy" });
    copy.setAttribute("aria-label", "Copy the signature of " + code.closest("div").querySelector("dt").textContent);
    code.after(copy);
  }

  // The list --------------------------------------------------------------------------
  const state = { query: "", show: "all", sort: "order", down: false, page: 0 };
  let order = data.ids.map((_, index) => index);
  let texts = null;

  function searchable() {
    texts = texts || data.ids.map((id, index) =>
      (id + "\n" + detailsOf(index).sides.map((side) => side.segments.map((part) => part[0]).join(" ")).join("\n")).toLowerCase());
    return texts;
  }

  const keep = {
    all: () => true,
    scored: (index) => data.values[index].every((value) => value !== null),
    null: (index) => data.values[index].some((value) => value === null),
    failed: (index) => data.failures[index] > 0,
  };

  function sortKey(index) {
    if (state.sort === "order") return index;
    if (state.sort === "id") return data.ids[index];
    if (state.sort === "failures") return data.failures[index];
    return data.values[index][Number(state.sort)];
  }

  function arrange() {
    const query = state.query.trim().toLowerCase();
    order = data.ids.map((_, index) => index).filter(keep[state.show]);
    if (query) order = order.filter((index) => searchable()[index].includes(query));
    const sign = state.down ? -1 : 1;
    order.sort((one, two) => {
      const [a, b] = [sortKey(one), sortKey(two)];
      if (a === null || b === null) return (a === null) - (b === null) || one - two; // nulls last
      return (a < b ? -sign : a > b ? sign : 0) || one - two;
    });
  }

  const list = byId("list");
  const found = el("p", { class: "found", "aria-live": "polite" });
  const head = el("thead");
  const body = el("tbody");
  const pager = el("div", { class: "pager" });
  const columns = [["id", "Record", "id"], ["order", "Text", "preview"]]
    .concat(data.metrics.map((name, index) => [String(index), name, "num"]), [["failures", "Failures", "num"]]);

  function drawHead() {
    const cells = columns.map(([key, label, kind]) => {
      if (kind === "preview") return el("th", { scope: "col", class: kind }, label);
      const on = state.sort === key;
      const sorter = button(label + (on ? (state.down ? " ↓" : " ↑") : ""), () => {
        if (on && state.down !== (kind === "num")) Object.assign(state, { sort: "order", down: false });
        else Object.assign(state, { sort: key, down: on ? !state.down : kind === "num" });
        state.page = 0;
        draw();
        head.querySelectorAll("th")[columns.findIndex((column) => column[0] === key)].querySelector("button").focus();
      });
      const cell = el("th", { scope: "col", class: kind }, sorter);
      if (on) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      return cell;
    });
    head.replaceChildren(el("tr", {}, ...cells));
  }

  function row(index) {
    const link = el("a", { href: "#record-" + (index + 1), dir: "auto" }, data.ids[index]);
    const line = el("tr", {}, el("td", { class: "id" }, link), el("td", { class: "preview", dir: "auto" }, data.previews[index]));
    for (const value of data.values[index]) {
      line.append(el("td", { class: value === null ? "num null" : "num" }, value === null ? "null" : fixed(value)));
    }
    line.append(el("td", { class: data.failures[index] ? "num" : "num null" }, String(data.failures[index])));
    line.addEventListener("click", (event) => {
      if (event.target !== link && !getSelection().toString()) location.hash = link.getAttribute("href");
    });
    return line;
  }

  function draw() {
    arrange();
    const pages = Math.max(1, Math.ceil(order.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const start = state.page * PAGE;
    drawHead();
    body.replaceChildren(...order.slice(start, start + PAGE).map(row));
    found.textContent = order.length === data.ids.length
      ? data.ids.length.toLocaleString("en") + (data.ids.length === 1 ? " record" : " records")
      : order.length.toLocaleString("en") + " of " + data.ids.length.toLocaleString("en") + " records";
    const turn = (by, label) => {
      const next = button(label, () => { state.page += by; draw(); });
      next.disabled = state.page + by < 0 || state.page + by >= pages;
      return next;
    };
    pager.hidden = pages === 1;
    pager.replaceChildren(turn(-1, "Previous page"), turn(1, "Next page"),
      el("span", {}, "Page " + (state.page + 1).toLocaleString("en") + " of " + pages.toLocaleString("en")));
  }

  function buildList() {
    const query = el("input", { type: "search", autocomplete: "off", spellcheck: "false" });
    let timer = 0;
    query.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { Object.assign(state, { query: query.value, page: 0 }); draw(); }, 150);
    });
    const show = el("select", {}, ...[["all", "All records"], ["scored", "With every score"],
      ["null", "With a null score"], ["failed", "With a failure"]].map(([value, label]) => el("option", { value }, label)));
    show.addEventListener("change", () => { Object.assign(state, { show: show.value, page: 0 }); draw(); });
    body.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      const links = [...body.querySelectorAll("a")];
      const target = links[links.indexOf(document.activeElement) + step];
      if (target) { event.preventDefault(); target.focus(); }
    });
    list.append(
      el("div", { class: "controls", role: "search", "aria-label": "Records" },
        el("label", { class: "grow" }, "Find in ids and texts", query), el("label", {}, "Show", show)),
      found,
      el("div", { class: "scroll" }, el("table", { class: "list", "aria-label": "Records" }, head, body)),
      pager);
    draw();
  }

  // One record ------------------------------------------------------------------------
  const article = byId("record");

  function valuesOf(index, record) {
    return el("dl", { class: "values" }, ...data.metrics.map((name, metric) => {
      const value = data.values[index][metric];
      const why = record.reasons[metric];
      return el("div", {}, el("dt", {}, name), value === null
        ? el("dd", { class: "null", dir: "auto" }, why ? "null: " + why : "not scored")
        : el("dd", {}, fixed(value)));
    }));
  }

  function failuresOf(record) {
    if (!record.failures.length) return null;
    return el("div", { class: "panel failed" }, el("h4", {}, "What failed"),
      el("ul", {}, ...record.failures.map(([stage, side, index, kind, message, attempts, raw]) => {
        const where = [stage, side, index === null ? null : String(index + 1)].filter((part) => part !== null).join(" ");
        const tries = attempts > 1 ? " (" + attempts + " attempts)" : "";
        return el("li", { dir: "auto" }, where + ", " + kind + ": " + message + tries,
          raw === null ? null : el("details", {}, el("summary", {}, "Last answer"), el("code", { dir: "auto" }, raw)));
      })));
  }

  function sideOf(side) {
    const box = el("section", { class: "side" }, el("h4", {}, side.column));
    for (const [text, claims] of side.segments) {
      box.append(el("p", { class: "sentence", dir: "auto" }, text));
      if (claims.length) {
        box.append(el("ol", { class: "claims", role: "list" }, ...claims.map((index) => {
          const item = el("li", { "data-claim": side.side + ":" + index },
            el("span", { class: "tag" }, tag(side.side, index)), el("span", { dir: "auto" }, side.claims[index]));
          if (side.scores) {
            const score = side.scores[index];
            item.append(el("span", { class: "score" }, (score > 0 ? "+" : score < 0 ? "−" : "") + Math.abs(score)));
          }
          return item;
        })));
      }
    }
    if (!side.segments.length) box.append(el("p", { class: "note" }, "This text is empty."));
    if (!side.claims.length) box.append(el("p", { class: "hint" }, "No claims."));
    if (side.left_out) box.append(el("p", { class: "hint" }, side.left_out.toLocaleString("en") + " more characters are not shown."));
    return box;
  }

  function probabilities(code, cell) {
    if (!code || code.startsWith("__", cell * 4)) return null;
    const at = (place) => ALPHABET.indexOf(code[place]) * 64 + ALPHABET.indexOf(code[place + 1]);
    const entailment = at(cell * 4), contradiction = at(cell * 4 + 2);
    return [entailment, Math.max(0, 1000 - entailment - contradiction), contradiction];
  }

  function readoutOf(record, matrix, row, column) {
    const cell = row * matrix.size[1] + column;
    const [one, two] = [tag(matrix.rows, row), tag(matrix.columns, column)];
    const claim = (side, index) => (record.sides.find((found) => found.side === side) || { claims: [] }).claims[index] || "";
    const label = matrix.labels[cell];
    const line = (name, p) => p && el("tr", {}, el("th", { scope: "row" }, name), ...p.map((value) =>
      el("td", { class: value === Math.max(...p) ? "num top" : "num" }, (value / 1000).toFixed(3))));
    return [
      el("p", { class: "what" }, one + " with " + two + ": ", el("b", { class: label }, NAMES[label])),
      el("p", { class: "pair" }, el("span", { class: "tag" }, one), el("span", { dir: "auto" }, claim(matrix.rows, row))),
      el("p", { class: "pair" }, el("span", { class: "tag" }, two), el("span", { dir: "auto" }, claim(matrix.columns, column))),
      el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Direction"),
        ...["Entailment", "Neutral", "Contradiction"].map((name) => el("th", { scope: "col", class: "num" }, name)))),
      el("tbody", {}, line(one + " → " + two, probabilities(matrix.forward, cell)), line(two + " → " + one, probabilities(matrix.backward, cell)))),
    ];
  }

  function matrixOf(record, matrix) {
    const [rows, columns] = matrix.size;
    const heading = el("h4", {}, "Claim pairs: rows " + columnOf(record, matrix.rows) + ", columns " + columnOf(record, matrix.columns));
    const panel = el("section", { class: "panel" }, heading);
    if (!matrix.labels) {
      panel.append(el("p", { class: "note" }, rows + " × " + columns + " pairs are too many to draw; they are in the table nli."));
      return panel;
    }
    const count = (label) => [...matrix.labels].filter((found) => found === label).length;
    panel.append(el("ul", { class: "legend" }, ...Object.keys(NAMES).filter((label) => label !== "-" || count(label)).map((label) =>
      el("li", {}, el("b", { class: label, "aria-hidden": "true" }, label), NAMES[label] + " " + count(label)))));
    const table = el("table", { class: columns <= 16 ? "matrix roomy" : "matrix", role: "grid", "aria-label": heading.textContent });
    const readout = el("div", { class: "readout", "aria-live": "polite" },
      el("p", { class: "hint" }, "Point at a cell, or move through the cells with the arrow keys, to read the two claims and what the model said of them."),
      matrix.forward && matrix.backward ? el("p", { class: "hint" }, "A pair is entailment or contradiction where at least one direction says so and the other does not say the opposite.") : null);
    table.append(el("thead", {}, el("tr", {}, el("td", { class: "corner" }),
      ...Array.from({ length: columns }, (_, column) => el("th", { scope: "col" }, tag(matrix.columns, column))))));
    const cells = [];
    const lines = el("tbody");
    for (let row = 0; row < rows; row += 1) {
      const line = el("tr", {}, el("th", { scope: "row" }, tag(matrix.rows, row)));
      for (let column = 0; column < columns; column += 1) {
        const label = matrix.labels[row * columns + column];
        const cell = el("td", { class: label, role: "gridcell", tabindex: cells.length ? "-1" : "0",
          "aria-label": tag(matrix.rows, row) + " with " + tag(matrix.columns, column) + ": " + NAMES[label] }, label);
        cells.push(cell);
        line.append(cell);
      }
      lines.append(line);
    }
    table.append(lines);
    let current = -1;
    const mark = (number, on) => {
      const [row, column] = [Math.floor(number / columns), number % columns];
      cells[number].classList.toggle("on", on);
      lines.rows[row].cells[0].classList.toggle("on", on);
      table.tHead.rows[0].cells[column + 1].classList.toggle("on", on);
      for (const key of [matrix.rows + ":" + row, matrix.columns + ":" + column]) {
        for (const item of article.querySelectorAll("[data-claim]")) {
          if (item.dataset.claim === key) item.classList.toggle("on", on);
        }
      }
    };
    const look = (number) => {
      if (number < 0 || number === current) return;
      if (current >= 0) mark(current, false);
      current = number;
      mark(current, true);
      readout.replaceChildren(...readoutOf(record, matrix, Math.floor(number / columns), number % columns));
    };
    table.addEventListener("mouseover", (event) => look(cells.indexOf(event.target)));
    table.addEventListener("click", (event) => { if (cells.includes(event.target)) event.target.focus(); });
    table.addEventListener("focusin", (event) => {
      const number = cells.indexOf(event.target);
      if (number < 0) return;
      for (const cell of table.querySelectorAll('td[tabindex="0"]')) cell.tabIndex = -1;
      event.target.tabIndex = 0;
      look(number);
    });
    table.addEventListener("keydown", (event) => {
      const number = cells.indexOf(event.target);
      const column = number % columns;
      const next = { ArrowRight: column < columns - 1 ? number + 1 : number, ArrowLeft: column ? number - 1 : number,
        ArrowDown: number + columns, ArrowUp: number - columns, Home: number - column, End: number - column + columns - 1 }[event.key];
      if (number < 0 || next === undefined) return;
      event.preventDefault();
      if (cells[next]) cells[next].focus();
    });
    panel.append(el("div", { class: "matrix-row" }, el("div", { class: "scroll" }, table), readout));
    return panel;
  }

  function keyValues(label, pairs) {
    if (!pairs.length) return null;
    return el("details", {}, el("summary", {}, label), el("table", { class: "kv" }, el("tbody", {},
      ...pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, name), el("td", { dir: "auto" }, value))))));
  }

  function parts(record) {
    const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    return record.components.flatMap((found, metric) =>
      Object.entries(found || {}).map(([name, value]) => [data.metrics[metric] + " " + name, plain(value)]));
  }

  function openRecord(index) {
    const record = detailsOf(index);
    const place = order.indexOf(index);
    const go = (to, label) => {
      const step = button(label, () => { location.hash = "#record-" + (order[to] + 1); });
      step.disabled = place < 0 || to < 0 || to >= order.length;
      return step;
    };
    const title = el("h3", { tabindex: "-1", dir: "auto" }, data.ids[index]);
    article.setAttribute("aria-label", "Record " + data.ids[index]);
    article.replaceChildren(
      el("div", { class: "bar" }, button("← All records", () => { location.hash = "#records"; }),
        go(place - 1, "Previous"), go(place + 1, "Next"),
        el("span", { class: "place" }, place < 0 ? "" : (place + 1).toLocaleString("en") + " of " + order.length.toLocaleString("en"))),
      title, valuesOf(index, record), failuresOf(record) || "",
      record.sides.some((side) => side.scores) ? el("p", { class: "hint" }, "The number after a claim is its own score.") : "",
      el("div", { class: "sides" }, ...record.sides.map(sideOf)),
      ...record.matrices.map((matrix) => matrixOf(record, matrix)),
      keyValues("Parts of the scores", parts(record)) || "", keyValues("Other columns of the record", record.other) || "");
    list.hidden = true;
    article.hidden = false;
    byId("records").scrollIntoView({ behavior: "instant" });
    title.focus({ preventScroll: true });
  }

  function closeRecord() {
    if (article.hidden) return;
    const link = article.dataset.opened;
    article.hidden = true;
    list.hidden = false;
    const target = body.querySelector('a[href="#record-' + link + '"]');
    if (target) target.focus({ preventScroll: true });
  }

  function route() {
    const wanted = /^#record-(\d{1,9})$/.exec(location.hash);
    const index = wanted ? Number(wanted[1]) - 1 : -1;
    if (index >= 0 && index < data.ids.length) {
      article.dataset.opened = String(index + 1);
      openRecord(index);
    } else if (location.hash === "#records" || wanted) closeRecord();
  }

  article.addEventListener("keydown", (event) => { if (event.key === "Escape") location.hash = "#records"; });
  addEventListener("hashchange", route);
  if (data.ids.length) {
    list.hidden = false;
    buildList();
    route();
  }
})();
