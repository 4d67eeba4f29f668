// Dead letters: lists their reasons and the newest of them, and requeues them after a plan.

import { ask, credentials, reporting } from "./api.js";
import { confirmed, wantToken } from "./dialogs.js";
import { $, Region, at, cell, counted, fieldsOf, make, makeButton, number, paragraph } from "./dom.js";
import { openFromElsewhere } from "./messages.js";

const region = new Region("requeue");
// A requeue changes only the time, so requests with these reasons would be refused again.
const HOPELESS = new Set(["bad-action", "bad-headers"]);
let turn = 0;

// ---- the list --------------------------------------------------------------------------------------------------------

const targetsOf = (group) => group.targets.map(({ target, count }) => `${target ?? "not shown"}: ${number(count)}`).join(", ");

function groupRow(topic, group, asked) {
  const row = make("tr");
  const action = cell("", "");
  const chosen = { topic, reason: group.reason, until: String(group.newest_ms + 1), ...asked };
  const button = makeButton("Requeue…", () => plan(chosen));
  button.setAttribute("aria-label", `Requeue those with ${group.reason}`);
  if (!HOPELESS.has(group.reason)) action.append(button);
  row.append(cell("reason", group.reason, "word state"), cell("count", number(group.count), "n"), cell("targets", targetsOf(group), "word"), cell("newest", at(group.newest_ms)), action);
  return row;
}

function letterRow(letter) {
  const row = make("tr");
  const name = cell("message", "");
  name.append(makeButton(letter.id ?? letter.origin, () => openFromElsewhere(letter.origin), "link word"));
  row.append(cell("died", at(letter.died_ms)), cell("reason", letter.reason, "word"), cell("target", letter.target ?? "", "word"), name, cell("detail", letter.detail ?? "", "word soft"));
  return row;
}

// Fills in the choice of request topics. A query of dead letters must name the topic if the process serves several.
async function topics() {
  const { shards, not_asked: unasked } = await ask("/api/v1/shards");
  const names = [...new Set([...shards, ...unasked].map(({ topic }) => topic))].sort();
  const known = new Set([...$("letters-topic").options].map(({ value }) => value));
  for (const name of names) if (!known.has(name)) $("letters-topic").append(new Option(name, name));
  $("letters-topic-field").hidden = names.length < 2;
}

export async function listLetters(event) {
  event?.preventDefault();
  const mine = (turn += 1);
  const say = (lines) => { if (mine === turn) $("letters-count").textContent = lines.join(" "); };
  say(["Reading."]);
  await reporting(say, async () => {
    await topics();
    const { payload, ...asked } = fieldsOf($("letters-form"));
    const query = new URLSearchParams({ ...asked, ...(payload && { payload }) });
    const found = await ask(`/api/v1/dead-letters?${query}`);
    if (mine !== turn) return;
    const { topic: _, from: __, until: ___, ...filters } = asked;
    // A relative time would have another value by the time of the requeue.
    if (asked.from) filters.from = String(Math.min(...found.groups.map((group) => group.oldest_ms)));
    $("groups").replaceChildren(...found.groups.map((group) => groupRow(found.topic, group, filters)));
    $("letters").replaceChildren(...found.letters.map(letterRow));
    $("groups-table").hidden = $("letters-part").hidden = !found.letters.length;
    const count = found.groups.reduce((total, group) => total + group.count, 0);
    const older = found.complete ? "" : "; there are older ones, which were not read";
    say([`${counted(count, "dead letter")}, as of ${at(Math.floor(Date.now() / 1000) * 1000)}${older}`]);
  });
}

// ---- requeue ---------------------------------------------------------------------------------------------------------

// Returns the sentences about a requeue: dead letters that it skips, missing targets, and messages that it replaces.
function remarks(told) {
  const lines = [];
  if (told.requeued_before) lines.push(`${counted(told.requeued_before, "dead letter")} had been requeued before.`);
  const reasons = new Map();
  for (const { why } of told.outcomes) if (why) reasons.set(why, (reasons.get(why) ?? 0) + 1);
  for (const [why, count] of reasons) lines.push(`${counted(count, "dead letter")} cannot be requeued: ${why}.`);
  if (told.missing_targets.length) {
    lines.push(`Target topics that do not exist: ${told.missing_targets.join(", ")}. Create them first, or these messages become dead letters again.`);
  }
  if (told.with_id) lines.push(`${counted(told.with_id, "message")} with an id: each replaces a pending message with the same id.`);
  if (told.has_more) lines.push("More dead letters match. Repeat it for the others.");
  if (told.older_unread) lines.push("There are older dead letters, which were not read. List those before an earlier time to requeue them, or use postdate dead-letters requeue.");
  return lines;
}

// Returns the field for a new time, and the button that plans the requeue with this time.
function timeField(chosen, time) {
  const field = make("label", "new time for all; empty: the times that they have");
  const input = make("input");
  input.value = time;
  input.placeholder = "RFC 3339, now, 2h";
  input.autocomplete = "off";
  field.append(input);
  const buttons = make("div", "", "line");
  buttons.append(makeButton("Check again", () => plan(chosen, input.value.trim())));
  return { input, field, buttons };
}

async function plan(chosen, time = "") {
  if (!credentials.token && !(await wantToken("A requeue needs the token."))) return;
  const show = region.begin();
  $("requeue-section").hidden = false;
  region.element.focus();
  const { input, field, buttons } = timeField(chosen, time);
  await reporting((lines) => show(...lines.map(paragraph), field, buttons), async () => {
    show(paragraph("Looking for those that were requeued before."));
    const told = await ask("/api/v1/dead-letters/requeue", { ...chosen, ...(time && { at: time }) });
    if (told.requeued) buttons.append(makeButton(`Requeue ${number(told.requeued)}…`, () => requeue(chosen, input.value.trim(), told)));
    const title = make("h3", `${chosen.reason}: ${told.requeued ? counted(told.requeued, "dead letter") : "no dead letter"} can be requeued`, "word");
    show(title, ...remarks(told).map(paragraph), field, buttons);
  });
}

async function requeue(chosen, time, planned) {
  const title = `Requeue ${counted(planned.requeued, "dead letter")}?`;
  const what = `Those with the reason ${chosen.reason}${chosen.target ? ` for ${chosen.target}` : ""} become new requests, ${time ? `due at ${time}` : "with the times that they have: most are due at once"}.`;
  if ((await confirmed({ title, what, yes: "Requeue them" })) === null) return;
  const show = region.begin();
  const { field, buttons } = timeField(chosen, time);
  await reporting((lines) => show(...lines.map(paragraph), field, buttons), async () => {
    show(paragraph("Requeueing."));
    const told = await ask("/api/v1/dead-letters/requeue", { ...chosen, ...(time && { at: time }), execute: true });
    const done = told.outcomes.filter(({ now }) => now).slice(0, 20).map(({ origin, now }) => make("div", `${origin} is now ${now}`, "word soft"));
    show(make("h3", `${counted(told.requeued, "dead letter")} requeued`), ...remarks({ ...told, requeued_before: 0 }).map(paragraph), ...done);
  });
}

$("letters-form").addEventListener("submit", listLetters);
