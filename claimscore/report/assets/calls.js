/* Where an answer comes from: prompt, answer, model and request key. */
import { button, byId, copyButton, el, tableOf, whole } from "./dom.js";
import { takeAway } from "./download.js";
import { page } from "./selection.js";

export const dialog = el("dialog", { class: "call", "aria-labelledby": "call-title" });
document.body.append(dialog);
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

const placeOf = ({ side, place }) => [side, place].filter((part) => part !== null && part !== undefined).join(" ");

function tokensOf({ usage }) {
  if (!usage) return null;
  const [sent, answered] = usage;
  return sent === null && answered === null ? "not told" : (sent === null ? "?" : whole(sent)) + " in, " + (answered === null ? "?" : whole(answered)) + " out";
}

function answerText(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function turn([role, text]) {
  return el("div", { class: "turn" }, el("h4", {}, role), el("p", { dir: "auto", tabindex: "0" }, text));
}

function promptOf(call) {
  if (call.head === undefined || call.head === null) return [el("p", { class: "note" }, "The prompt is not shown: the question was asked more than once, or its file or what it asks about is not what it was.")];
  return [...page.data.heads[call.head], ["user", call.user]].map(turn);
}

function showCall(record, at) {
  const call = record.calls[at];
  const facts = [
    ["Task", call.task], ["Text", placeOf(call)],
    ["Prompt", call.prompt + "=" + call.version + "@" + call.digest], ["Model", call.model],
    ["Tokens", tokensOf(call)], ["Ended", call.finish ?? null],
  ].filter(([, value]) => value !== null && value !== "");
  const key = el("code", { class: "key" }, call.key);
  const copy = copyButton(key, "Copy the request key");
  dialog.replaceChildren(
    el("div", { class: "bar" }, el("h2", { id: "call-title", tabindex: "-1" }, "Prompt and answer"), button("Close", () => dialog.close())),
    el("dl", { class: "facts" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, value)))),
    el("p", { class: "keyline" }, el("span", { class: "soft" }, "Request key "), key, copy),
    el("h3", {}, "Answer"),
    call.answer === undefined ? el("p", { class: "note" }, "The answer is not in the cache on this machine.") : el("pre", { dir: "auto", tabindex: "0" }, answerText(call.answer)),
    el("h3", {}, "Prompt"), ...promptOf(call));
  dialog.showModal();
  byId("call-title").focus();
}

export const callButton = (record, at, label) => button(label, () => showCall(record, at), { class: "small", "aria-haspopup": "dialog" });

/* All that a model was asked about the record. */
export function callsOf(record) {
  if (!record.calls.length) return null;
  const name = "Requests of " + page.data.ids[page.current];
  const line = (call, at) => el("tr", {}, el("th", { scope: "row" }, call.task), el("td", { dir: "auto" }, placeOf(call)),
    el("td", {}, call.version), el("td", { dir: "auto" }, call.model), el("td", { class: "num" }, call.usage ? call.usage.slice(0, 2).map((n) => (n === null ? "–" : whole(n))).join(" / ") : "–"),
    el("td", {}, callButton(record, at, "Show")));
  const head = ["Task", "Text", "Prompt", "Model", "Tokens in / out#", "Prompt and answer"];
  return el("details", { class: "panel" }, el("summary", {}, "What the model was asked (" + whole(record.calls.length) + (record.calls.length === 1 ? " request)" : " requests)")),
    tableOf(name, "plain asked-table", head, record.calls.map(line)),
    takeAway(name, { rows: () => [["task", "side", "place", "prompt", "version", "digest", "model", "request_key", "prompt_tokens", "completion_tokens", "answer"],
      ...record.calls.map((call) => [call.task, call.side, call.place ?? null, call.prompt, call.version, call.digest, call.model, call.key, call.usage?.[0] ?? null, call.usage?.[1] ?? null, call.answer ?? null])] }));
}
