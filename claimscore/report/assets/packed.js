/* What lies inside this file, compressed: read when it is needed, once. */
import { byId, el } from "./dom.js";

const inflating = new Map();

async function inflate(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

export function block(id) {
  if (!inflating.has(id)) inflating.set(id, inflate(id).then(JSON.parse));
  return inflating.get(id);
}

/* The chart library is text in this file too. The page's policy names its hash, so that this text
   and no other runs. */
const asScript = window.trustedTypes
  ? trustedTypes.createPolicy("claimscore", { createScript: (text) => text })
  : { createScript: (text) => text };
let library = null;

export function loadLibrary() {
  library ||= (async () => {
    for (const id of ["cs-d3", "cs-plot"]) {
      const script = el("script");
      script.textContent = asScript.createScript(await inflate(id));
      document.head.append(script);
    }
  })();
  return library;
}
