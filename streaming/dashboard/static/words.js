// The texts of ids, numbers and times. Clients choose ids, so characters that are invisible, or that reverse text, are
// shown as their codes. All other characters are safe, because ids are only added to the page as text nodes.

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const SUFFIX = /-([0-9a-f]{4})[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=-|$)/g;
export const NOTHING = "–";

const code = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

export const cut = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);
export const shown = (id, max = 80) => (id == null ? NOTHING : id === "" ? "(empty)" : cut(id.replace(UNSEEN, code), max));
// Member ids of the consumer protocol may have no client id in them: these are shown as the client id and their first
// four characters, once the page knows the client id.
const BARE = /^[A-Za-z0-9+/_-]{22}$/;
const clientIds = new Map();
export const learn = (memberId, clientId) => {
  if (clientId && BARE.test(memberId)) clientIds.set(memberId, clientId);
};
export const brief = (memberId, max = 40) => {
  if (memberId == null) return "nobody";
  const clientId = clientIds.get(memberId);
  return shown(clientId == null ? memberId.replace(SUFFIX, "-$1") : `${clientId}-${memberId.slice(0, 4)}`, max);
};

const counted = new Intl.NumberFormat("en");
export const count = (number) => (number == null ? NOTHING : counted.format(number));
export const many = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

export const duration = (ms) => {
  if (ms == null) return NOTHING;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${(ms / 60_000).toFixed(1)} min`;
  return ms < 86_400_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
};
export const ago = (atMs, nowMs) => {
  if (atMs == null) return NOTHING;
  const s = Math.max(0, Math.floor((nowMs - atMs) / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86_400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86_400)} d ago`;
};

const pad = (number, size = 2) => String(number).padStart(size, "0");
// A client may choose times outside the calendar: they are shown as numbers.
const DATE_MS_MAX = 8.64e15;
const isBeyondDates = (ms) => Math.abs(ms) > DATE_MS_MAX;
export const iso = (ms) => (isBeyondDates(ms) ? String(ms) : new Date(ms).toISOString());
export const clock = (ms, withMs = false) => {
  if (isBeyondDates(ms)) return String(ms);
  const t = new Date(ms);
  const text = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return withMs ? `${text}.${pad(t.getMilliseconds(), 3)}` : text;
};
export const dayAndClock = (ms, withMs = false) => {
  if (isBeyondDates(ms)) return String(ms);
  const t = new Date(ms);
  const isToday = t.toDateString() === new Date().toDateString();
  return isToday ? clock(ms, withMs) : `${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${clock(ms, withMs)}`;
};

// Numbers as runs: 0-2 5.
export const spans = (numbers) => {
  const runs = [];
  for (const n of [...numbers].sort((a, b) => a - b)) {
    const run = runs[runs.length - 1];
    if (run && n === run[1] + 1) run[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(" ");
};
export const causeInWords = (cause) => (cause == null ? NOTHING : shown(cause).replaceAll("_", " "));
