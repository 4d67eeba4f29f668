// The page of a deployment: switches between its views, and refreshes those that show the present state. The files of
// the page load nothing from other hosts.

import { listActions } from "./actions.js";
import { ask, credentials, Refused } from "./api.js";
import { wantToken } from "./dialogs.js";
import { $, counted } from "./dom.js";
import { showHoldsAndRates } from "./holds.js";
import { listLetters } from "./letters.js";
import { listMessages } from "./messages.js";
import { showOverview } from "./overview.js";
import { listSchedules } from "./schedules.js";
import "./bulk.js";

const REFRESH_MS = 3000;
const FIRST = "overview";
// The functions that fill views which are too expensive for each refresh. Each function runs when its view is first
// shown; that of the log of actions runs whenever its view is shown.
const started = new Set();
const starts = { actions: listActions, letters: listLetters, messages: listMessages, schedules: listSchedules };
const views = [...document.querySelectorAll("[data-view]")];

function trouble(text) {
  $("trouble").hidden = !text;
  if ($("trouble").textContent !== text) $("trouble").textContent = text;
}

async function refresh() {
  try {
    const deployment = await ask("/api/v1/shards");
    trouble(deployment.not_asked.map((shard) => `${shard.topic}/${shard.partition}: ${shard.why}`).join("\n"));
    const processes = new Set(deployment.shards.map((shard) => shard.process)).size;
    const text = `${counted(deployment.shards.length, "shard")}, ${counted(processes, "process", "processes")}`;
    if ($("freshness").textContent !== text) $("freshness").textContent = text;
    showOverview(deployment);
    showHoldsAndRates(deployment);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    trouble(error.message);
    if (error.status !== 401 || credentials.token) return;
    if (await wantToken("Queries of this port need the token.")) {
      started.clear();
      showView(false);
    }
  }
}

// Shows the view that the address names after its `#`. `isMeant`: the user has chosen the view, so it gets the focus.
function showView(isMeant) {
  const wanted = views.find((view) => view.dataset.view === location.hash.slice(1)) ?? views.find((view) => view.dataset.view === FIRST);
  for (const view of views) view.hidden = view !== wanted;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${wanted.dataset.view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = wanted.dataset.view === FIRST ? "Postdate" : `${wanted.getAttribute("aria-label")} · Postdate`;
  if (isMeant) {
    wanted.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  const name = wanted.dataset.view;
  if (name === "actions" || !started.has(name)) starts[name]?.();
  started.add(name);
}

$("token-button").addEventListener("click", () => wantToken("Changes need the token, and so do queries from other machines."));
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  views.find((view) => !view.hidden).focus();
});
addEventListener("hashchange", () => showView(true));
document.addEventListener("changed", refresh);
showView(false);

async function run() {
  await refresh();
  setTimeout(run, REFRESH_MS);
}
run();
