// All groups, and the alarms.

import { fetched, Soon, Stream } from "./live.js";
import { Table } from "./table.js";
import { Component, html, Problem, State, Time } from "./ui.js";
import { ago, causeInWords, count, shown } from "./words.js";

const AFRESH_MS = 60_000; // the number of rebalances of the last hour falls with time
const TICK_MS = 1000;
const ALARMS_SHOWN = 5;

export const hrefOf = (groupId, tab) => `#/g/${encodeURIComponent(groupId)}${tab ? `/${tab}` : ""}`;

const COLUMNS = (nowMs) => [
  {
    label: "Group", by: (g) => g.group_id, kind: "id",
    cell: (g) => html`<a href=${hrefOf(g.group_id)} title=${shown(g.group_id, 300)}>${shown(g.group_id)}</a>`,
  },
  { label: "Type", by: (g) => g.type, kind: "minor", cell: (g) => g.type },
  { label: "State", by: (g) => g.state, cell: (g) => html`<${State} state=${g.state} />` },
  { label: "Members", by: (g) => g.members, kind: "num", isDownFirst: true, cell: (g) => count(g.members) },
  { label: "Partitions", by: (g) => g.partitions, kind: "num minor", isDownFirst: true, cell: (g) => count(g.partitions) },
  { label: "Total lag", by: (g) => g.total_lag, kind: "num", isDownFirst: true, cell: (g) => count(g.total_lag) },
  { label: "Generation", by: (g) => g.generation_id, kind: "num minor", isDownFirst: true, cell: (g) => count(g.generation_id) },
  {
    label: "Rebalances/h", by: (g) => g.rebalances_1h, kind: "num", isDownFirst: true,
    cell: (g) => html`<span class=${g.rebalances_1h >= 3 ? "warm" : ""}>${count(g.rebalances_1h)}</span>`,
  },
  {
    label: "Last rebalance", by: (g) => g.last_rebalance_ms, isDownFirst: true, kind: "last",
    cell: (g) => html`<${Time} at=${g.last_rebalance_ms} text=${ago(g.last_rebalance_ms, nowMs())} /> ${" "}
      ${g.last_cause && html`<span class="cause">${causeInWords(g.last_cause)}</span>`}`,
  },
];

const Alarms = ({ alarms }) =>
  alarms.length > 0 &&
  html`<section class="alarms" role="alert" aria-label="Alarms">
    <h2>${count(alarms.length)} ${alarms.length === 1 ? "alarm" : "alarms"}</h2>
    <ul>${alarms.slice(-ALARMS_SHOWN).reverse().map(
      (a) => html`<li><${Time} at=${a.at_ms} /> ${a.group_id != null && html`<b>${shown(a.group_id)}</b>`} ${a.text}</li>`,
    )}</ul>
  </section>`;

export class List extends Component {
  constructor(props) {
    super(props);
    this.groups = new Map();
    this.skewMs = 0;
    this.state = { rows: null, alarms: [], filter: "", problem: null };
    this.columns = COLUMNS(() => this.nowMs());
    this.anew = new Soon(() => this.fetchAll(), 0);
    this.onKey = this.onKey.bind(this);
  }
  nowMs() {
    return Date.now() + this.skewMs;
  }
  componentDidMount() {
    document.title = "Consumer groups";
    this.stream = new Stream(null, {
      ...this.props.told,
      reset: () => this.anew.ask(),
      alarm: () => this.anew.ask(),
      group: (group) => this.take(group),
    });
    this.tick = setInterval(() => this.setState({}), TICK_MS);
    this.afresh = setInterval(() => this.anew.ask(), AFRESH_MS);
    document.addEventListener("keydown", this.onKey);
  }
  componentWillUnmount() {
    this.stream.close();
    this.anew.stop();
    clearInterval(this.tick);
    clearInterval(this.afresh);
    document.removeEventListener("keydown", this.onKey);
  }
  async fetchAll() {
    const changedMeanwhile = (this.changed = new Map());
    try {
      const { at_ms, groups, alarms } = await fetched("api/groups");
      this.skewMs = at_ms - Date.now();
      this.groups = new Map(groups.map((g) => [g.group_id, g]));
      this.setState({ alarms, problem: null });
      this.changed = null;
      for (const group of changedMeanwhile.values()) this.take(group);
      this.draw();
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }
  take(group) {
    this.changed?.set(group.group_id, group);
    if (group.state === "Dead") this.groups.delete(group.group_id);
    else this.groups.set(group.group_id, group);
    this.drawing ??= requestAnimationFrame(() => this.draw());
  }
  draw() {
    this.drawing = null;
    this.setState({ rows: [...this.groups.values()] });
  }
  onKey(event) {
    if (event.key === "/" && !event.target.matches("input")) {
      event.preventDefault();
      this.box.focus();
    }
    if (event.key === "Escape" && event.target === this.box) this.setState({ filter: "" });
  }
  render(_, { rows, alarms, filter, problem }) {
    const wanted = filter.toLowerCase();
    const found = (rows ?? []).filter((g) => `${g.group_id} ${g.state}`.toLowerCase().includes(wanted));
    const nowMs = this.nowMs();
    return html`
      <${Alarms} alarms=${alarms} />
      <div class="tools">
        <h1>${rows ? count(found.length) : ""} ${found.length === 1 ? "group" : "groups"}</h1>
        <input type="search" aria-label="Filter groups" placeholder="Filter  ( / )" value=${filter}
          ref=${(box) => (this.box = box)} onInput=${(event) => this.setState({ filter: event.target.value })} />
      </div>
      ${problem && html`<${Problem} text=${problem} />`}
      <${Table} caption="Groups" columns=${this.columns} rows=${found} keyOf=${(g) => g.group_id} by="Group" hasKeys
        stamp=${(g) => ago(g.last_rebalance_ms, nowMs)}
        open=${(g) => (location.hash = hrefOf(g.group_id))}
        empty=${rows === null ? "Waiting for the groups." : filter ? "No group matches." : "There is no group yet."} />`;
  }
}
