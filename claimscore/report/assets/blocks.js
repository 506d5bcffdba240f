  /* What lies inside this file, compressed: read when it is needed, once. */
  const inflating = new Map();

  async function inflate(id) {
    const packed = atob(byId(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  function block(id) {
    if (!inflating.has(id)) inflating.set(id, inflate(id).then(JSON.parse));
    return inflating.get(id);
  }

  /* The plotting library is text in this file too. The page's policy names its hash, so that this
     text and no other runs. */
  const asScript = window.trustedTypes
    ? trustedTypes.createPolicy("claimscore", { createScript: (text) => text })
    : { createScript: (text) => text };
  let library = null;

  function loadLibrary() {
    library ||= (async () => {
      for (const id of ["cs-d3", "cs-plot"]) {
        const script = el("script");
        script.textContent = asScript.createScript(await inflate(id));
        document.head.append(script);
      }
    })();
    return library;
  }
