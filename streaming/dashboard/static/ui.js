// The elements that all parts of the page use.

import { Component, h, render } from "./preact.js";
import htm from "./htm.js";
import { dayAndClock, iso, NOTHING } from "./words.js";

export const html = htm.bind(h);
export { Component, h, render };

export const Time = ({ at, text, withMs }) =>
  at == null ? NOTHING : html`<time datetime=${iso(at)} title=${iso(at)}>${text ?? dayAndClock(at, withMs)}</time>`;

const STATES = {
  Stable: ["good", "●"],
  PreparingRebalance: ["busy", "◐"],
  CompletingRebalance: ["busy", "◑"],
  Assigning: ["busy", "◐"],
  Reconciling: ["busy", "◑"],
  NotReady: ["busy", "◌"],
  Empty: ["idle", "○"],
  Dead: ["gone", "✕"],
};
export const State = ({ state }) => {
  const [kind, sign] = STATES[state] ?? ["idle", "?"];
  return html`<span class="state ${kind}"><span aria-hidden="true">${sign}</span> ${state}</span>`;
};

// Each owner has a colour, and from the ninth on also a pattern. Its name is always beside or inside. A member that took
// the seat of another one has the colour of that one.
export const COLOURS = 8;
export const PATTERNS = ["", "hatch", "dots", "cross"];

export class Owners {
  constructor() {
    this.numbers = new Map();
    this.before = new Map();
  }
  inherit(memberId, from) {
    if (memberId !== from && this.root(from) !== memberId) this.before.set(memberId, from);
  }
  root(memberId) {
    let first = memberId;
    while (this.before.has(first)) first = this.before.get(first);
    return first;
  }
  number(ofMember) {
    const memberId = this.root(ofMember);
    if (!this.numbers.has(memberId)) this.numbers.set(memberId, this.numbers.size);
    return this.numbers.get(memberId);
  }
  colour(memberId) {
    return `owner o${this.number(memberId) % COLOURS}`;
  }
  pattern(memberId) {
    const name = PATTERNS[Math.floor(this.number(memberId) / COLOURS) % PATTERNS.length];
    return name && `url(#${name})`;
  }
}

export const Patterns = () => html`
  <svg class="patterns" width="0" height="0" aria-hidden="true"><defs>
    <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" class="ink" /></pattern>
    <pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse"><circle cx="3" cy="3" r="1" class="inkfill" /></pattern>
    <pattern id="cross" width="7" height="7" patternUnits="userSpaceOnUse"><path d="M0 7L7 0M0 0L7 7" class="ink" /></pattern>
    <pattern id="unknown" width="8" height="8" patternUnits="userSpaceOnUse"><path d="M0 8L8 0" class="faint" /></pattern>
  </defs></svg>`;

export const Swatch = ({ owners, id }) => html`
  <svg class="swatch" width="12" height="12" aria-hidden="true">
    <rect x=".5" y=".5" width="11" height="11" class=${owners.colour(id)} />
    ${owners.pattern(id) && html`<rect width="12" height="12" fill=${owners.pattern(id)} />`}
  </svg>`;

export const Problem = ({ text }) => html`<p class="problem" role="status">${text}</p>`;
