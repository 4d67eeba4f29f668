// The present state of the deployment: figures, upcoming load, past lateness, shards. It is refreshed every few seconds.

import { $, cell, clock, make, number, span } from "./dom.js";

// The time over which rates are averaged. A shorter time would often show a rate of 0 between two deliveries.
const RATE_MS = 15000;
const DELIVERIES = ["delivered", "occurred", "extra"];
let load = 0;
let deployment = null;
let samples = [];

const sum = (name) => deployment.shards.reduce((total, shard) => total + (shard[name] ?? 0), 0);

// Messages delivered per second, by request topic; null until a message was delivered or RATE_MS have passed.
export function deliveryRates(shown) {
  const counts = {};
  for (const shard of shown.shards) {
    const delivered = DELIVERIES.reduce((total, fate) => total + (shard.fates?.[fate] ?? 0), 0);
    counts[`${shard.process} ${shard.topic}/${shard.partition}`] = { topic: shard.topic, delivered };
  }
  if (samples.at(-1)?.at_ms !== shown.at_ms) samples.push({ at_ms: shown.at_ms, counts });
  while (samples.length > 2 && shown.at_ms - samples[1].at_ms >= RATE_MS) samples.shift();
  const first = samples[0];
  const rates = {};
  let isKnown = shown.at_ms - first.at_ms >= RATE_MS;
  for (const [name, { topic, delivered }] of Object.entries(counts)) {
    // The counters of a shard that has moved to another process are compared only with those of the new process.
    const since = first.counts[name] ? Math.max(delivered - first.counts[name].delivered, 0) : 0;
    rates[topic] = (rates[topic] ?? 0) + (since && (since * 1000) / (shown.at_ms - first.at_ms));
    isKnown ||= since > 0;
  }
  return isKnown ? rates : null;
}

export const perSecond = (rate) => number(rate >= 10 ? Math.round(rate) : Number(rate.toFixed(1)));

function showFigures() {
  $("pending").textContent = number(sum("pending"));
  $("overdue").textContent = number(sum("overdue"));
  $("overdue").classList.toggle("ill", sum("overdue") > 0);
  $("parked").textContent = number(sum("parked"));
  const next = deployment.shards.map((shard) => shard.next_due_ms).filter((ms) => ms !== undefined && ms !== null);
  $("next-due").textContent = next.length ? (Math.min(...next) <= deployment.at_ms ? "now" : span(Math.min(...next) - deployment.at_ms)) : "–";
  const rates = deliveryRates(deployment);
  $("rate").textContent = rates ? perSecond(Object.values(rates).reduce((total, rate) => total + rate, 0)) : "–";
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

export function showOverview(shown) {
  deployment = shown;
  showFigures();
  showLoad();
  showLateness();
  showShards();
}

for (const button of document.querySelectorAll("[data-load]")) {
  button.addEventListener("click", () => {
    load = Number(button.dataset.load);
    for (const other of document.querySelectorAll("[data-load]")) other.setAttribute("aria-pressed", String(other === button));
    if (deployment) showLoad();
  });
}
