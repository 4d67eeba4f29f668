// Recurring schedules: a list with a calendar strip, and a view of one schedule with its latest and next occurrences.

import { ask, reporting } from "./api.js";
import { $, Region, at, cell, fieldsOf, inFuture, make, makeButton, paragraph, span } from "./dom.js";
import { Listing, changeButtons } from "./messages.js";

const DAY_MS = 86400000;
// The most next occurrences that an answer contains. If it contains this number, more may follow.
const NEXT_MAX = 10;
const SPANS = [{ days: 1, step: DAY_MS / 4 }, { days: 7, step: DAY_MS }, { days: 28, step: 7 * DAY_MS }];
const EXTRAS = { extra: "delivered", "extra-dead": "dead-lettered" };
const region = new Region("schedule");
let listing = null;
let strip = 1;
let shown = null;

// ---- times -----------------------------------------------------------------------------------------------------------

// Returns a time in the zone of a schedule; empty for UTC, and for a zone that the browser does not know.
function inZone(ms, zone) {
  if (!zone || zone === "UTC") return "";
  const options = { timeZone: zone, hourCycle: "h23", weekday: "short", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  try {
    const parts = Object.fromEntries(new Intl.DateTimeFormat("en", options).formatToParts(ms).map(({ type, value }) => [type, value]));
    return `${parts.weekday} ${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
  } catch {
    return "";
  }
}

// Returns the lines of a time: in UTC, and in the zone unless that line would be empty.
const times = (ms, zone) => [at(ms), inZone(ms, zone)].filter(Boolean);

const nominal = (zone) => (zone && zone !== "UTC" ? `nominal time, and in ${zone}` : "nominal time");

const zoneOf = (entry) => (entry.schedule.cron ? entry.schedule.zone ?? "UTC" : "");

const stateOf = (entry) => (entry.paused ? "paused" : entry.state === "parked" ? "parked" : "active");

function words(entry) {
  const { cron, every } = entry.schedule;
  const given = cron ? `${cron}, ${zoneOf(entry)}` : `every ${every}`;
  return { given, inWords: cron ? entry.words : "" };
}

// ---- the strip -------------------------------------------------------------------------------------------------------

const stripFrom = () => Math.floor(Date.now() / 3600000) * 3600000;
const place = (ms, fromMs) => ((ms - fromMs) / (SPANS[strip].days * DAY_MS)) * 100;

// Draws a mark for each next occurrence. A hatched bar begins at the tenth: the answer does not contain later ones.
function fillLane(lane, entry) {
  const fromMs = stripFrom();
  const untilMs = fromMs + SPANS[strip].days * DAY_MS;
  const times = entry.next_ms.filter((ms) => ms >= fromMs && ms < untilMs);
  const marks = times.map((ms) => {
    const mark = make("i");
    mark.style.left = `${place(ms, fromMs)}%`;
    mark.title = at(ms);
    return mark;
  });
  const last = entry.next_ms.at(-1);
  const continues = entry.next_ms.length >= NEXT_MAX && last < untilMs;
  if (continues) {
    const rest = make("b");
    rest.style.left = `${Math.max(place(last, fromMs), 0)}%`;
    rest.title = `goes on after ${at(last)}`;
    marks.push(rest);
  }
  lane.classList.toggle("paused", Boolean(entry.paused));
  lane.replaceChildren(...marks);
  const listed = times.map(at).join(", ") || "no occurrence";
  lane.setAttribute("aria-label", `${entry.paused ? "paused; once it is resumed: " : ""}${listed}${continues ? ", and more" : ""}`);
}

function showAxis() {
  const { days, step } = SPANS[strip];
  const fromMs = stripFrom();
  const untilMs = fromMs + days * DAY_MS;
  const isNarrow = $("axis").clientWidth < 600;
  const form = isNarrow ? { day: "numeric", weekday: "short" } : { day: "numeric", month: "short", weekday: "short" };
  const labels = [];
  for (let ms = Math.ceil(fromMs / step) * step; ms < untilMs; ms += step) {
    const date = new Date(ms);
    const text = days === 1 ? `${date.toISOString().slice(11, 16)}Z` : date.toLocaleDateString("en", { ...form, timeZone: "UTC" });
    const label = make("span", text);
    label.style.left = `${place(ms, fromMs)}%`;
    labels.push(label);
  }
  $("axis").replaceChildren(...labels);
  const last = labels.at(-1);
  if (last.offsetLeft + last.offsetWidth > $("axis").clientWidth) last.remove();
}

// ---- the list --------------------------------------------------------------------------------------------------------

function buildRow(entry) {
  const row = make("li", "", "lane-row");
  row.dataset.origin = entry.origin;
  const name = makeButton(entry.id, () => open(entry.origin), "link word");
  const lane = make("div", "", "lane");
  lane.setAttribute("role", "img");
  row.append(name, make("div", "", "soft word when"), make("div", "", "next"), lane);
  fillRow(row, entry);
  return row;
}

function fillRow(row, entry) {
  const { given, inWords } = words(entry);
  row.querySelector(".when").textContent = `${inWords ? `${inWords} (${given})` : given} to ${entry.target}`;
  const next = row.querySelector(".next");
  const state = stateOf(entry);
  next.textContent = state !== "active" ? state : entry.chosen_ms === null ? "–" : `next ${inFuture(entry.chosen_ms)}`;
  next.classList.toggle("warn", state !== "active");
  fillLane(row.querySelector(".lane"), entry);
}

async function readOn(isMore) {
  const mine = listing;
  const show = (lines) => { if (mine === listing) $("schedules-count").textContent = lines.join(" "); };
  await reporting(show, async () => {
    const added = await mine.more();
    if (mine !== listing) return;
    const rows = added.map(buildRow);
    $("lanes").append(...rows);
    $("calendar").hidden = !mine.entries.length;
    showAxis();
    if (isMore) rows[0]?.querySelector("button").focus();
    $("schedules-more").hidden = mine.isComplete;
    show([mine.summary("schedule")]);
  });
}

export function listSchedules(event) {
  event?.preventDefault();
  // A schedule is parked while its target fails, is held or is over its rate. The list contains both states.
  listing = new Listing(...["waiting", "parked"].map((state) => ({ ...fieldsOf($("schedules-form")), recurring: "true", state })));
  $("lanes").replaceChildren();
  $("calendar").hidden = $("schedules-more").hidden = true;
  $("schedules-count").textContent = "Reading.";
  return readOn(false);
}

// ---- one schedule ----------------------------------------------------------------------------------------------------

function table(caption, columns, rows) {
  const made = make("table");
  const head = make("tr");
  for (const [name, className] of columns) {
    const title = make("th", name, className);
    title.scope = "col";
    head.append(title);
  }
  const titles = make("thead");
  titles.append(head);
  const body = make("tbody");
  for (const values of rows) {
    const row = make("tr");
    row.append(...values.map((lines, index) => {
      const [first, ...others] = [lines].flat();
      const made = cell(columns[index][0], first, columns[index][1]);
      made.append(...others.map((line) => make("div", line, "soft")));
      return made;
    }));
    body.append(row);
  }
  made.className = "compact";
  made.append(make("caption", caption), titles, body);
  return made;
}

function outcome(event, zone) {
  const late = () => `${span(Math.max(event.at_ms - (event.chosen_ms ?? event.due_ms), 0))} late`;
  if (event.fate === "occurred") return [String(event.occurrence), times(event.due_ms, zone), `delivered ${late()}`];
  if (event.fate === "skipped") {
    const numbers = event.last === event.occurrence ? String(event.occurrence) : `${event.occurrence} to ${event.last}`;
    return [numbers, "–", `skipped: ${event.reason}`];
  }
  const by = event.by ? ` by ${event.by}` : "";
  if (event.fate === "backfilled") return ["", times(event.first_ms, zone), `backfilled until ${at(event.end_ms)}${by}`];
  return ["", times(event.due_ms ?? event.at_ms, zone), `${event.fate}${by}`];
}

// Returns a row without a lateness, since the nominal time of a backfill is long before its request.
function extras(event, zone) {
  const outcome = `${event.deliveries ?? 1} ${EXTRAS[event.fate]} by ${event.by}, the last one at ${at(event.at_ms)}`;
  return [String(event.number), times(event.due_ms, zone), outcome];
}

const OCCURRENCES = ["occurred", "skipped"];
const CONTROLS = ["paused", "resumed", "triggered", "backfilled"];

// Returns the tables of the last ten occurrences and the last ten controls, and of the last ten extra deliveries.
function latest(history, zone) {
  const last = (fates) => history.events.filter(({ fate }) => fates.includes(fate)).slice(-NEXT_MAX);
  const happened = [...last(OCCURRENCES), ...last(CONTROLS)];
  const events = history.events.filter((event) => happened.includes(event)).reverse();
  const extra = last(Object.keys(EXTRAS)).reverse();
  const caption = history.complete ? "Latest, newest first" : "Latest, as far as the search of the dispatch log came";
  const columns = [["no.", "n"], [nominal(zone), ""], ["outcome", "word"]];
  const made = make("div");
  made.append(
    events.length ? table(caption, columns, events.map((event) => outcome(event, zone))) : table(caption, [["no occurrence yet", "soft"]], []),
  );
  if (extra.length) made.append(table("Extra deliveries, the last one of each control", columns, extra.map((event) => extras(event, zone))));
  return made;
}

function upcoming(entry) {
  if (!entry.next_ms.length) return make("p", "No occurrence follows.", "soft");
  const rows = entry.next_ms.map((ms, index) => [entry.paused ? "–" : String(entry.occurrence + index), times(ms, zoneOf(entry)), entry.paused ? "–" : inFuture(ms)]);
  const caption = entry.paused ? "Next, once it is resumed" : `Next ${rows.length}`;
  return table(caption, [["no.", "n"], [nominal(zoneOf(entry)), ""], ["from now", "soft"]], rows);
}

function facts(entry) {
  const { given, inWords } = words(entry);
  const when = inWords ? `${inWords[0].toLowerCase()}${inWords.slice(1)} (${given})` : given;
  const rules = Object.entries(entry.schedule).filter(([name]) => !["cron", "every", "zone"].includes(name));
  const lines = [
    make("h3", entry.id, "word"),
    make("div", `${stateOf(entry)}, ${when}, for ${entry.target}`, "word"),
  ];
  if (rules.length) lines.push(make("div", rules.map(([name, value]) => `${name} ${value}`).join(", "), "word"));
  for (const extra of entry.extras ?? []) {  // a process of an older version sends none
    const until = extra.end_ms === extra.due_ms ? "" : ` to ${at(extra.end_ms)}`;
    lines.push(make("div", `extra delivery of ${at(extra.due_ms)}${until}`, "word"));
  }
  lines.push(make("div", entry.origin, "word soft"));
  return lines;
}

async function showSchedule(show, origin) {
  const history = await ask(`/api/v1/requests/${origin}`);
  const entry = history.entry;
  const row = [...$("lanes").children].find((each) => each.dataset.origin === origin);
  if (!entry) {
    row?.remove();
    show(paragraph(`${origin}: ${history.state}`), ...(history.events.length ? [latest(history, "")] : []));
    return;
  }
  if (row) {
    fillRow(row, entry);
    const index = listing.entries.findIndex((each) => each.origin === origin);
    if (index >= 0) listing.entries[index] = entry;
  }
  const tables = make("div", "", "two");
  tables.append(upcoming(entry), latest(history, zoneOf(entry)));
  const buttons = changeButtons(entry, () => region.begin(), (later) => showSchedule(later, origin));
  buttons.append(makeButton("Refresh", () => open(origin)));
  show(...facts(entry), buttons, tables);
}

async function open(origin) {
  shown = origin;
  for (const row of $("lanes").children) row.classList.toggle("chosen", row.dataset.origin === shown);
  const show = region.begin();
  $("schedule-section").hidden = false;
  region.element.focus({ preventScroll: true });
  await reporting((lines) => show(...lines.map(paragraph)), () => showSchedule(show, origin));
  $("schedule-section").scrollIntoView({ block: "nearest" });
}

addEventListener("resize", () => { if (listing) showAxis(); });
$("schedules-form").addEventListener("submit", listSchedules);
$("schedules-more").addEventListener("click", () => readOn(true));
for (const button of document.querySelectorAll("[data-strip]")) {
  button.addEventListener("click", () => {
    strip = Number(button.dataset.strip);
    for (const other of document.querySelectorAll("[data-strip]")) other.setAttribute("aria-pressed", String(other === button));
    showAxis();
    for (const row of $("lanes").children) fillLane(row.querySelector(".lane"), listing.entries.find(({ origin }) => origin === row.dataset.origin));
  });
}
