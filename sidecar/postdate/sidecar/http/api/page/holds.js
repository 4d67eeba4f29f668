// Shows, adds and releases holds, and shows the rates of deliveries. The view is refreshed every few seconds.

import { ask, reporting } from "./api.js";
import { confirmed } from "./dialogs.js";
import { $, Region, cell, counted, make, makeButton, number, paragraph, updateChildren } from "./dom.js";
import { deliveryRates, perSecond } from "./overview.js";

const region = new Region("hold-result");
const EFFECTS = {
  delivery: "No message leaves until it is released. Requests are still accepted.",
  intake: "No request is read until it is released. Pending messages are still delivered.",
  target: "No message for this target leaves until it is released. Those that are due wait, in order.",
};
let deployment = null;

const nameOf = (shard) => `${shard.topic}/${shard.partition}`;

// Returns each hold ("delivery", "intake" or "target NAME") with the shards that have it.
function holds() {
  const found = new Map();
  for (const shard of deployment.shards) {
    for (const word of shard.held ?? []) found.set(word, [...(found.get(word) ?? []), shard]);
  }
  return [...found].sort(([one], [other]) => one.localeCompare(other));
}

const bodyOf = (word) => (word.startsWith("target ") ? { what: "target", target: word.slice(7) } : { what: word });

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function showHolds() {
  const found = holds();
  const build = ([word]) => {
    const row = make("tr");
    const action = cell("", "");
    action.append(makeButton("Release", () => change("release", bodyOf(word), "")));
    action.firstChild.setAttribute("aria-label", `Release ${word}`);
    row.append(cell("held", word, "word state"), cell("shards", "", "word"), action);
    return row;
  };
  const fill = (row, [, shards]) => {
    const isEverywhere = shards.length === deployment.shards.length;
    setText(row.children[1], isEverywhere ? `all ${shards.length}` : shards.map(nameOf).join(", "));
  };
  const hadFocus = $("holds").contains(document.activeElement);
  updateChildren($("holds"), found, ([word]) => word, build, fill);
  $("holds-table").hidden = !found.length;
  if (hadFocus && !$("holds").contains(document.activeElement)) region.element.focus();
  setText($("holds-none"), found.length ? "" : "Nothing is held.");
}

// Adds new places and removes none, so that a refresh does not undo a choice while a shard moves to another process.
function showPlaces() {
  const names = [...deployment.shards, ...deployment.not_asked].map(nameOf).sort();
  const topics = [...new Set(names.map((name) => name.slice(0, name.lastIndexOf("/"))))];
  const known = new Set([...$("place").options].map(({ value }) => value));
  for (const place of [...(topics.length > 1 ? topics : []), ...names]) {
    if (!known.has(place)) $("place").append(new Option(place, place));
  }
}

function showRates() {
  const delivered = deliveryRates(deployment);
  const rows = [];
  for (const topic of [...new Set(deployment.shards.map((shard) => shard.topic))].sort()) {
    const shards = deployment.shards.filter((shard) => shard.topic === topic);
    rows.push([topic, "all targets", delivered ? perSecond(delivered[topic] ?? 0) : "–", "–", "–"]);
    for (const rule of shards[0].rates ?? []) {
      const [pattern, limit] = rule.split("=");
      rows.push([topic, pattern, "", limit, number(Number(limit) * shards.length)]);
    }
  }
  const names = ["request topic", "target", "delivered/s", "limit of a shard", "limit of all shards"];
  $("rates").replaceChildren(...rows.map((values) => {
    const row = make("tr");
    row.append(...values.map((value, index) => cell(names[index], value, index > 1 ? "n" : "word")));
    return row;
  }));
}

export function showHoldsAndRates(shown) {
  deployment = shown;
  showHolds();
  showPlaces();
  showRates();
}

// `place`: all shards (empty), a request topic, or one shard.
async function change(action, body, place) {
  const [, topic, partition] = /^(.*)\/(\d+)$/.exec(place) ?? [null, place, undefined];
  const asked = { ...body, ...(topic && { topic }), ...(partition !== undefined && { partition: Number(partition) }) };
  const name = body.target ? `the target ${body.target}` : body.what;
  const isHold = action === "hold";
  const title = `${isHold ? "Hold" : "Release"} ${name}?`;
  const what = `On ${place || "all shards"}. ${isHold ? EFFECTS[body.what] : "What has become due meanwhile leaves at once."}`;
  if ((await confirmed({ title, what, yes: isHold ? "Hold" : "Release" })) === null) return;
  const show = region.begin();
  await reporting((lines) => show(...lines.map(paragraph)), async () => {
    show(paragraph("Request sent."));
    const told = await ask(`/api/v1/${action}`, asked);
    const failed = told.not_asked.map((shard) => paragraph(`${nameOf(shard)} was not changed: ${shard.why}`));
    show(paragraph(`${isHold ? "Held" : "Released"} ${name} on ${counted(told.shards.length, "shard")}.`), ...failed);
    document.dispatchEvent(new Event("changed"));
  });
}

function submit(event) {
  event.preventDefault();
  const what = $("hold-what").value;
  const body = what === "target" ? { what, target: $("hold-target").value.trim() } : { what };
  change(event.submitter.value, body, $("place").value);
}

function showTarget() {
  const isTarget = $("hold-what").value === "target";
  $("hold-target-field").hidden = !isTarget;
  $("hold-target").required = isTarget;
}

$("hold-form").addEventListener("submit", submit);
$("hold-what").addEventListener("change", showTarget);
showTarget();
