// All groups, and the alarms.

import { fetched, Soon, Stream } from "./live.js";
import { Table } from "./table.js";
import { Component, html, Problem, State, Time } from "./ui.js";
import { ago, causeInWords, count, shown } from "./words.js";

const AFRESH_MS = 60_000; // the number of rebalances of the last hour falls with time
const TICK_MS = 1000;
const ALARMS_SHOWN = 5;
const SOURCES_AGAIN_MS = 2000;

export const hrefOf = (groupId, tab, of = null) =>
  `#/${of == null ? "g" : `o/${encodeURIComponent(of)}`}/${encodeURIComponent(groupId)}${tab ? `/${tab}` : ""}`;
const keyOf = (g) => `${g.of ?? ""} ${g.group_id}`;
const KEEPERS = { kafka: "Kafka" };
const keeperOf = (g) => KEEPERS[g.kept_by] ?? g.of ?? "this coordinator";
const KEPT_BY = { label: "Kept by", by: keeperOf, kind: "minor", cell: keeperOf };

const COLUMNS = (nowMs) => [
  {
    label: "Group", by: (g) => g.group_id, kind: "id",
    cell: (g) => html`<a href=${hrefOf(g.group_id, "", g.of)} title=${shown(g.group_id, 300)}>${shown(g.group_id)}</a>`,
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

// The groups of one prefix: what the server has of them, and its changes. `of` is null for the page's own prefix.
class Source {
  constructor(of, list, told) {
    this.of = of;
    this.list = list;
    this.groups = new Map();
    this.alarms = [];
    this.anew = new Soon(() => this.fetchAll(), 0);
    const ask = () => this.anew.ask();
    this.stream = new Stream(null, { ...told, reset: ask, alarm: ask, group: (group) => this.take(group) }, of);
  }
  async fetchAll() {
    const changedMeanwhile = (this.changed = new Map());
    try {
      const { at_ms, groups, alarms } = await fetched("api/groups", { of: this.of });
      this.list.skewMs = at_ms - Date.now();
      this.groups = new Map(groups.map((g) => [g.group_id, { ...g, of: this.of }]));
      this.alarms = alarms;
      this.list.setState({ problem: null });
      this.changed = null;
      for (const group of changedMeanwhile.values()) this.take(group);
      this.list.draw();
    } catch (error) {
      if (this.of === null) this.list.setState({ problem: error.message });
    }
  }
  take(group) {
    this.changed?.set(group.group_id, group);
    if (group.state === "Dead") this.groups.delete(group.group_id);
    else this.groups.set(group.group_id, { ...group, of: this.of });
    this.list.drawSoon();
  }
  close() {
    this.stream.close();
    this.anew.stop();
  }
}

export class List extends Component {
  constructor(props) {
    super(props);
    this.sources = [];
    this.skewMs = 0;
    this.state = { rows: null, alarms: [], filter: "", problem: null };
    this.columns = COLUMNS(() => this.nowMs());
    this.wide = [...this.columns.slice(0, 1), KEPT_BY, ...this.columns.slice(1)];
    this.others = new Soon(() => this.fetchSources(), SOURCES_AGAIN_MS);
    this.onKey = this.onKey.bind(this);
  }
  nowMs() {
    return Date.now() + this.skewMs;
  }
  componentDidMount() {
    document.title = "Consumer groups";
    this.sources = [new Source(null, this, this.props.told)];
    this.others.ask(0);
    this.tick = setInterval(() => this.setState({}), TICK_MS);
    this.afresh = setInterval(() => this.sources.forEach((source) => source.anew.ask()), AFRESH_MS);
    document.addEventListener("keydown", this.onKey);
  }
  componentWillUnmount() {
    this.others.stop();
    for (const source of this.sources) source.close();
    clearInterval(this.tick);
    clearInterval(this.afresh);
    document.removeEventListener("keydown", this.onKey);
  }
  // The other prefixes that this page shows. Their connections do not change the badge, which is about the page's own.
  async fetchSources() {
    try {
      const { others } = await fetched("api/sources");
      const silent = { connection: () => {}, status: () => {} };
      this.sources.push(...others.map((of) => new Source(of, this, silent)));
    } catch {
      this.others.ask();
    }
  }
  drawSoon() {
    this.drawing ??= requestAnimationFrame(() => this.draw());
  }
  draw() {
    this.drawing = null;
    const alarms = this.sources.flatMap((source) => source.alarms).sort((a, b) => a.at_ms - b.at_ms);
    this.setState({ rows: this.sources.flatMap((source) => [...source.groups.values()]), alarms });
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
      <${Table} caption="Groups" columns=${found.some((g) => g.kept_by != null || g.of != null) ? this.wide : this.columns} rows=${found} keyOf=${keyOf} by="Group" hasKeys
        stamp=${(g) => ago(g.last_rebalance_ms, nowMs)}
        open=${(g) => (location.hash = hrefOf(g.group_id, "", g.of))}
        empty=${rows === null ? "Waiting for the groups." : filter ? "No group matches." : "There is no group yet."} />`;
  }
}
