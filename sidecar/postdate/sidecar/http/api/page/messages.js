// Pending messages: finds one, lists them by due time, and changes one.

import { ask, reporting } from "./api.js";
import { confirmed } from "./dialogs.js";
import { $, Region, at, cell, counted, fieldsOf, inFuture, make, makeButton, paragraph } from "./dom.js";

// Two minutes, which is longer than a takeover. If a control takes longer, the user should check the shards.
export const FOLLOW_TRIES_MAX = 240;
const PAGE = 50;
const found = new Region("found");

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const CHANGES = {
  cancel: { text: "Cancel", title: "Cancel this message?", yes: "Cancel it" },
  reschedule: { text: "Reschedule", title: "Reschedule this message?", yes: "Reschedule it" },
  deliver: { text: "Deliver now", title: "Deliver this message now?", yes: "Deliver it" },
  pause: { text: "Pause", title: "Pause this schedule?", yes: "Pause it" },
  resume: { text: "Resume", title: "Resume this schedule?", yes: "Resume it" },
  trigger: { text: "Trigger", title: "Deliver this schedule once more, now?", yes: "Trigger it" },
  backfill: { text: "Backfill", title: "Deliver this schedule again for times that have passed?", yes: "Backfill it" },
};

function changesOf(entry) {
  if (!entry.schedule) return ["cancel", "reschedule", "deliver"];
  return ["cancel", entry.paused ? "resume" : "pause", "trigger", "backfill"];
}

// The values of each change that was not accepted, as defaults for the next try.
const typed = new Map();

const due = (entry) => (entry.due_ms === null ? "paused" : `due ${at(entry.due_ms)}`);

// Requests a confirmation, sends the control, waits for its result, and calls `done`. `begin` returns the function that
// shows the progress.
async function change(entry, action, begin, done) {
  const { title, yes } = CHANGES[action];
  const ends = entry.schedule && action === "cancel" ? " All its occurrences end." : "";
  const what = `${entry.id ? `${entry.id}, ` : ""}${entry.origin}, for ${entry.target}, ${due(entry)}.${ends}`;
  const first = { reschedule: { when: new Date(entry.due_ms).toISOString() }, backfill: { start: "-1d", end: "now" } }[action];
  const key = `${action} ${entry.origin}`;
  const answer = await confirmed({ title, what, yes, fields: typed.get(key) ?? first });
  if (answer === null) return;
  if (first) typed.set(key, Object.fromEntries(Object.keys(first).map((name) => [name, answer[name]])));
  const body = { origin: entry.origin };
  if (action === "reschedule") body.at = answer.when;
  if (action === "backfill") Object.assign(body, { start: answer.start, end: answer.end });
  const show = begin();
  await reporting((lines) => show(...lines.map(paragraph)), async () => {
    show(paragraph("Request sent. Waiting for its acceptance."));
    const control = await ask(`/api/v1/${action}`, body);
    typed.delete(key);
    if (await applied(show, control.origin)) await done(show);
  });
}

export function refusal(control, history) {
  const why = history.request?.refused ? ` as ${history.request.refused}` : "";
  return `${control} was refused${why}. Its dead letter has the details.`;
}

// Waits until a control is applied. A control is an ordinary request, so its history has the result. Returns false if
// the control was refused, if it takes too long, or if a newer result is shown.
async function applied(show, control) {
  for (let tries = 0; tries < FOLLOW_TRIES_MAX; tries += 1) {
    if (!show(paragraph(`Accepted as ${control}. Waiting for the result.`))) return false;
    await pause(500);
    const history = await ask(`/api/v1/requests/${control}`).catch(() => null);
    if (history?.state === "applied") return true;
    if (history?.state === "dead") {
      show(paragraph(refusal(control, history)));
      return false;
    }
  }
  show(paragraph(`${control} has not ended yet. Look at the shards.`));
  return false;
}

export function changeButtons(entry, begin, done) {
  const buttons = make("div", "", "line");
  for (const action of changesOf(entry)) {
    const button = makeButton(CHANGES[action].text, () => change(entry, action, begin, done));
    button.dataset.action = action;
    buttons.append(button);
  }
  return buttons;
}

function describe(entry) {
  const box = make("div", "", "entry");
  box.append(
    make("h3", entry.id || entry.origin, "word"),
    make("div", `${entry.paused ? "paused" : entry.state}, due ${at(entry.due_ms)}${entry.window_ms ? `, in its window at ${at(entry.chosen_ms)},` : ""} for ${entry.target}${entry.attempt ? `, attempt ${entry.attempt}` : ""}`, "word"),
    make("div", entry.origin, "word soft"),
    changeButtons(entry, () => found.begin(), (show) => showHistory(show, entry.origin)),
  );
  return box;
}

async function showHistory(show, origin) {
  const history = await ask(`/api/v1/requests/${origin}`);
  const box = make("div", "", "entry");
  box.append(make("h3", `${history.origin}: ${history.state}`, "word"));
  if (history.request?.id && !history.entry) box.append(make("div", `id ${history.request.id}`, "word"));
  if (history.request?.accepted_ms) box.append(make("div", `${at(history.request.accepted_ms)} requested`, "word"));
  for (const event of history.events) {
    box.append(make("div", `${at(event.at_ms)} ${event.fate}${event.deliveries > 1 ? ` (${event.deliveries} times)` : ""}${event.by ? ` by ${event.by}` : ""}`, "word"));
  }
  if (!history.complete) box.append(make("div", "The search of the dispatch log reached its limit.", "word soft"));
  show(box, ...(history.entry ? [describe(history.entry)] : []));
}

async function find(event) {
  event.preventDefault();
  const what = $("what").value.trim();
  const show = found.begin();
  await reporting((lines) => show(...lines.map(paragraph)), async () => {
    const page = await ask(`/api/v1/pending?id=${encodeURIComponent(what)}`);
    if (page.entries.length) show(...page.entries.map(describe));
    else if (/^[\w.-]+\/\d+\/\d+$/.test(what)) await showHistory(show, what);
    else show(paragraph(`No message is pending under ${what}. For a message that has ended, enter its origin.`));
  });
}

// Shows the history of a message below the search, as if the search had found it.
export async function open(origin) {
  $("what").value = origin;
  const show = found.begin();
  found.element.focus();
  $("find").scrollIntoView({ block: "nearest" });
  await reporting((lines) => show(...lines.map(paragraph)), () => showHistory(show, origin));
}

export function openFromElsewhere(origin) {
  location.hash = "messages";
  return open(origin);
}

// ---- the list --------------------------------------------------------------------------------------------------------

// The results of several queries, which are read one after the other, page by page. A page may be short or empty and
// still have a cursor.
export class Listing {
  #queries;
  #cursor = null;
  entries = [];
  unasked = [];
  isComplete = false;

  constructor(...queries) {
    this.#queries = queries.map((query) => ({ ...query, limit: PAGE }));
  }

  // Reads pages until there are PAGE more entries, or no more pages, but at most ten pages. Returns the new entries.
  async more() {
    const added = [];
    for (let pages = 0; pages < 10 && added.length < PAGE && !this.isComplete; pages += 1) {
      const cursor = this.#cursor ? { cursor: this.#cursor } : {};
      const page = await ask(`/api/v1/pending?${new URLSearchParams({ ...this.#queries[0], ...cursor })}`);
      added.push(...page.entries);
      this.#cursor = page.cursor;
      if (!page.cursor) this.#queries.shift();
      this.isComplete = !this.#queries.length;
      this.unasked = page.not_asked;
    }
    this.entries.push(...added);
    return added;
  }

  // Returns a description of the listed entries.
  summary(noun) {
    const missing = this.unasked.map((shard) => `${shard.topic}/${shard.partition}`);
    const more = this.isComplete ? "" : ", more follow";
    return `${counted(this.entries.length, noun)}${more}, as of ${at(Math.floor(Date.now() / 1000) * 1000)}${missing.length ? `; not asked: ${missing.join(", ")}` : ""}`;
  }
}

let listing = null;

function row(entry) {
  const made = make("tr");
  const name = cell("message", "", "message");
  name.append(makeButton(entry.id || entry.origin, () => open(entry.origin), "link word"));
  const state = entry.paused ? "paused" : entry.schedule ? "recurring" : entry.attempt ? `attempt ${entry.attempt}` : entry.state;
  const when = entry.chosen_ms === null ? "paused" : at(entry.chosen_ms ?? entry.due_ms);
  const until = entry.chosen_ms === null ? "–" : inFuture(entry.chosen_ms ?? entry.due_ms);
  made.append(cell("due", when), cell("", until, "soft left"), cell("target", entry.target, "word"), name, cell("state", state, state), cell("origin", entry.origin, "word soft origin"));
  return made;
}

// Adds the next entries to the list. `isMore`: the user requested more entries, so the first new one gets the focus.
async function readOn(isMore) {
  const mine = listing;
  const show = (lines) => { if (mine === listing) $("listed-count").textContent = lines.join(" "); };
  await reporting(show, async () => {
    const added = await mine.more();
    if (mine !== listing) return;
    const rows = added.map(row);
    $("listed").append(...rows);
    $("listed-table").hidden = !mine.entries.length;
    if (isMore) rows[0]?.querySelector("button").focus();
    $("listed-more").hidden = mine.isComplete;
    show([mine.summary("message")]);
  });
}

export function listMessages() {
  listing = new Listing(fieldsOf($("select")));
  $("listed").replaceChildren();
  $("listed-table").hidden = $("listed-more").hidden = true;
  $("listed-count").textContent = "Reading.";
  return readOn(false);
}

$("find").addEventListener("submit", find);
$("listed-more").addEventListener("click", () => readOn(true));
