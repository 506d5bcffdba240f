  /* What every page uses. Texts are only ever set as textContent: nothing here parses markup. */
  const byId = (id) => document.getElementById(id);

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

  // What can be copied -------------------------------------------------------------------
  function copyButton(code, label) {
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
    copy.setAttribute("aria-label", label);
    return copy;
  }

  for (const code of document.querySelectorAll("code.copyable")) {
    code.after(copyButton(code, "Copy: " + code.closest("div").querySelector("dt").textContent));
  }
