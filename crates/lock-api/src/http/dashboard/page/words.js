// Figures and times as people read them. Times come from the clocks of the cluster, so ages are computed by those, too.

let ahead = 0;

/** What a node says of the time, to know how far this browser's clock is off. */
export function heardTime(date) {
  const theirs = Date.parse(date ?? "");
  // The header has seconds: less than two is no difference.
  if (!Number.isNaN(theirs)) ahead = Math.abs(theirs - Date.now()) < 2000 ? 0 : theirs - Date.now();
}

/** 1234567 as 1,234,567. */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en-US");
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${UNITS[unit]}`;
}

/** A length of time in milliseconds, in its two largest units. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86400)];
  const both = (large, unit, small, smaller) => (small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`);
  if (minutes < 60) return both(minutes, "min", seconds % 60, "s");
  if (hours < 24) return both(hours, "h", minutes % 60, "min");
  return both(days, "d", hours % 24, "h");
}

/** How long ago a time was. */
export function age(at) {
  return at ? duration(Math.max(0, Date.now() + ahead - Date.parse(at))) : "–";
}

/** The time of day here; with the day if that is another one. */
export function clock(at) {
  if (!at) return "–";
  const [time, now] = [new Date(at), new Date(Date.now() + ahead)];
  const day = time.toDateString() === now.toDateString() ? "" : `${time.toLocaleDateString("en-CA")} `;
  return `${day}${time.toLocaleTimeString("en-GB")}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const ENDS = {
  released: "released", upgraded: "upgraded", session_closed: "session closed", session_expired: "session expired",
  broken: "broken", deleted: "deleted", unknown: "end not seen", withdrawn: "gave up", never_grantable: "never grantable", forbidden: "lost the right",
  max_hold: "held too long",
  expired: "expired", closed: "closed",
};

/** How a hold, a wait or a session ended. */
export function ending(word) {
  return ENDS[word] ?? word;
}

/** Who somebody is: what people call it, or else its id. */
export function party(entry) {
  return entry.note || entry.session_name || entry.owner || (entry.session ? `session ${entry.session}` : entry.holder);
}

/** A part of an address. */
export const part = encodeURIComponent;
