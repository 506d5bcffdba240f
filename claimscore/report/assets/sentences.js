/* The label of each sentence of a text, from its claims or from its blocks. */
const TAGS = { a: "A", b: "B", common: "AB", summary: "S", source: "D", references: "R" };
export const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
// A side is `a` or, of blocks, `source.sentence`: the text and how it is cut.
export const textOf = (side) => side.split(".")[0];
export const tag = (side, index) => (TAGS[textOf(side)] || side.slice(0, 8) + " ") + (index + 1);
export const columnOf = (record, side) => (record.sides.find((one) => one.side === side) || { column: side }).column;

export function probabilities(code, cell) {
  if (!code || code.startsWith("__", cell * 4)) return null;
  const at = (place) => ALPHABET.indexOf(code[place]) * 64 + ALPHABET.indexOf(code[place + 1]);
  const entailment = at(cell * 4), contradiction = at(cell * 4 + 2);
  return [entailment, Math.max(0, 1000 - entailment - contradiction), contradiction];
}

export const VERDICTS = {
  claims: { E: "said by the other text too", C: "contradicted by the other text", N: "unmentioned in the other text", M: "its claims differ" },
  blocks: { E: "supported by the source", C: "contradicted by the source", N: "unmentioned in the source" },
};

// The labels that a claim has with the claims of the other side, as CASPR counts them:
// all neutral N; else E where entailments are at least as many as contradictions; else C.
const matrixOfClaims = (record, side) => record.matrices.find((found) => found.labels && found.rows !== found.columns && (found.rows === side || found.columns === side));

export function claimLabels(record, side) {
  const matrix = matrixOfClaims(record, side);
  if (!matrix) return null;
  const [rows, columns] = matrix.size;
  const byRow = matrix.rows === side;
  return Array.from({ length: byRow ? rows : columns }, (_, index) => {
    const count = { E: 0, N: 0, C: 0, "-": 0 };
    for (let other = 0; other < (byRow ? columns : rows); other += 1) {
      count[matrix.labels[byRow ? index * columns + other : other * columns + index]] += 1;
    }
    if (!(count.E + count.C)) return count.N ? "N" : null;
    return count.E >= count.C ? "E" : "C";
  });
}

/* The claim of the other side for which a claim has its label E or C, the surest one: [side, index]; null without. */
export function partnerOf(record, side, index, label) {
  const matrix = matrixOfClaims(record, side);
  const which = { E: 0, C: 2 }[label];
  if (!matrix || which === undefined) return null;
  const [rows, columns] = matrix.size;
  const byRow = matrix.rows === side;
  let best = [-1, null];
  for (let other = 0; other < (byRow ? columns : rows); other += 1) {
    const cell = byRow ? index * columns + other : other * columns + index;
    if (matrix.labels[cell] !== label) continue;
    const sure = Math.max(...[matrix.forward, matrix.backward].map((code) => probabilities(code, cell)?.[which] ?? 0));
    if (sure > best[0]) best = [sure, other];
  }
  return best[1] === null ? null : [byRow ? matrix.columns : matrix.rows, best[1]];
}

export function sentenceLabel(labels, claims) {
  const found = [...new Set(claims.map((index) => labels[index] ?? null))].filter((label) => label !== null);
  return found.length > 1 ? "M" : found[0] ?? null;
}

// The block matrix by which a text is coloured: the one whose blocks of it are sentences.
export function blockMatrixFor(record, side) {
  const fits = (name) => textOf(name) === side && name.split(".")[1].startsWith("sentence") && (record.blocks[name] || []).length;
  return record.block_matrices.find((matrix) => matrix.labels && (fits(matrix.rows) || fits(matrix.columns)));
}

// Of each block of the summary: how far the source's best block entails it, and contradicts it.
export function supportOf(matrix, side) {
  const [rows, columns] = matrix.size;
  const byColumn = textOf(matrix.columns) === side;
  const code = byColumn ? matrix.forward : matrix.backward; // the source is the premise
  if (!code) return null;
  return Array.from({ length: byColumn ? columns : rows }, (_, index) => {
    let best = [0, 0];
    for (let other = 0; other < (byColumn ? rows : columns); other += 1) {
      const p = probabilities(code, byColumn ? other * columns + index : index * columns + other);
      if (p) best = [Math.max(best[0], p[0]), Math.max(best[1], p[2])];
    }
    return { entailment: best[0] / 1000, contradiction: best[1] / 1000 };
  });
}

export const supportLabel = ({ entailment, contradiction }) => (Math.max(entailment, contradiction) < 0.5 ? "N" : entailment >= contradiction ? "E" : "C");

/* A text cut at its blocks: [text, number of its block or null]. Null where one is not found. */
export function cutAt(text, blocks) {
  const parts = [];
  let cursor = 0;
  for (const [index, found] of blocks.entries()) {
    const whole = found.endsWith("…") ? found.slice(0, -1) : found;
    const start = text.indexOf(whole, cursor);
    if (start < 0) return parts.length ? [...parts, [text.slice(cursor), null]] : null;
    if (start > cursor) parts.push([text.slice(cursor, start), null]);
    parts.push([whole, index]);
    cursor = start + whole.length;
  }
  if (cursor < text.length) parts.push([text.slice(cursor), null]);
  return parts;
}

// A unit (a claim, a block, a fact) is pointed out wherever it stands on the page.
export function pointOut(side, index, on) {
  for (const part of document.querySelectorAll("[data-unit]")) {
    if (part.dataset.unit === side + ":" + index) part.classList.toggle("on", on);
  }
}
