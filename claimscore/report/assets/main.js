  /* What is shown: the overview, the records, or one record; said by the address after #. */
  const overviewData = JSON.parse(byId("cs-overview").textContent);
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
    const wanted = /^#record-(\d{1,9})$/.exec(location.hash);
    const index = wanted ? Number(wanted[1]) - 1 : -1;
    if (index >= 0 && index < data.ids.length) {
      await openRecord(index);
      show("record");
      scrollTo({ top: 0, behavior: "instant" });
      article.querySelector("h2").focus({ preventScroll: true });
    } else if (location.hash === "#explore" && data.ids.length) {
      show("explore");
      if (!explored) {
        explored = true;
        buildExplore();
      } else if (currentRecord >= 0) {
        listBody.querySelector('a[href="#record-' + (currentRecord + 1) + '"]')?.focus();
      }
    } else {
      const first = views.overview.hidden;
      show("overview");
      drawnOverview ||= drawOverview();
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
    if (!/^#(explore|record-\d+)$/.test(location.hash)) drawnOverview = drawOverview();
    await wholeFile;
    data = await block("cs-index");
    data.numbers = new Map(data.numbers);
    data.groups = new Map(data.groups);
    order = data.ids.map((_, index) => index);
    for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;
    addEventListener("hashchange", route);
    await route();
  })();
