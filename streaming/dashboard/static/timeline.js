// A group's history as swim lanes: a lane for each partition, a bar for each owner, a stripe for each rebalance, a gap for
// each vacant seat, and a band for the time in which a policy held a rebalance.

import { Table } from "./table.js";
import { EVENTS, sentences, Verdict } from "./told.js";
import { Component, html, Swatch, Time } from "./ui.js";
import { brief, causeInWords, clock, count, cut, dayAndClock, duration, NOTHING, shown } from "./words.js";

const MINUTE_MS = 60_000;
const NO_SEATS = [];
const ZOOMS = [["15 m", 15 * MINUTE_MS], ["1 h", 60 * MINUTE_MS], ["6 h", 360 * MINUTE_MS], ["All", null]];
const LANE = 20;
const LANES_SEEN = 60;
const LANES_BEYOND = 10;
const AXIS = 22;
const CHAR = 6.4;
const TICKS_MS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800].map((s) => s * 1000);
const TICK_WIDTH = 84;
const SPAN_MIN_MS = 5000;
const LEGEND_MAX = 24;
const FOLLOWS_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 5000 : 1000;

const untimed = (r) => (r.ended_ms == null ? "runs" : "not recorded");
const told = (r) => `${causeInWords(r.cause)}, ${r.why.epochs.length ? "group epoch" : "generation"} ${r.generation_id}, ${
  r.duration_ms == null ? untimed(r) : duration(r.duration_ms)}${r.why.client_id ? `, ${shown(r.why.client_id, 60)}` : ""}`;
const keyOf = (r) => `${r.started_ms} ${r.generation_id}`;

const committed = (span) => (span.last_commit_ms == null ? "" : `; its last commit was at ${dayAndClock(span.last_commit_ms, true)}`);
const ended = (span) => (span.because ? `, ended: ${span.because}${committed(span)}` : "");
const HOW = { took: "took the seat of", passed: "stood by, and took the seat of", adopted: "adopted the seat of" };
const seated = (span) => (span.how == null ? "" : ` (${HOW[span.how] ?? "has the seat of"} ${span.seat_of == null ? "added partitions" : brief(span.seat_of)})`);
const ofSeat = (seat) =>
  `Nobody's from ${dayAndClock(seat.vacated_ms, true)}${seat.ended_ms == null ? "" : ` to ${dayAndClock(seat.ended_ms, true)}`}: the seat of ${
    brief(seat.member_id, 60)}${seat.policy == null ? "" : `, kept by ${causeInWords(seat.policy)}`}${
    seat.taken_by == null ? (seat.ended == null ? "" : "; then the group rebalanced") : `; ${brief(seat.taken_by, 60)} has it since`}`;
const ofHold = (hold) =>
  `A rebalance was held by ${hold.policies.map(causeInWords).join(", ")} from ${dayAndClock(hold.from_ms, true)}${
    hold.to_ms == null ? "" : ` to ${dayAndClock(hold.to_ms, true)}`}, for ${hold.causes.map(causeInWords).join(", ")}: ${
    { taken: "there was none", rebalanced: "then it began", emptied: "then the group had no members" }[hold.ended] ?? "it still is"}`;
const ofSpan = (lane, span) =>
  `${shown(span.member_id, 200)} at ${shown(span.client_host, 60)}${seated(span)}, ${shown(lane.topic, 60)}-${lane.partition}${
    span.generation_id == null ? "" : `, generation ${span.generation_id}`}, ${span.from_ms == null ? "since before this history" : dayAndClock(span.from_ms, true)} to ${
    span.to_ms == null ? "now" : dayAndClock(span.to_ms, true)}${ended(span)}`;

const REBALANCES = (choose) => [
  { label: "Began", by: (r) => r.started_ms, isDownFirst: true, kind: "when", cell: (r) => html`${r.how_known === "inferred" && "by "}<button type="button" class="link" onClick=${() => choose(r)}><${Time} at=${r.started_ms} withMs /></button>` },
  { label: "Took", by: (r) => r.duration_ms, kind: "num", isDownFirst: true, cell: (r) => (r.duration_ms == null ? untimed(r) : duration(r.duration_ms)) },
  { label: "Held", by: (r) => r.held_ms, kind: "num", isDownFirst: true, cell: (r) => duration(r.held_ms) },
  { label: "Generation", by: (r) => r.generation_id, kind: "num", cell: (r) => r.generation_id },
  { label: "Cause", by: (r) => r.cause, cell: (r) => causeInWords(r.cause) },
  { label: "Behind it", by: (r) => r.why.member_id, cell: (r) => (r.why.member_id ? brief(r.why.member_id) : NOTHING) },
  { label: "Moved", by: (r) => r.moved, kind: "num", cell: (r) => count(r.moved) },
  { label: "Verdict", by: (r) => r.why.is_avoidable, cell: (r) => html`<${Verdict} why=${r.why} />` },
];

export class Timeline extends Component {
  constructor(props) {
    super(props);
    this.state = { zoom: 0, lengthMs: ZOOMS[0][1], toMs: null, width: 800, top: 0, nowMs: Date.now(), chosen: null };
    this.rebalances = REBALANCES((r) => this.choose(r, true));
    this.reach();
  }
  componentDidMount() {
    this.resizing = new ResizeObserver(([entry]) => this.setState({ width: Math.max(240, Math.floor(entry.contentRect.width)) }));
    this.resizing.observe(this.box);
    this.tick = setInterval(() => this.setState({ nowMs: Date.now() }), FOLLOWS_MS);
  }
  componentDidUpdate(before) {
    if (before.told !== this.props.told) this.reach();
  }
  componentWillUnmount() {
    this.resizing.disconnect();
    clearInterval(this.tick);
  }

  // -- visible period: `toMs` is null while it follows the present, `lengthMs` is null for the whole history

  view() {
    const { toMs, lengthMs, nowMs } = this.state;
    const to = toMs ?? nowMs;
    return { from: to - (lengthMs ?? this.wholeMs(to)), to };
  }
  wholeMs(to) {
    const history = this.props.told;
    if (!history) return ZOOMS[0][1];
    const times = [history.events[0]?.at_ms ?? Infinity, history.rebalances[0]?.started_ms ?? Infinity];
    for (const lane of history.lanes) times.push(lane.spans[0]?.from_ms ?? Infinity);
    const first = history.known_from_ms || Math.min(...times);
    return Number.isFinite(first) ? Math.max(MINUTE_MS, (to - first) * 1.03) : ZOOMS[0][1];
  }
  reach() {
    const { toMs, lengthMs } = this.state;
    const { from, to } = this.view();
    const has = this.wanted;
    const isAll = lengthMs === null;
    const isPast = toMs !== null && !isAll;
    // an answer has the latest part of a period: if it does not reach back, request the period with an earlier end
    const isCut = has && isPast && this.props.told?.known_from_ms > from && (has.to ?? Date.now()) > to + 1;
    const reachesBack = has && (has.from === null || (!isAll && has.from <= Math.max(0, from)));
    const reachesOn = has && (has.to === null || (isPast && has.to >= to));
    if (reachesBack && reachesOn && !isCut) return;
    this.wanted = {
      from: isAll ? null : Math.max(0, Math.floor(from - lengthMs)),
      to: isPast ? Math.ceil(isCut ? to : to + lengthMs) : null,
    };
    this.props.want(this.wanted);
  }
  look(toMs, lengthMs, zoom) {
    const nowMs = Date.now();
    this.setState({ nowMs, toMs: toMs === null || toMs >= nowMs ? null : toMs, lengthMs, zoom }, () => this.reach());
  }
  pan(byMs) {
    const { from, to } = this.view();
    this.look(to + byMs, to - from, this.state.zoom);
  }
  scale(factor) {
    const { from, to } = this.view();
    const lengthMs = Math.max(SPAN_MIN_MS, (to - from) * factor);
    const middle = (from + to) / 2;
    this.look(this.state.toMs === null ? null : middle + lengthMs / 2, lengthMs, null);
  }
  choose(rebalance, isToBeShown) {
    this.setState({ chosen: rebalance && keyOf(rebalance) });
    const { from, to } = this.view();
    if (isToBeShown && (rebalance.started_ms < from || rebalance.started_ms > to)) {
      this.look(rebalance.started_ms + (to - from) / 2, to - from, this.state.zoom);
    }
  }
  onKey(event) {
    const { from, to } = this.view();
    const acts = {
      ArrowLeft: () => this.pan((from - to) / 5),
      ArrowRight: () => this.pan((to - from) / 5),
      "+": () => this.scale(0.5),
      "-": () => this.scale(2),
      End: () => this.look(null, this.state.lengthMs, this.state.zoom),
      n: () => this.step(1),
      p: () => this.step(-1),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }
  step(by) {
    const all = this.props.told?.rebalances ?? [];
    const found = all.findIndex((r) => keyOf(r) === this.state.chosen);
    const next = all[found < 0 ? all.length - 1 : Math.min(all.length - 1, Math.max(0, found + by))];
    if (next) this.choose(next, true);
  }
  onDrag(event) {
    if (event.button !== 0) return;
    const { from, to } = this.view();
    const svg = event.currentTarget;
    const begin = event.clientX;
    const perPixel = (to - from) / (this.state.width - this.label());
    const move = (e) => this.look(to - (e.clientX - begin) * perPixel, to - from, this.state.zoom);
    const end = () => {
      svg.removeEventListener("pointermove", move);
      svg.removeEventListener("pointerup", end);
      svg.removeEventListener("pointercancel", end);
    };
    svg.setPointerCapture(event.pointerId);
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerup", end);
    svg.addEventListener("pointercancel", end);
  }

  // -- drawing

  label() {
    return this.state.width < 600 ? 84 : 150;
  }
  axis(x, { from, to }, holds) {
    const leastMs = ((to - from) * TICK_WIDTH) / (this.state.width - this.label());
    const weekMs = TICKS_MS.at(-1);
    const stepMs = TICKS_MS.find((each) => each > leastMs) ?? Math.ceil(leastMs / weekMs) * weekMs;
    const offsetMs = (new Date(to).getTimezoneOffset() || 0) * MINUTE_MS;
    const ticks = [];
    for (let at = Math.ceil((from - offsetMs) / stepMs) * stepMs + offsetMs; at <= to; at += stepMs) ticks.push(at);
    const text = (at) => (stepMs >= 86_400_000 ? dayAndClock(at).slice(0, 5) : clock(at).slice(0, stepMs < MINUTE_MS ? 8 : 5));
    return html`<svg class="axis" width=${this.state.width} height=${AXIS} role="img" aria-label="Time, from ${dayAndClock(from)} to ${dayAndClock(to)}">
      <g transform="translate(0 ${AXIS - 5})">${this.bands(holds, x, 5, { from, to })}</g>
      ${ticks.map((at) => html`<g><line x1=${x(at)} x2=${x(at)} y1=${AXIS - 5} y2=${AXIS} class="tick" />
        <text x=${x(at)} y="13" class="ticktext" text-anchor="middle">${text(at)}<title>${dayAndClock(at)}</title></text></g>`)}
    </svg>`;
  }
  lane(lane, index, x, { from, to }) {
    const y = index * LANE;
    const left = this.label();
    const right = this.state.width;
    const name = `${shown(lane.topic, 60)}-${lane.partition}`;
    const letters = Math.floor((left - 10) / CHAR);
    const short = name.length > letters ? `…${name.slice(1 - letters)}` : name;
    const bars = [];
    let busyUntil = -1;
    for (const span of lane.spans) {
      if ((span.from_ms ?? 0) > to || (span.to_ms ?? Infinity) < from) continue;
      const begin = Math.max(left, x(span.from_ms ?? Math.max(from, this.props.told.known_from_ms)));
      const end = Math.min(right, x(span.to_ms ?? Math.min(to, this.state.nowMs)));
      if (end - begin < 1 && begin < busyUntil) continue; // bars of less than a pixel overlap at this zoom
      busyUntil = begin + 1;
      const width = Math.max(1, end - begin);
      const text = brief(span.member_id, Math.floor((width - 6) / CHAR));
      const pattern = this.props.owners.pattern(span.member_id);
      bars.push(html`<g class="span" data-member=${span.member_id}>
        <rect x=${begin} y=${y + 2.5} width=${width} height=${LANE - 5} class=${this.props.owners.colour(span.member_id)} />
        ${pattern && html`<rect x=${begin} y=${y + 2.5} width=${width} height=${LANE - 5} fill=${pattern} />`}
        ${width > 5 * CHAR && html`<text x=${begin + 4} y=${y + 14} class="spantext">${text}</text>`}
        <title>${ofSpan(lane, span)}</title>
      </g>`);
    }
    return html`<g key="${lane.partition} ${lane.topic}" class="lane" data-lane=${name}>
      <line x1=${left} x2=${right} y1=${y + LANE / 2} y2=${y + LANE / 2} class="nobody" />
      ${this.gaps(lane, y, x, { from, to })}
      ${bars}
      <text x="2" y=${y + 14} class="lanetext">${short}<title>${name}</title></text>
    </g>`;
  }
  // The vacant seats of a lane: nobody has the partition, and a policy keeps it for somebody.
  gaps(lane, y, x, { from, to }) {
    let busyUntil = -1;
    return this.seats.get(`${lane.partition} ${lane.topic}`)?.map((seat) => {
      if (seat.vacated_ms > to || (seat.ended_ms ?? Infinity) < from) return null;
      const begin = Math.max(this.label(), x(seat.vacated_ms));
      const end = Math.min(this.state.width, x(seat.ended_ms ?? this.state.nowMs));
      if (end - begin < 1 && begin < busyUntil) return null; // as with an owner's bars
      busyUntil = begin + 1;
      return html`<rect key=${seat.vacated_ms} x=${begin} y=${y + 2.5} width=${Math.max(2, end - begin)} height=${LANE - 5} class="vacancy"><title>${ofSeat(seat)}</title></rect>`;
    });
  }
  seatsByLane(seats) {
    if (this.seatsOf === seats) return;
    this.seatsOf = seats;
    this.seats = new Map();
    for (const seat of seats) for (const [topic, numbers] of Object.entries(seat.partitions)) for (const number of numbers) {
      const key = `${number} ${topic}`;
      if (!this.seats.has(key)) this.seats.set(key, []);
      this.seats.get(key).push(seat);
    }
  }
  bands(holds, x, height, { from, to }) {
    let busyUntil = -1;
    return holds.map((hold) => {
      if (hold.from_ms > to || (hold.to_ms ?? Infinity) < from) return null;
      const begin = Math.max(this.label(), x(hold.from_ms));
      const end = Math.min(this.state.width, x(hold.to_ms ?? this.state.nowMs));
      if (end - begin < 1 && begin < busyUntil) return null; // as with an owner's bars
      busyUntil = begin + 1;
      return html`<rect key=${hold.from_ms} x=${begin} y="0" width=${Math.max(2, end - begin)} height=${height} class="hold"><title>${ofHold(hold)}</title></rect>`;
    });
  }
  stripes(rebalances, x, height, { from, to }) {
    const seen = rebalances.filter((r) => r.started_ms <= to && (r.ended_ms ?? Infinity) >= from);
    const left = this.label();
    const busyUntil = { true: -1, false: -1, null: -1 }; // by whether a rebalance was avoidable
    return seen.map((r) => {
      const begin = Math.max(left, x(r.started_ms));
      const end = Math.min(this.state.width, x(r.ended_ms ?? this.state.nowMs));
      const isChosen = keyOf(r) === this.state.chosen;
      if (!isChosen && end - begin < 1 && begin < busyUntil[r.why.is_avoidable]) return null; // as with an owner's bars
      busyUntil[r.why.is_avoidable] = begin + 1;
      const width = Math.max(2, end - begin);
      return html`<rect key=${keyOf(r)} x=${begin} y="0" width=${width} height=${height} tabindex="-1" role="img"
        class="stripe ${r.why.is_avoidable ? "avoidable" : ""} ${isChosen ? "chosen" : ""}" aria-label=${told(r)}
        onClick=${() => this.choose(r)} onFocus=${() => this.choose(r)}><title>${`Rebalance at ${dayAndClock(r.started_ms, true)}: ${told(r)}`}</title></rect>`;
    });
  }
  legend(lanes, { from, to }, isUnderPolicy) {
    const seen = new Set();
    for (const lane of lanes)
      for (const s of lane.spans) if ((s.from_ms ?? 0) <= to && (s.to_ms ?? Infinity) >= from) seen.add(s.member_id);
    const names = [...seen];
    const sample = (kind) => html`<svg width="22" height="12" aria-hidden="true">${kind}</svg>`;
    return html`<ul class="legend" aria-label="Legend">
      ${names.slice(0, LEGEND_MAX).map((id) => html`<li title=${shown(id, 300)}><${Swatch} owners=${this.props.owners} id=${id} /> ${brief(id)}</li>`)}
      ${names.length > LEGEND_MAX && html`<li>and ${names.length - LEGEND_MAX} more</li>`}
      <li>${sample(html`<line x1="0" x2="22" y1="6" y2="6" class="nobody" />`)} nobody's</li>
      ${isUnderPolicy && html`<li>${sample(html`<rect x="4" y="1" width="14" height="10" class="vacancy" />`)} nobody's, a vacant seat</li>
      <li>${sample(html`<rect x="4" width="14" height="12" class="hold" />`)} rebalance held</li>`}
      <li>${sample(html`<rect x="8" width="5" height="12" class="stripe" />`)} rebalance</li>
      <li>${sample(html`<rect x="8" width="5" height="12" class="stripe avoidable" />`)} avoidable rebalance</li>
      <li>${sample(html`<rect width="22" height="12" fill="url(#unknown)" />`)} not known any more, or not shown</li>
    </ul>`;
  }
  details(rebalances) {
    const r = rebalances.find((each) => keyOf(each) === this.state.chosen);
    if (!r) return html`<p class="faded">Choose a rebalance: n and p step through them, arrows pan, + and - zoom.</p>`;
    const names = (ids) => ids.map((id) => brief(id)).join(", ");
    return html`<h3>${dayAndClock(r.started_ms, true)}: ${causeInWords(r.cause)} <${Verdict} why=${r.why} /></h3>
      <p>${sentences(r.why)}</p>
      ${r.joined.length > 0 && html`<p>Joined: ${cut(names(r.joined), 400)}</p>`}
      ${r.gone.length > 0 && html`<p>Gone: ${cut(names(r.gone), 400)}</p>`}`;
  }
  render({ told: history }, { width, top, zoom, toMs }) {
    const view = this.view();
    const left = this.label();
    const x = (at) => left + ((at - view.from) / (view.to - view.from)) * (width - left);
    const lanes = history?.lanes ?? [];
    const rebalances = history?.rebalances ?? [];
    const holds = history?.holds ?? [];
    this.seatsByLane(history?.seats ?? NO_SEATS);
    const height = Math.max(LANE, lanes.length * LANE);
    const first = Math.max(0, Math.floor(top / LANE) - LANES_BEYOND);
    const seen = lanes.slice(first, first + LANES_SEEN + 2 * LANES_BEYOND);
    const unknown = history ? Math.min(width, x(history.known_from_ms)) : 0;
    const events = (history?.events ?? []).filter((e) => e.at_ms >= view.from && e.at_ms <= view.to);
    return html`<div class="timeline" ref=${(box) => (this.box = box)}>
      <div class="tools">
        <div class="zooms" role="group" aria-label="Zoom">${ZOOMS.map(
          ([label, ms], index) => html`<button type="button" aria-pressed=${zoom === index ? "true" : "false"} onClick=${() => this.look(toMs, ms, index)}>${label}</button>`,
        )}</div>
        <div class="zooms" role="group" aria-label="Move">
          <button type="button" aria-label="Earlier" onClick=${() => this.pan((view.from - view.to) / 2)}>←</button>
          <button type="button" aria-label="Later" onClick=${() => this.pan((view.to - view.from) / 2)}>→</button>
          <button type="button" aria-pressed=${toMs === null ? "true" : "false"} onClick=${() => this.look(null, this.state.lengthMs, zoom)}>Now</button>
        </div>
        <span class="faded">${dayAndClock(view.from)} to ${toMs === null ? "now" : dayAndClock(view.to)}</span>
      </div>
      ${this.axis(x, view, holds)}
      <div class="lanes" onScroll=${(event) => this.setState({ top: event.currentTarget.scrollTop })}>
        <svg class="swim" width=${width} height=${height} tabindex="0" role="group" onKeyDown=${(event) => this.onKey(event)} onPointerDown=${(event) => this.onDrag(event)}
          aria-label="Owners of ${lanes.length} partitions over time. Arrow keys pan, plus and minus zoom, n and p step through rebalances.">
          ${unknown > left && html`<rect x=${left} y="0" width=${unknown - left} height=${height} fill="url(#unknown)"><title>What was before is not known any more, or not shown for its length.</title></rect>`}
          ${seen.map((lane, index) => this.lane(lane, first + index, x, view))}
          ${this.bands(holds, x, height, view)}
          ${this.stripes(rebalances, x, height, view)}
        </svg>
      </div>
      ${history && lanes.length === 0 && html`<p class="empty">No partition was owned in this time.</p>`}
      ${this.legend(lanes, view, holds.length > 0)}
      <section class="chosen" aria-live="polite" aria-label="The chosen rebalance">${this.details(rebalances)}</section>
      <h2>Rebalances</h2>
      <${Table} caption="Rebalances" columns=${this.rebalances} rows=${rebalances.filter((r) => r.started_ms <= view.to && (r.ended_ms ?? Infinity) >= view.from)} keyOf=${keyOf} by="Began" isDown empty="None in this time." />
      <h2>Events</h2>
      <${Table} caption="Events" columns=${EVENTS} rows=${events} keyOf=${(e) => `${e.at_ms} ${e.version}`} by="Time" isDown empty="None in this time." />
    </div>`;
  }
}
