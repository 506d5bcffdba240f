/* The records that are shown, in their order. No drawing here. */
import { block } from "./packed.js";

export const state = { query: "", show: "all", group: "", level: "", ranges: new Map(), sort: "order", down: false, page: 0 };
/* `data` is the index (ids, previews, metrics, values by metric, other columns, failures), `order` the
   shown records, `current` the one that is open, `texts` what a search reads. */
export const page = { data: null, order: [], current: -1, texts: null };

/* The address of a record is its id; half of a surrogate pair has none. */
const nameOf = (index) => page.data.ids[index].replace(/\p{Surrogate}/gu, "\ufffd");
export const addressOf = (index) => "#record-" + encodeURIComponent(nameOf(index));
export function recordAt(address) {
  try {
    const name = decodeURIComponent(address.slice("#record-".length));
    return page.data.ids.findIndex((_, index) => nameOf(index) === name);
  } catch {
    return -1; // no address of ours
  }
}

/* The first metric's worst records first. */
export const worstFirst = () => (page.data.metrics.length ? { sort: "=" + page.data.metrics[0], down: page.data.down[0] } : { sort: "order", down: false });

export const number = (name) => {
  const metric = page.data.metrics.indexOf(name);
  return metric >= 0 ? page.data.values[metric] : page.data.numbers.get(name) || null;
};
export const levelOf = (name, index) => {
  const { levels, codes } = page.data.groups.get(name);
  return codes[index] === null ? null : levels[codes[index]];
};

const kept = {
  all: () => true,
  scored: (index) => page.data.values.every((values) => values[index] !== null),
  null: (index) => page.data.values.some((values) => values[index] === null),
  failed: (index) => page.data.failures[index] > 0,
};

// The texts of all records, in small letters: read from the blocks at the first search.
async function searchable() {
  page.texts ||= (async () => {
    const blocks = await Promise.all(Array.from({ length: Math.ceil(page.data.ids.length / page.data.block) }, (_, at) => block("cs-texts-" + at)));
    return blocks.flat().map((record, index) => [page.data.ids[index], ...record.sides.flatMap((side) =>
      [side.segments.map((part) => part[0]).join(" "), ...side.claims]), ...record.texts.flatMap((text) => text[1])].join("\n").toLowerCase());
  })();
  return page.texts;
}

function sortKey(index) {
  if (state.sort === "order") return index;
  if (state.sort === "id") return page.data.ids[index];
  if (state.sort === "failures") return page.data.failures[index];
  if (page.data.groups.has(state.sort.slice(1))) return levelOf(state.sort.slice(1), index);
  return number(state.sort.slice(1))[index];
}

// A number is the bits of checks of the claims; else the name of a condition.
const isKept = (index) => (Number(state.show) ? page.data.marks[index] & Number(state.show) : kept[state.show](index));

export async function select() {
  const words = state.query.trim().toLowerCase();
  const all = words ? await searchable() : null;
  const ranges = [...state.ranges].map(([name, [low, high]]) => [number(name), low, high]);
  const found = [];
  for (let index = 0; index < page.data.ids.length; index += 1) {
    if (!isKept(index)) continue;
    if (state.group && state.level !== "" && levelOf(state.group, index) !== state.level) continue;
    if (!ranges.every(([values, low, high]) => values[index] !== null && values[index] >= low && values[index] <= high)) continue;
    if (all && !all[index].includes(words)) continue;
    found.push(index);
  }
  const sign = state.down ? -1 : 1;
  found.sort((one, two) => {
    const [a, b] = [sortKey(one), sortKey(two)];
    if (a === null || b === null) return (a === null) - (b === null) || one - two; // nulls last
    return (a < b ? -sign : a > b ? sign : 0) || one - two;
  });
  page.order = found;
}

export function pearson(x, y) {
  const [mx, my] = [d3.mean(x), d3.mean(y)];
  const products = (a, ma, b, mb) => d3.sum(a, (value, at) => (value - ma) * (b[at] - mb));
  const scale = products(x, mx, x, mx) * products(y, my, y, my);
  return scale > 0 ? products(x, mx, y, my) / Math.sqrt(scale) : null; // undefined where one is constant
}

// Ties share the mean of their ranks: twice that, from both ends.
function ranks(values) {
  const down = d3.rank(values, d3.descending);
  return Array.from(d3.rank(values), (rank, at) => rank - down[at]);
}

export const spearman = (x, y) => pearson(ranks(x), ranks(y));
