  /* Draws the list of records and one record at a time from the JSON blocks of this file. */
  const PAGE = 20;
  const data = JSON.parse(byId("cs-records").textContent);
  const blocks = new Map();

  function detailsOf(index) {
    const number = Math.floor(index / data.block);
    if (!blocks.has(number)) blocks.set(number, JSON.parse(byId("cs-details-" + number).textContent));
    return blocks.get(number)[index % data.block];
  }

  const fixed = (value) => (value === null ? "–" : value.toFixed(2));
  const columnOf = (record, side) => (record.sides.find((found) => found.side === side) || { column: side }).column;

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
    if (!side.claims.length && data.claims) box.append(el("p", { class: "hint" }, "No claims."));
    if (side.left_out) box.append(el("p", { class: "hint" }, side.left_out.toLocaleString("en") + " more characters are not shown."));
    return box;
  }

  function keyValues(label, pairs) {
    if (!pairs.length) return null;
    return el("details", {}, el("summary", {}, label), el("table", { class: "kv" }, el("tbody", {},
      ...pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, name), el("td", { dir: "auto" }, value))))));
  }

  function textsOf([column, texts, leftOut]) {
    return el("details", { class: "panel" }, el("summary", {}, column),
      ...texts.map((text) => el("p", { class: "sentence", dir: "auto" }, text)),
      leftOut ? el("p", { class: "hint" }, leftOut.toLocaleString("en") + " more characters are not shown.") : null);
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
      ...record.texts.map(textsOf),
      record.facts ? factsOf(record.facts) : "",
      ...record.matrices.map((matrix) => matrixOf(record, matrix)),
      ...record.block_matrices.map((matrix, number) => blockMatrixOf(record, matrix, number)),
      keyValues("Parts of the scores", parts(record)) || "",
      record.components_left_out ? el("p", { class: "hint" }, "This file holds as much as it may; the parts of "
        + record.components_left_out + " more scores are in scores.parquet.") : "", keyValues("Other columns of the record", record.other) || "");
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
