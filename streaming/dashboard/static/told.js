// The texts of events and rebalances.

import { html, Time } from "./ui.js";
import { causeInWords } from "./words.js";

const verdict = ({ is_avoidable: isAvoidable }) => (isAvoidable === null ? "Not known" : isAvoidable ? "Avoidable" : "Unavoidable");

export const Verdict = ({ why }) => html`
  <span class="verdict ${why.is_avoidable ? "warm" : "calm"}">${verdict(why)}</span>
  ${why.setting && html`<code class="setting">${why.setting}</code>`}`;

export const sentences = (why) => [why.what, why.who, ...why.details, ...why.policies, why.advice].join(" ");

// A static member that restarts fences its old process, which is no fault.
const NAMES = { member_fenced: "member_replaced" };

export const EVENTS = [
  { label: "Time", by: (e) => e.version, isDownFirst: true, kind: "when", cell: (e) => html`<${Time} at=${e.at_ms} withMs />` },
  { label: "Event", by: (e) => e.event, cell: (e) => causeInWords(NAMES[e.event] ?? e.event) },
  { label: "What happened", kind: "wide", cell: (e) => e.text },
];
