  /* Which records are shown, in which order. No drawing here. */
  const state = { query: "", show: "all", group: "", level: "", ranges: new Map(), sort: "order", down: false, page: 0 };
  let data = null; // the index: ids, previews, metrics, values by metric, other columns, failures
  let order = [];
  let texts = null;

  const number = (name) => {
    const metric = data.metrics.indexOf(name);
    return metric >= 0 ? data.values[metric] : data.numbers.get(name) || null;
  };
  const levelOf = (name, index) => {
    const { levels, codes } = data.groups.get(name);
    return codes[index] === null ? null : levels[codes[index]];
  };

  const kept = {
    all: () => true,
    scored: (index) => data.values.every((values) => values[index] !== null),
    null: (index) => data.values.some((values) => values[index] === null),
    failed: (index) => data.failures[index] > 0,
  };

  // The texts of all records, in small letters: read from the blocks at the first search.
  async function searchable() {
    texts ||= (async () => {
      const blocks = await Promise.all(Array.from({ length: Math.ceil(data.ids.length / data.block) }, (_, at) => block("cs-texts-" + at)));
      return blocks.flat().map((record, index) => [data.ids[index], ...record.sides.flatMap((side) =>
        [side.segments.map((part) => part[0]).join(" "), ...side.claims]), ...record.texts.flatMap((text) => text[1])].join("\n").toLowerCase());
    })();
    return texts;
  }

  function sortKey(index) {
    if (state.sort === "order") return index;
    if (state.sort === "id") return data.ids[index];
    if (state.sort === "failures") return data.failures[index];
    if (data.groups.has(state.sort.slice(1))) return levelOf(state.sort.slice(1), index);
    return number(state.sort.slice(1))[index];
  }

  async function select() {
    const words = state.query.trim().toLowerCase();
    const all = words ? await searchable() : null;
    const ranges = [...state.ranges].map(([name, [low, high]]) => [number(name), low, high]);
    const found = [];
    for (let index = 0; index < data.ids.length; index += 1) {
      if (!kept[state.show](index)) continue;
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
    order = found;
  }
