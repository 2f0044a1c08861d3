// Server-sent events over fetch, because an EventSource cannot show a token. Comes back by itself, from where it was.

import { headers, link, refusal } from "./api.js";

/** Pauses between attempts to come back: soon at first, for a node that restarts. */
const PAUSES_MS = [300, 600, 1200, 2500, 5000];

/** Something comes every 15 s. After three times that the connection is dead, whatever it looks like. */
const SILENCE_MS = 45_000;

/**
 * Follows the events at `path`. `onEvent(word, data)` for each; `back()` after each pause in which something may have been missed.
 * Returns a function that ends it.
 */
export function follow(path, onEvent, back = () => {}) {
  const ended = new AbortController();
  run(path, onEvent, back, ended.signal);
  return () => ended.abort();
}

async function run(path, onEvent, back, signal) {
  let [last, attempt, isFirst] = [null, 0, true];
  while (!signal.aborted) {
    try {
      await read(path, last, signal, (event) => {
        if (event.id !== null) last = event.id;
        if (event.data === null) return;
        attempt = 0;
        link(true);
        if (!isFirst && event.isFirst) back();
        isFirst = false;
        onEvent(event.word, event.data);
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === undefined) link(false);
      // Who has to prove something first comes back when that is done; the view is made anew then.
      if (error.status === 401 || error.status === 403) return;
    }
    await pause(PAUSES_MS[Math.min(attempt++, PAUSES_MS.length - 1)], signal);
  }
}

async function read(path, last, signal, onEvent) {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await fetch(path, {
      headers: last === null ? headers() : { ...headers(), "Last-Event-ID": last },
      signal: both,
      cache: "no-store",
      credentials: "omit",
    });
    if (!response.ok) throw await refusal(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let [text, isFirst] = ["", true];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = parse(text.slice(0, end));
        text = text.slice(end + 2);
        onEvent({ ...event, isFirst });
        if (event.data !== null) isFirst = false;
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function parse(text) {
  const event = { id: null, word: "message", data: null };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon <= 0) continue;
    const [field, value] = [line.slice(0, colon), line.slice(colon + 2)];
    if (field === "id") event.id = value;
    else if (field === "event") event.word = value;
    else if (field === "data") event.data = JSON.parse(value);
  }
  return event;
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
