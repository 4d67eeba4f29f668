// The two dialogs: one requests the token, the other the confirmation of a change.

import { credentials, setToken } from "./api.js";
import { $ } from "./dom.js";

// Each dialog asks one question at a time. The buttons of the dialog give the answer. The close event alone would not
// be enough: the browser fires it in a later frame, when the dialog may be open again with the next question.
const questions = new Map();
let tokenQuestion = null;

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
  $("token").placeholder = credentials.token ? "unchanged" : "";
  if (await askIn($("token-dialog"))) {
    setToken($("token").value.trim() || credentials.token);
    credentials.name = $("who").value.trim();
  }
  $("token").value = "";
  return Boolean(credentials.token);
}

export function wantToken(why) {
  tokenQuestion ??= askToken(why).finally(() => { tokenQuestion = null; });
  return tokenQuestion;
}

const FIELDS = ["when", "by", "start", "end"];

// Requests the confirmation of a change, and the token if there is none. `fields`: the initial values of the fields
// that are shown. Returns the values of all fields; null if the user cancels.
export async function confirmed({ title, what, yes, fields = {} }) {
  $("change-title").textContent = title;
  $("change-what").textContent = what;
  for (const name of FIELDS) {
    $(`change-${name}`).hidden = fields[name] === undefined;
    $(name).value = fields[name] ?? "";
  }
  $("change-yes").textContent = yes;
  if (!(await askIn($("change-dialog")))) return null;
  if (!credentials.token && !(await wantToken("Changes need the token."))) return null;
  return Object.fromEntries(FIELDS.map((name) => [name, $(name).value.trim()]));
}
