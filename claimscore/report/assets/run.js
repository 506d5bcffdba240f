/* The page of a run shows the overview, the records, or one record, as the address says after #. */
import { dialog } from "./calls.js";
import { drawFigures } from "./charts.js";
import { addCopyButtons, byId } from "./dom.js";
import { addTableDownloads } from "./download.js";
import { buildExplore, listBody } from "./explore.js";
import { block } from "./packed.js";
import { article, openRecord } from "./record.js";
import { addressOf, page, recordAt, select, state, worstFirst } from "./selection.js";

addCopyButtons();
addTableDownloads();
const views = { overview: byId("overview"), explore: byId("explore"), record: byId("record") };
const links = [...document.querySelectorAll(".views a")];

function show(name) {
  for (const [key, view] of Object.entries(views)) view.hidden = key !== name;
  for (const link of links) {
    const here = link.hash === "#" + name || (name === "record" && link.hash === "#explore");
    if (here) link.setAttribute("aria-current", link.hash === "#" + name ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
}

let explored = false;
let drawnOverview = null;

async function route() {
  if (dialog.open) dialog.close();
  const isRecord = location.hash.startsWith("#record-");
  const index = isRecord ? recordAt(location.hash) : -1;
  const missing = byId("cs-missing");
  missing.hidden = !isRecord || index >= 0;
  missing.textContent = missing.hidden ? "" : "This page has no record with the id of the address.";
  if (index >= 0) {
    await openRecord(index);
    show("record");
    scrollTo({ top: 0, behavior: "instant" });
    article.querySelector("h2").focus({ preventScroll: true });
  } else if (location.hash === "#explore" && page.data.ids.length) {
    show("explore");
    if (!explored) {
      explored = true;
      buildExplore();
    } else if (page.current >= 0) {
      [...listBody.querySelectorAll("a")].find((link) => link.hash === addressOf(page.current))?.focus();
    }
  } else {
    const first = views.overview.hidden;
    show("overview");
    drawnOverview ||= drawFigures();
    if (first && /^#[a-z-]+$/.test(location.hash)) byId(location.hash.slice(1))?.scrollIntoView();
  }
  document.documentElement.dataset.ready = location.hash || "#overview";
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !views.record.hidden && !dialog.open) location.hash = "#explore";
});

// The overview is drawn while the rest of the file is still being read.
const wholeFile = new Promise((resolve) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve);
  else resolve();
});

(async () => {
  if (!/^#(explore$|record-)/.test(location.hash)) drawnOverview = drawFigures();
  await wholeFile;
  page.data = await block("cs-index");
  page.data.numbers = new Map(page.data.numbers);
  page.data.groups = new Map(page.data.groups);
  Object.assign(state, worstFirst());
  await select();
  for (const link of document.querySelectorAll(".first a")) if (recordAt(link.hash) < 0) link.replaceWith(link.textContent);
  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;
  addEventListener("hashchange", route);
  await route();
})();
