// The log of actions: who changed what over HTTP, when, and with which answer.

import { ask, reporting } from "./api.js";
import { $, at, cell, counted, make, makeButton } from "./dom.js";
import { openFromElsewhere } from "./messages.js";

const PAGE = 50;
const OLDER_MAX = 1000;
let shown = PAGE;
let turn = 0;

const TIMES = ["at", "from", "until", "start", "end"];

function inWords([name, value]) {
  const text = [value].flat().map((each) => (TIMES.includes(name) && /^\d{13}$/.test(each) ? at(Number(each)) : each)).join(", ");
  return `${name === "id_prefix" ? "id begins with" : name} ${text}`;
}

// Returns the cell with the fields of the body. The fields that name the message or the target come first.
function whatCell(action) {
  const { origin, what: held, target, ...others } = action.asked;
  const made = cell("what", "", "word");
  if (origin) made.append(makeButton(origin, () => openFromElsewhere(origin), "link word"), " ");
  const fields = [target && `target ${target}`, held !== "target" && held, ...Object.entries(others).map(inWords)];
  made.append(fields.filter(Boolean).join(", ") || (origin ? "" : "–"));
  return made;
}

function answerOf({ status, answer }) {
  if (status >= 400) return `refused: ${answer.error ?? status}`;
  if (answer.origins) return `accepted as ${answer.origins.join(", ")}${answer.controls > answer.origins.length ? ", …" : ""}`;
  if (answer.origin) return `accepted as ${answer.origin}`;
  if (answer.requeued !== undefined) return `${counted(answer.requeued, "dead letter")} requeued`;
  if (answer.shards !== undefined) return `${counted(answer.shards, "shard")} changed${answer.not_asked ? `, ${answer.not_asked} not` : ""}`;
  return answer.draining !== undefined ? `${counted(answer.draining, "shard")} handed over` : "done";
}

function row(action) {
  const made = make("tr");
  const who = cell("who", action.who ?? "no name", action.who ? "word" : "soft");
  who.append(make("div", action.address ?? "", "soft"));
  made.append(cell("time", at(action.at_ms), "time"), who, cell("action", action.action.replace("/selected", " many").replace("dead-letters/", ""), "state"), whatCell(action), cell("answer", answerOf(action), action.status >= 400 ? "word ill" : "word"));
  return made;
}

export async function listActions() {
  const mine = (turn += 1);
  const say = (lines) => { if (mine === turn) $("actions-count").textContent = lines.join(" "); };
  await reporting(say, async () => {
    const found = await ask(`/api/v1/actions?limit=${shown}`);
    if (mine !== turn) return;
    $("actions").replaceChildren(...found.actions.map(row));
    $("actions-table").hidden = !found.actions.length;
    $("actions-more").hidden = found.actions.length < shown || shown >= OLDER_MAX;
    const silent = found.not_asked.map(({ process, why }) => `${process} did not answer: ${why}`);
    say([`${found.actions.length ? counted(found.actions.length, "action") : "No action yet"}, as of ${at(Math.floor(Date.now() / 1000) * 1000)}.`, ...silent]);
  });
}

$("actions-again").addEventListener("click", listActions);
$("actions-more").addEventListener("click", () => {
  shown = Math.min(shown * 4, OLDER_MAX);
  return listActions();
});
