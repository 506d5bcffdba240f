/* Explore: what is filtered by, the list of records, and the table of groups. */
import { tickOf } from "./charts.js";
import { button, byId, el, fixed, labelled, option, tableOf, whole } from "./dom.js";
import { takeAway } from "./download.js";
import { loadLibrary } from "./packed.js";
import { buildScatter, drawScatter, numericNames } from "./scatter.js";
import { addressOf, levelOf, number, page, select, state, worstFirst } from "./selection.js";

const PAGE = 25;

const found = el("p", { class: "found", role: "status" });
const totals = el("p", { class: "hint totals" });
const chips = el("ul", { class: "chips", "aria-label": "Ranges" });
const listHead = el("thead");
export const listBody = el("tbody");
const pager = el("nav", { class: "pager", "aria-label": "Pages of the list" });
const groupTable = el("div");
let refreshing = 0;

const groupNames = () => [...page.data.groups.keys()];

function listColumns() {
  const shown = groupNames().slice(0, 2);
  return [["id", "Record", "id"], ["", "Text", "preview"], ...shown.map((name) => ["=" + name, name, "level"]),
    ...page.data.metrics.map((name) => ["=" + name, name, "num"]), ["failures", "Failures", "num"]];
}

/* Everything again, after a choice; `keep` leaves the page of the list. */
async function refresh(keep) {
  const mine = ++refreshing;
  if (!keep) state.page = 0;
  if (state.query.trim() && !page.texts) found.textContent = "Searching the texts…";
  await loadLibrary();
  await select();
  if (mine !== refreshing) return; // a later choice is under way
  drawList();
  drawChips();
  drawGroups();
  await drawScatter();
}

function drawChips() {
  chips.replaceChildren(...[...state.ranges].map(([name, [low, high]]) => el("li", {},
    el("span", { dir: "auto" }, name + ": " + tickOf(low) + " to " + tickOf(high)),
    button("×", () => { state.ranges.delete(name); refresh(); found.focus(); }, { class: "small", "aria-label": "Remove the range of " + name }))));
  chips.hidden = !state.ranges.size;
}

// The list --------------------------------------------------------------------------
function sorter([key, label, kind]) {
  if (!key) return el("th", { scope: "col", class: kind }, label);
  const on = state.sort === key;
  const numeric = kind === "num";
  const press = button(label + (on ? (state.down ? " ↓" : " ↑") : ""), async () => {
    if (on && state.down !== numeric) Object.assign(state, { sort: "order", down: false });
    else Object.assign(state, { sort: key, down: on ? !state.down : numeric });
    await refresh();
    listHead.querySelectorAll("th")[listColumns().findIndex((column) => column[0] === key)].querySelector("button").focus();
  });
  const cell = el("th", { scope: "col", class: kind }, press);
  if (on) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
  return cell;
}

function row(index) {
  const link = el("a", { href: addressOf(index), dir: "auto" }, page.data.ids[index]);
  const cells = listColumns().map(([key, name, kind]) => {
    if (kind === "id") return el("th", { class: "id", scope: "row" }, link);
    if (kind === "preview") return el("td", { class: "preview", dir: "auto" }, page.data.previews[index]);
    if (kind === "level") return el("td", { class: "level", dir: "auto" }, levelOf(name, index) ?? "–");
    const value = key === "failures" ? page.data.failures[index] : number(name)[index];
    if (key === "failures") return el("td", { class: value ? "num" : "num null" }, String(value));
    return el("td", { class: value === null ? "num null" : "num" }, value === null ? "null" : fixed(value));
  });
  const line = el("tr", {}, ...cells);
  line.addEventListener("click", (event) => {
    if (event.target !== link && !getSelection().toString()) location.hash = link.getAttribute("href");
  });
  return line;
}

function drawList() {
  const pages = Math.max(1, Math.ceil(page.order.length / PAGE));
  state.page = Math.max(0, Math.min(state.page, pages - 1));
  const start = state.page * PAGE;
  listHead.replaceChildren(el("tr", {}, ...listColumns().map(sorter)));
  listBody.replaceChildren(...page.order.slice(start, start + PAGE).map(row));
  found.textContent = page.order.length === page.data.ids.length
    ? whole(page.data.ids.length) + (page.data.ids.length === 1 ? " record" : " records")
    : whole(page.order.length) + " of " + whole(page.data.ids.length) + " records";
  totals.textContent = verdictTotals();
  const turn = (to, label) => {
    const next = button(label, () => { state.page = to; drawList(); });
    next.disabled = to < 0 || to >= pages || to === state.page;
    return next;
  };
  pager.hidden = pages === 1;
  pager.replaceChildren(turn(0, "First"), turn(state.page - 1, "Previous"), turn(state.page + 1, "Next"), turn(pages - 1, "Last"),
    el("span", {}, "Page " + whole(state.page + 1) + " of " + whole(pages)));
}

// How many claims of the shown records have each verdict.
function verdictTotals() {
  const sides = d3.rollups(page.order.flatMap((index) => Object.entries(page.data.verdicts[index])),
    (found) => d3.transpose(found.map(([, counts]) => counts)).map((counts) => d3.sum(counts)), ([side]) => side);
  return sides.map(([side, counts]) => "Claims of the " + side + ": "
    + page.data.verdict_names.map((name, at) => whole(counts[at]) + " " + name).join(", ") + ".").join(" ");
}

function selectedRows() {
  const numbers = [...page.data.numbers.keys()];
  return [["id", ...groupNames(), ...page.data.metrics, ...numbers, "failures"],
    ...page.order.map((index) => [page.data.ids[index], ...groupNames().map((name) => levelOf(name, index)),
      ...page.data.metrics.map((name) => number(name)[index]), ...numbers.map((name) => number(name)[index]), page.data.failures[index]])];
}

// Groups of what is shown ------------------------------------------------------------
function drawGroups() {
  if (!state.group) return groupTable.replaceChildren();
  const head = [state.group, "Records", ...page.data.metrics.map((name) => "Mean " + name)];
  const rows = d3.rollups(page.order, (members) => [members.length,
    ...page.data.metrics.map((name) => d3.mean(members, (index) => number(name)[index]) ?? null)], (index) => levelOf(state.group, index) ?? "–")
    .sort((a, b) => d3.ascending(a[0], b[0])).map(([level, found]) => [level, ...found]);
  const lines = rows.map(([level, n, ...means]) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, level), ...[whole(n), ...means.map(fixed)].map((value) => el("td", { class: "num" }, value))));
  return groupTable.replaceChildren(el("h3", { dir: "auto" }, "By " + state.group),
    tableOf("Means by " + state.group, "plain by", head.map((name, at) => el("th", { scope: "col", class: at ? "num" : "", dir: "auto" }, name)), lines),
    takeAway("Means by " + state.group, { rows: () => [head, ...rows] }));
}

// What is chosen by -------------------------------------------------------------------
function rangeControl() {
  const column = el("select", {}, ...numericNames().map((name) => option(name, name)));
  const [low, high] = ["at least", "at most"].map((label) => el("input", { type: "number", step: "any", "aria-label": label, placeholder: label, class: "short" }));
  const show = () => {
    const range = state.ranges.get(column.value) || [-Infinity, Infinity];
    [low, high].forEach((input, at) => { input.value = Number.isFinite(range[at]) ? String(range[at]) : ""; });
  };
  const change = () => {
    const bounds = [low.value === "" ? -Infinity : Number(low.value), high.value === "" ? Infinity : Number(high.value)];
    if (bounds.some(Number.isFinite)) state.ranges.set(column.value, bounds);
    else state.ranges.delete(column.value);
    refresh();
  };
  column.addEventListener("change", show);
  low.addEventListener("change", change);
  high.addEventListener("change", change);
  return el("div", { class: "range", role: "group", "aria-label": "Range of a number" }, labelled("Range of", column), low, high);
}

function levelControl() {
  const column = el("select", {}, option("", "none"), ...groupNames().map((name) => option(name, name)));
  const level = el("select", { disabled: "" }, option("", "all"));
  column.addEventListener("change", () => {
    state.group = column.value;
    state.level = "";
    const levels = state.group ? [...page.data.groups.get(state.group).levels].sort() : [];
    level.replaceChildren(option("", "all"), ...levels.map((name) => option("=" + name, name)));
    level.disabled = !levels.length;
    refresh();
  });
  level.addEventListener("change", () => { state.level = level.value.slice(1); refresh(); });
  return [labelled("Group and colour by", column), labelled("Group", level)];
}

export function buildExplore() {
  const query = el("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  let timer = 0;
  query.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { state.query = query.value; refresh(); }, 150);
  });
  const show = el("select", {}, option("all", "All records"), option("scored", "With every score"), option("null", "With a null score"), option("failed", "With a failure"),
    ...page.data.checks.map(([bit, title]) => option(String(bit), "Claims: " + title)));
  show.addEventListener("change", () => { state.show = show.value; refresh(); });
  listBody.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const links = [...listBody.querySelectorAll("a")];
    const target = step && links[links.indexOf(document.activeElement) + step];
    if (target) { event.preventDefault(); target.focus(); }
  });
  const clear = button("Clear", () => {
    Object.assign(state, { query: "", show: "all", group: "", level: "", ...worstFirst() });
    state.ranges.clear();
    byId("cs-explore").replaceChildren();
    buildExplore();
    byId("cs-explore").querySelector("input").focus();
  });
  found.tabIndex = -1;
  byId("cs-explore").append(
    el("div", { class: "controls", role: "search", "aria-label": "Records" },
      labelled("Find in ids, texts and claims", query, { class: "grow" }), labelled("Show", show),
      ...(groupNames().length ? levelControl() : []), numericNames().length ? rangeControl() : "", clear),
    chips, found, totals,
    el("div", { class: "scroll" }, el("table", { class: "list", "aria-label": "Records" }, listHead, listBody)),
    pager, takeAway("Records shown", { rows: selectedRows }), buildScatter(refresh), groupTable);
  refresh();
}
