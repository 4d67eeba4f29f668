// The messages that match the selectors: lists them, or counts them and then changes all of them.

import { ask, reporting, Refused } from "./api.js";
import { confirmed } from "./dialogs.js";
import { $, Region, counted, fieldsOf, make, makeButton, number, paragraph } from "./dom.js";
import { FOLLOW_TRIES_MAX, listMessages, pause, refusal } from "./messages.js";

const selected = new Region("selected");

const NAMES = { id_prefix: "an id that begins with", from: "due from", until: "due before" };
const BULK = {
  cancel: { button: "Cancel them", verb: "Cancel", done: "cancelled", note: " This cannot be undone." },
  reschedule: { button: "Move them", verb: "Move", done: "moved", note: "" },
  deliver: { button: "Deliver them now", verb: "Deliver", done: "moved to the present", note: "" },
};

async function countSelected() {
  const { state: _, ...asked } = fieldsOf($("select"));
  const show = selected.begin();
  if (!Object.keys(asked).length) {
    show(paragraph("Fill in at least one field."));
    return;
  }
  await reporting((lines) => show(...lines.map(paragraph)), async () => {
    show(paragraph("Counting."));
    const found = await ask(`/api/v1/pending/selected?${new URLSearchParams(asked)}`);
    const whole = found.exact && !found.not_asked.length;
    const lines = Object.entries(found.targets).map(([target, count]) => make("div", `${target}: ${number(count)}`, "word"));
    const buttons = make("div", "", "line");
    for (const [action, { button }] of Object.entries(BULK)) {
      buttons.append(makeButton(button, () => changeSelected(action, asked, found, show)));
    }
    const total = make("p", `${counted(found.count, "message")}${whole ? "" : " or more"}`, "word state");
    show(total, ...lines, ...(found.count ? [buttons] : []));
  });
}

async function changeSelected(action, asked, found, show) {
  const { button, verb, done, note } = BULK[action];
  const words = Object.entries(asked).map(([name, value]) => `${NAMES[name] ?? name} ${value}`).join(", ");
  const title = `${verb} ${counted(found.count, "message")}?`;
  const what = `Every pending message with ${words}.${note}`;
  const answer = await confirmed({ title, what, yes: button, fields: action === "reschedule" ? { by: "" } : {} });
  if (answer === null) return;
  const origins = [];
  const report = (lines) => {
    const accepted = origins.length ? [`Accepted: ${origins.join(", ")}`] : [];
    show(...[...lines, ...accepted].map(paragraph));
  };
  await reporting(report, async () => {
    for (const topic of new Set([...found.shards, ...found.not_asked].map((shard) => shard.topic))) {
      const told = await ask(`/api/v1/${action}/selected`, { ...asked, topic, ...(action === "reschedule" && { by: answer.by }) });
      origins.push(...told.controls.map(({ origin }) => origin));
    }
    let ended = 0;
    for (const origin of origins) ended += await appliedCount(origin, done, show);
    show(make("p", `${counted(ended, "message")} ${done}`, "word state"));
  });
}

// Waits for the end of a bulk control; returns the number of messages on which it acted, which its final fate contains.
async function appliedCount(control, done, show) {
  for (let tries = 0; tries < FOLLOW_TRIES_MAX; tries += 1) {
    const history = await ask(`/api/v1/requests/${control}`).catch(() => null);
    const last = history?.events.at(-1);
    if (history?.state === "applied") return last.count;
    if (history?.state === "dead") throw new Refused(0, refusal(control, history));
    show(paragraph(`Accepted as ${control}. ${counted(last?.count ?? 0, "message")} ${done} so far.`));
    await pause(500);
  }
  throw new Refused(0, `${control} has not ended yet. Look at the shards.`);
}

$("select").addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter?.value === "count") countSelected();
  listMessages();
});
