"use strict";
// The page of a deployment. It queries /api/v1/shards every few seconds, and other paths on demand. It inserts values from
// the API as text, never as markup. Only a variable of this script has the token.

const REFRESH_MS = 3000;
// Two minutes, which is longer than a takeover. A control that takes longer needs a look at the shards.
const FOLLOW_TRIES_MAX = 240;
const $ = (id) => document.getElementById(id);
let token = "";
let load = 0;
let deployment = null;
let turn = 0;
let tokenQuestion = null;

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "The process does not respond.");
  }
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, json.error || `The process responded with ${answer.status}.`);
  return json;
}

// ---- making elements -------------------------------------------------------------------------------------------------

function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

const number = (value) => (value === undefined || value === null ? "–" : value.toLocaleString("en"));
const at = (ms) => new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$/, "Z");
const clock = (ms) => `${new Date(ms).toISOString().slice(5, 16).replace("T", " ")}Z`;

function span(ms) {
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${Number((ms / size).toFixed(1))} ${unit}`;
  }
  return `${Math.max(Math.round(ms), 0)} ms`;
}

// ---- present state ---------------------------------------------------------------------------------------------------

const sum = (name) => deployment.shards.reduce((total, shard) => total + (shard[name] ?? 0), 0);

function counted(count, noun, plural = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : plural}`;
}

function showFigures() {
  $("pending").textContent = number(sum("pending"));
  $("overdue").textContent = number(sum("overdue"));
  $("overdue").classList.toggle("ill", sum("overdue") > 0);
  $("parked").textContent = number(sum("parked"));
  const next = deployment.shards.map((shard) => shard.next_due_ms).filter((ms) => ms !== undefined && ms !== null);
  $("next-due").textContent = next.length ? (Math.min(...next) <= deployment.at_ms ? "now" : span(Math.min(...next) - deployment.at_ms)) : "–";
}

function showLoad() {
  const columns = [];
  let fromMs = Infinity;
  let stepMs = 60000;
  for (const shard of deployment.shards) {
    const ahead = shard.load?.[load];
    if (!ahead) continue;
    fromMs = Math.min(fromMs, ahead.from_ms);
    stepMs = ahead.step_ms;
    ahead.counts.forEach((count, index) => { columns[index] = (columns[index] ?? 0) + count; });
  }
  const most = Math.max(0, ...columns);
  $("load").replaceChildren(...columns.map((count, index) => {
    const column = make("span");
    column.style.height = most && count ? `${Math.max((count / most) * 100, 2)}%` : "0";
    column.title = `${clock(fromMs + index * stepMs)}: ${number(count)}`;
    return column;
  }));
  const all = columns.reduce((total, count) => total + count, 0);
  $("load").setAttribute("aria-label", `${number(all)} upcoming messages, at most ${number(most)} in ${span(stepMs)}`);
  $("load").dataset.total = all;
  $("load-from").textContent = columns.length ? clock(fromMs) : "";
  $("load-most").textContent = columns.length ? `at most ${number(most)} in ${span(stepMs)}` : "no data yet";
  $("load-until").textContent = columns.length ? clock(fromMs + columns.length * stepMs) : "";
}

function showLateness() {
  const bounds = deployment.shards[0]?.lateness.bounds_ms ?? [];
  const counts = Array(bounds.length + 1).fill(0);
  for (const shard of deployment.shards) shard.lateness.counts.forEach((count, index) => { counts[index] += count; });
  const all = counts.reduce((total, count) => total + count, 0);
  let below = 0;
  const within = bounds.find((_, index) => (below += counts[index]) >= all * 0.99);
  $("lateness").textContent = !all ? "–" : within === undefined ? `over ${span(bounds.at(-1))}` : span(within);
  const rows = [];
  counts.forEach((count, index) => {
    if (!count) return;
    const bar = make("div", "", "bar");
    const inside = make("span");
    inside.style.width = `${(count / all) * 100}%`;
    bar.append(inside);
    const name = index < bounds.length ? `up to ${span(bounds[index])}` : `over ${span(bounds.at(-1))}`;
    rows.push(make("span", name), bar, make("span", number(count), "n"));
  });
  $("late").replaceChildren(...(rows.length ? rows : [make("span", "No deliveries yet.", "soft")]));
}

function cell(name, text, className) {
  const made = make("td", text, className);
  made.dataset.name = name;
  return made;
}

function showShards() {
  const rows = [...deployment.shards, ...deployment.not_asked].map((shard) => {
    const row = make("tr");
    const state = cell("state", shard.state, `state ${shard.state}`);
    for (const text of [shard.why, shard.held?.length ? `held: ${shard.held.join(", ")}` : ""]) {
      if (text) state.append(make("div", text, "word soft"));
    }
    row.append(cell("shard", `${shard.topic}/${shard.partition}`), state, cell("process", shard.process ?? "–"));
    for (const name of ["pending", "overdue", "parked", "lag"]) {
      row.append(cell(name, number(shard[name]), "n"));
    }
    return row;
  });
  $("shards").replaceChildren(...rows);
}

function trouble(text) {
  $("trouble").hidden = !text;
  $("trouble").textContent = text;
}

async function refresh() {
  try {
    deployment = await ask("/api/v1/shards");
    trouble(deployment.not_asked.map((shard) => `${shard.topic}/${shard.partition}: ${shard.why}`).join("\n"));
    const processes = new Set(deployment.shards.map((shard) => shard.process)).size;
    $("freshness").textContent = `${counted(deployment.shards.length, "shard")}, ${counted(processes, "process", "processes")}`;
    showFigures();
    showLoad();
    showLateness();
    showShards();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    trouble(error.message);
    if (error.status === 401 && !token) await wantToken("Queries of this port need the token.");
  }
}

// ---- finding and changing --------------------------------------------------------------------------------------------

// Each dialog asks one question at a time. The answer comes from its own buttons and not from the close event alone: the
// browser fires that event with a later frame, when the dialog may be open again with the next question.
const questions = new Map();

function askIn(element) {
  answer(element, false);
  element.showModal();
  return new Promise((resolve) => questions.set(element, resolve));
}

function answer(element, isMeant) {
  questions.get(element)?.(isMeant);
  questions.delete(element);
}

for (const element of document.querySelectorAll("dialog")) {
  const close = (isMeant) => {
    element.close();
    answer(element, isMeant);
  };
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    close(true);
  });
  element.querySelector("[value='cancel']").addEventListener("click", () => close(false));
  element.addEventListener("close", () => {
    if (!element.open) answer(element, false);
  });
}

async function askToken(why) {
  $("token-why").textContent = `${why} The page keeps it in memory only, until it is closed.`;
  if (await askIn($("token-dialog"))) token = $("token").value.trim();
  $("token").value = "";
  $("token-button").textContent = token ? "Token set" : "Token";
  return Boolean(token);
}

function wantToken(why) {
  tokenQuestion ??= askToken(why).finally(() => { tokenQuestion = null; });
  return tokenQuestion;
}

const CHANGES = {
  cancel: { text: "Cancel", title: "Cancel this message?", yes: "Cancel it" },
  reschedule: { text: "Reschedule", title: "Reschedule this message?", yes: "Reschedule it" },
  deliver: { text: "Deliver now", title: "Deliver this message now?", yes: "Deliver it" },
  pause: { text: "Pause", title: "Pause this schedule?", yes: "Pause it" },
  resume: { text: "Resume", title: "Resume this schedule?", yes: "Resume it" },
  trigger: { text: "Trigger", title: "Deliver this schedule once more, now?", yes: "Trigger it" },
};

function changesOf(entry) {
  if (!entry.schedule) return ["cancel", "reschedule", "deliver"];
  return ["cancel", entry.paused ? "resume" : "pause", "trigger"];
}

async function change(entry, action) {
  const isMove = action === "reschedule";
  const { title, yes } = CHANGES[action];
  $("change-title").textContent = title;
  $("change-what").textContent = `${entry.id ? `${entry.id}, ` : ""}${entry.origin}, for ${entry.target}, due ${at(entry.due_ms)}`;
  $("change-when").hidden = !isMove;
  $("change-by").hidden = true;
  $("when").value = isMove ? new Date(entry.due_ms).toISOString() : "";
  $("change-yes").textContent = yes;
  if (!(await askIn($("change-dialog")))) return;
  if (!token && !(await wantToken("Changes need the token."))) return;
  const body = isMove ? { origin: entry.origin, at: $("when").value.trim() } : { origin: entry.origin };
  const show = inTurn();
  try {
    show([make("p", "Request sent. Waiting for its acceptance.", "word")]);
    const control = await ask(`/api/v1/${action}`, body);
    await follow(show, control.origin, entry.origin);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) token = "";
    show([make("p", error.message, "word")]);
  }
}

// Returns a function that shows elements below the search until a later search or change begins. So a late response
// replaces neither a newer result nor a button that a user is about to press.
function inTurn() {
  const mine = (turn += 1);
  return (elements) => {
    if (mine === turn) $("found").replaceChildren(...elements);
    return mine === turn;
  };
}

// A control is an ordinary request. Its result is in the history of the request that it names.
async function follow(show, control, origin) {
  for (let tries = 0; tries < FOLLOW_TRIES_MAX; tries += 1) {
    if (!show([make("p", `Accepted as ${control}. Waiting for the result.`, "word")])) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
    const history = await ask(`/api/v1/requests/${control}`).catch(() => null);
    if (history?.state === "applied") break;
  }
  await showHistory(show, origin);
}

function describe(entry) {
  const box = make("div", "", "entry");
  const buttons = make("div", "", "line");
  for (const action of changesOf(entry)) {
    const button = make("button", CHANGES[action].text);
    button.type = "button";
    button.dataset.action = action;
    button.addEventListener("click", () => change(entry, action));
    buttons.append(button);
  }
  box.append(
    make("div", entry.id || entry.origin, "word state"),
    make("div", `${entry.paused ? "paused" : entry.state}, due ${at(entry.due_ms)}${entry.window_ms ? `, in its window at ${at(entry.chosen_ms)},` : ""} for ${entry.target}${entry.attempt ? `, attempt ${entry.attempt}` : ""}`, "word"),
    make("div", entry.origin, "word soft"),
    buttons,
  );
  return box;
}

async function showHistory(show, origin) {
  const history = await ask(`/api/v1/requests/${origin}`);
  const box = make("div", "", "entry");
  box.append(make("div", `${history.origin}: ${history.state}`, "word state"));
  if (history.request?.accepted_ms) box.append(make("div", `${at(history.request.accepted_ms)} requested`, "word"));
  for (const event of history.events) {
    box.append(make("div", `${at(event.at_ms)} ${event.fate}${event.by ? ` by ${event.by}` : ""}`, "word"));
  }
  show(history.entry ? [box, describe(history.entry)] : [box]);
}

async function find(event) {
  event.preventDefault();
  const what = $("what").value.trim();
  const show = inTurn();
  try {
    const page = await ask(`/api/v1/pending?id=${encodeURIComponent(what)}`);
    if (page.entries.length) show(page.entries.map(describe));
    else if (/^[\w.-]+\/\d+\/\d+$/.test(what)) await showHistory(show, what);
    else show([make("p", `No message is pending under ${what}. For a message that has ended, enter its origin.`, "word")]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show([make("p", error.message, "word")]);
  }
}

// ---- many messages ---------------------------------------------------------------------------------------------------

let selectTurn = 0;

// The fields that are filled in.
function selectors() {
  const fields = [...new FormData($("select"))].map(([name, value]) => [name, value.trim()]);
  return Object.fromEntries(fields.filter(([, value]) => value));
}

const topics = () => [...new Set(deployment.shards.map((shard) => shard.topic))];

async function countSelected(event) {
  event.preventDefault();
  const asked = selectors();
  const mine = (selectTurn += 1);
  const show = (...elements) => mine === selectTurn && $("selected").replaceChildren(...elements);
  if (!Object.keys(asked).length) {
    show(make("p", "Fill in at least one field.", "word"));
    return;
  }
  try {
    show(make("p", "Counting.", "word"));
    const found = await ask(`/api/v1/pending/selected?${new URLSearchParams(asked)}`);
    const whole = found.exact && !found.not_asked.length;
    const lines = Object.entries(found.targets).map(([target, count]) => make("div", `${target}: ${number(count)}`, "word"));
    const buttons = make("div", "", "line");
    for (const [action, { button: text }] of Object.entries(BULK)) {
      const button = make("button", text);
      button.type = "button";
      button.addEventListener("click", () => changeSelected(action, asked, found.count, show));
      buttons.append(button);
    }
    const total = make("p", `${counted(found.count, "message")}${whole ? "" : " or more"}`, "word state");
    show(total, ...lines, ...(found.count ? [buttons] : []));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show(make("p", error.message, "word"));
  }
}

const BULK = {
  cancel: { button: "Cancel them", verb: "Cancel", done: "cancelled", note: " This cannot be undone." },
  reschedule: { button: "Move them", verb: "Move", done: "moved", note: "" },
  deliver: { button: "Deliver them now", verb: "Deliver", done: "moved to the present", note: "" },
};

async function changeSelected(action, asked, count, show) {
  const isMove = action === "reschedule";
  const { button, verb, done, note } = BULK[action];
  $("change-title").textContent = `${verb} ${counted(count, "message")}?`;
  const words = Object.entries(asked).map(([name, value]) => `${name.replace("_", " ")} ${value}`).join(", ");
  $("change-what").textContent = `Every pending message with ${words}.${note}`;
  $("change-when").hidden = true;
  $("change-by").hidden = !isMove;
  $("change-yes").textContent = button;
  if (!(await askIn($("change-dialog")))) return;
  if (!token && !(await wantToken("Changes need the token."))) return;
  const origins = [];
  try {
    for (const topic of topics()) {
      const told = await ask(`/api/v1/${action}/selected`, { ...asked, topic, ...(isMove && { by: $("by").value.trim() }) });
      origins.push(...told.controls.map(({ origin }) => origin));
    }
    let ended = 0;
    for (const origin of origins) ended += await appliedCount(origin, done, show);
    show(make("p", `${counted(ended, "message")} ${done}`, "word state"));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) token = "";
    const lines = [...error.message.split("\n"), ...(origins.length ? [`Accepted: ${origins.join(", ")}`] : [])];
    show(...lines.map((line) => make("p", line, "word")));
  }
}

// The final fate of a bulk control has the number of messages on which it has acted.
async function appliedCount(control, done, show) {
  for (let tries = 0; tries < FOLLOW_TRIES_MAX; tries += 1) {
    const history = await ask(`/api/v1/requests/${control}`).catch(() => null);
    const last = history?.events.at(-1);
    if (history?.state === "applied") return last.count;
    show(make("p", `Accepted as ${control}. ${counted(last?.count ?? 0, "message")} ${done} so far.`, "word"));
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  throw new Refused(0, `${control} has not ended yet. Look at the shards.`);
}

$("select").addEventListener("submit", countSelected);
$("find").addEventListener("submit", find);
$("token-button").addEventListener("click", () => wantToken("Changes need the token, and so do queries from other machines."));
for (const button of document.querySelectorAll("[data-load]")) {
  button.addEventListener("click", () => {
    load = Number(button.dataset.load);
    for (const other of document.querySelectorAll("[data-load]")) other.setAttribute("aria-pressed", String(other === button));
    if (deployment) showLoad();
  });
}

async function run() {
  await refresh();
  setTimeout(run, REFRESH_MS);
}
run();
