// Requests to the API. The token and the name of the user are kept only in memory.

import { $ } from "./dom.js";

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const credentials = { token: "", name: "" };

export function setToken(token) {
  credentials.token = token;
  $("token-button").textContent = token ? "Token set" : "Token";
}

export async function ask(path, body) {
  const headers = credentials.token ? { Authorization: `Bearer ${credentials.token}` } : {};
  if (credentials.name) headers["Postdate-Actor"] = encodeURIComponent(credentials.name);
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

// Runs `work`, and passes the lines of an error of the API to `show`. Removes a token that the API rejects.
export async function reporting(show, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) setToken("");
    show(error.message.split("\n"));
    return undefined;
  }
}
