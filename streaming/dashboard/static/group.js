// One group: its state, the cause of its last rebalance, and four tabs.

import { hrefOf } from "./list.js";
import { fetched, Soon, Stream } from "./live.js";
import { Table } from "./table.js";
import { Timeline } from "./timeline.js";
import { EVENTS, sentences, Verdict } from "./told.js";
import { Component, html, Owners, Problem, State, Swatch, Time } from "./ui.js";
import { ago, brief, count, cut, duration, learn, many, NOTHING, shown, spans } from "./words.js";

const TABS = { members: "Members", partitions: "Partitions", timeline: "Timeline", commits: "Commits & refusals" };
const TICK_MS = 1000;
const TOLD_AFTER_MS = 150;
const REFUSALS_LATER = 1000; // refusals since the history was loaded
// Records below the log's start: retention has deleted them before the group read them.
const gone = (o) => (o.gone_unread ? html` <span title="below the log's start">${count(o.gone_unread)} gone unread</span>` : "");

// A committed offset beyond the log's end: the topic was made anew, or the offset is wrong.
const beyond = (o) => (o.lag < 0 ? html` <span title="the topic was made anew, or the offset is wrong">beyond the log's end</span>` : "");

const STALE_MS = 300_000; // an older commit is marked if the partition has lag
const REFUSALS = new Set(["commit_rejected", "member_fenced", "member_expired", "offsets_expired", "offsets_deleted", "offsets_dropped", "offsets_forgotten", "offsets_set", "oversized", "epoch_fenced"]);

const placeOf = (row) => `${row.partition} ${row.topic}`;
const keyOf = (event) => `${event.at_ms} ${event.version}`;

const WAITS_SHOWN = 3;

// A member for which a consumer group waits: for the partitions that it has to give up, or for its return.
const wait = ({ member_id: id, partitions: of, since_ms: sinceMs, until_ms: untilMs, is_away: isAway }, nowMs) => {
  const what = isAway ? "to come back" : `to give up ${cut(partitions(of), 60)}`;
  const lasting = sinceMs == null ? "" : `, for ${ago(sinceMs, nowMs).replace(" ago", "")}`;
  return html`<span title=${shown(id, 300)}>${brief(id)}</span> ${what}${lasting}${untilMs != null && html`, until <${Time} at=${untilMs} />`}`;
};

const waits = ({ summary, awaited, waits: running, initializing }, nowMs) => {
  if (partitions(initializing)) return [["Waits for", `the share state of ${cut(partitions(initializing), 60)}`]];
  if (awaited.length === 0) return [];
  if (summary.type !== "classic") {
    const more = running.length - WAITS_SHOWN;
    const shownWaits = running.slice(0, WAITS_SHOWN).map((each, index) => html`${index > 0 && "; "}${wait(each, nowMs)}`);
    return [["Waits for", html`${shownWaits}${more > 0 && `; and ${many(more, "more member")}`}`]];
  }
  const names = html`<span title=${shown(awaited.join(", "), 1000)}>${cut(awaited.map((id) => brief(id)).join(", "), 60)}</span>`;
  return [summary.state === "CompletingRebalance" ? ["Waits for the plan of", names] : ["May wait for", names]];
};

const SEATS_SHOWN = 3;
const named = (id) => html`<span title=${shown(id, 300)}>${id === "" ? "added partitions" : brief(id, 24)}</span>`;
const listed = (all, cell) => html`${all.slice(0, SEATS_SHOWN).map((each, index) => html`${index > 0 && ", "}${cell(each)}`)}${
  all.length > SEATS_SHOWN && ` and ${many(all.length - SEATS_SHOWN, "more")}`}`;

// What policies do now: a rebalance that is held and why, a freeze, members in quarantine.
const holds = ({ hold }, nowMs) => {
  if (hold == null) return [];
  const seats = html`${many(hold.vacant, "vacant seat")}${hold.seats.length > 0 && html` (${listed(hold.seats, (seat) => named(seat.member_id))})`}`;
  const standing = html`${many(hold.standing_by.length, "member")} standing by`;
  const causes = [hold.vacant > 0 && seats, hold.standing_by.length > 0 && standing].filter(Boolean);
  const lasts = hold.since_ms != null && ago(hold.since_ms, nowMs).replace(" ago", "");
  const facts = [];
  if (lasts) facts.push(["Held", html`for ${lasts}, until <${Time} at=${hold.until_ms} /> at the latest: ${causes.map((each, index) => html`${index > 0 && ", "}${each}`)}`, "broad"]);
  if (hold.frozen_until_ms != null) facts.push(["Frozen until", html`<${Time} at=${hold.frozen_until_ms} />`]);
  if (hold.quarantined.length > 0) {
    facts.push(["In quarantine", listed(hold.quarantined, (each) => html`${named(each.member_id)}${each.until_ms != null && html` until <${Time} at=${each.until_ms} />`}`), "broad"]);
  }
  return facts;
};

const subtopologies = (topology) =>
  Object.entries(topology.subtopologies)
    .map(([id, each]) => `${id} reads ${each.sources.join(", ")}${each.changelogs.length ? ` and keeps its state in ${each.changelogs.join(", ")}` : ""}`)
    .join("; ");

const numbers = ({ summary: s, leader, topology }) =>
  s.type !== "classic"
    ? [
        ["Group epoch", count(s.generation_id)],
        ["Assignment epoch", count(s.assignment_epoch)],
        topology == null
          ? ["Assignor", s.protocol_name ? shown(s.protocol_name, 30) : NOTHING]
          : ["Subtopologies", html`<span title=${shown(subtopologies(topology), 1000)}>${Object.keys(topology.subtopologies).length}</span>`],
      ]
    : [
        ["Generation", count(s.generation_id)],
        ["Leader", leader ? html`<span title=${shown(leader, 300)}>${brief(leader, 30)}</span>` : NOTHING],
        ["Protocol", s.protocol_type ? `${shown(s.protocol_type, 30)} / ${s.protocol_name ? shown(s.protocol_name, 30) : NOTHING}` : NOTHING],
      ];

const Strip = ({ detail, nowMs }) => {
  const { summary: s, joins_until_ms: untilMs, moves } = detail;
  const facts = [
    ["Type", s.type],
    ["State", html`<${State} state=${s.state} />${s.kept_by === "kafka" && s.type === "classic" && html` <span class="note">as of its last record</span>`}`, "broad"],
    ...(s.kept_by == null ? [] : [["Kept by", "Kafka's coordinator"]]),
    ...waits(detail, nowMs),
    ...holds(detail, nowMs),
    ["Members", count(s.members)],
    ["Topics", count(s.topics)],
    ["Partitions", count(s.partitions)],
    ...numbers(detail),
    ["Total lag", count(s.total_lag)],
    ...(s.total_gone_unread ? [["Gone unread", count(s.total_gone_unread)]] : []),
    ...(s.partitions_beyond_end ? [["Beyond the log's end", many(s.partitions_beyond_end, "partition")]] : []),
    ["In this state", s.since_ms == null ? NOTHING : html`<${Time} at=${s.since_ms} text=${ago(s.since_ms, nowMs).replace(" ago", "")} />`],
    ["Rebalances/h", count(s.rebalances_1h)],
    ...(untilMs == null ? [] : [["Waits for joins until", html`<${Time} at=${untilMs} />`]]),
  ];
  return html`<dl class="strip">${facts.map(([name, value, kind]) => html`<div class=${kind ?? ""}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${moves.length > 0 && html`<p class="moves note">From here it becomes ${moves.map((m) => `${m.becomes} when ${m.when}`).join(", or ")}.</p>`}`;
};

const Why = ({ why, flapping }) => html`<section class="why" aria-label="Why it last rebalanced">
  <h2>Why it last rebalanced ${why && html`<${Verdict} why=${why} />`}</h2>
  ${why ? html`<p>${sentences(why)}</p>` : html`<p>It has not, as far as its history goes back.</p>`}
  ${flapping.length > 0 && html`<p class="behind"><b>Behind rebalances of the last hour:</b> ${flapping.slice(0, 4).map(
    (f, index) => html`${index > 0 && "; "}${shown(f.client_id, 40)} at ${shown(f.client_host, 40)}: ${
      [many(f.rebalances, "rebalance"), f.dropped && `dropped ${f.dropped}×`, f.fenced && `replaced ${f.fenced}×`].filter(Boolean).join(", ")}`,
  )}${flapping.length > 4 && `; and ${flapping.length - 4} more`}</p>`}
</section>`;

const partitions = (of) => Object.entries(of ?? {}).filter(([, each]) => each.length).map(([topic, each]) => `${shown(topic, 60)} ${spans(each)}`).join(", ");
const work = ({ connectors, tasks }) =>
  [connectors.length && `connectors ${connectors.map((each) => shown(each, 60)).join(", ")}`, partitions(tasks) && `tasks ${partitions(tasks)}`].filter(Boolean).join("; ");
const streams = ({ active, standby, warmup }, isNew) =>
  [["active tasks", active], [isNew ? "standby tasks" : "standby or warm-up tasks", standby], ["warm-up tasks", warmup]]
    .map(([role, names]) => names.length && `${role} ${names.join(" ")}`).filter(Boolean).map((text) => shown(text, 400)).join("; ");
const assignment = (m) => {
  if (m.work !== null) return work(m.work) || "nothing";
  const own = m.assigned === null ? "not in Kafka's format" : partitions(m.assigned) || "nothing";
  return [own, m.streams !== null && streams(m.streams, m.process_id !== null)].filter(Boolean).join("; ");
};
const owns = (m) => m.partitions + (m.work === null ? 0 : m.work.connectors.length + Object.values(m.work.tasks).flat().length);
const subscription = (m) => [...(m.subscribed_topics ?? []).map((topic) => shown(topic, 60)), ...(m.regex ? [`/${shown(m.regex, 60)}/`] : [])].join(", ") || "nothing";
const DOES = { stable: "has its target", unrevoked: "gives up partitions", unreleased: "waits for partitions", away: "is away" };

const STANDING = { standing_by: "stands by", called: "is called for a seat", quarantined: "in quarantine" };

const Who = ({ owners, id }) =>
  id == null ? "nobody" : html`<span class="who" title=${shown(id, 300)}><${Swatch} owners=${owners} id=${id} /> ${brief(id)}</span>`;

const MEMBERS = (owners) => [
  {
    label: "Member", by: (m) => m.member_id, kind: "id",
    cell: (m) => html`<${Who} owners=${owners} id=${m.member_id} />${m.is_leader && html` <span class="tag">leader</span>`}${
      m.standing != null && html` <span class="tag">${STANDING[m.standing] ?? shown(m.standing, 40)}</span>`}${
      m.member_epoch != null && m.protocol === "classic" && html` <span class="tag">classic</span>`}`,
  },
  { label: "Instance id", by: (m) => m.group_instance_id, cell: (m) => shown(m.group_instance_id, 40) },
  { label: "Client id", by: (m) => m.client_id, cell: (m) => shown(m.client_id, 40) },
  { label: "Host", by: (m) => m.client_host, cell: (m) => shown(m.client_host, 40) },
  { label: "Owns", by: owns, kind: "num", isDownFirst: true, cell: (m) => count(owns(m)) },
  { label: "Assignment", kind: "wide", cell: (m) => html`<span class=${owns(m) ? "" : "faded"}>${assignment(m)}</span>` },
  { label: "Session", by: (m) => m.session_timeout_ms, kind: "num", cell: (m) => duration(m.session_timeout_ms) },
  { label: "Rebalance", by: (m) => m.rebalance_timeout_ms, kind: "num", cell: (m) => duration(m.rebalance_timeout_ms) },
];

// The columns that only members of groups with epochs have, before the timeouts.
const OF_CONSUMERS = [
  { label: "Gives up", kind: "wide", cell: (m) => partitions(m.revoking) || NOTHING },
  { label: "Target", kind: "wide", cell: (m) => partitions(m.target) || "nothing" },
  { label: "Epoch", by: (m) => m.member_epoch, kind: "num", cell: (m) => (m.member_epoch === -2 ? "away" : m.member_epoch) },
  { label: "State", by: (m) => m.state, cell: (m) => DOES[m.state] ?? shown(m.state, 40) },
  { label: "Subscribes to", kind: "wide", cell: subscription },
  { label: "Rack", by: (m) => m.rack_id, cell: (m) => shown(m.rack_id, 40) },
];
const CONSUMERS = (owners) => {
  const columns = MEMBERS(owners);
  return [...columns.slice(0, -2), ...OF_CONSUMERS, ...columns.slice(-2)];
};

const place = [
  { label: "Topic", by: (o) => o.topic, kind: "id", cell: (o) => shown(o.topic) },
  { label: "Partition", by: (o) => o.partition, kind: "num", cell: (o) => o.partition },
];

const age = (o, nowMs) => {
  const isStale = o.lag > 0 && o.commit_timestamp_ms != null && nowMs - o.commit_timestamp_ms > STALE_MS;
  return html`<span class=${isStale ? "warm" : ""}><${Time} at=${o.commit_timestamp_ms} text=${ago(o.commit_timestamp_ms, nowMs)} />${isStale && " (stale)"}</span>`;
};

const PARTITIONS = (owners, nowMs) => [
  ...place,
  { label: "Committed", by: (o) => o.committed_offset, kind: "num minor", cell: (o) => count(o.committed_offset) },
  { label: "End", by: (o) => o.end_offset, kind: "num minor", cell: (o) => count(o.end_offset) },
  { label: "Lag", by: (o) => o.lag, kind: "num", isDownFirst: true, cell: (o) => html`<b>${count(o.lag)}</b>${gone(o)}${beyond(o)}` },
  { label: "Owner", by: (o) => o.member_id, cell: (o) => html`<${Who} owners=${owners} id=${o.member_id} />` },
  { label: "Host", by: (o) => o.client_host, cell: (o) => shown(o.client_host, 40) },
  { label: "Last commit", by: (o) => o.commit_timestamp_ms, cell: (o) => age(o, nowMs()) },
];

const CONSUMER_PARTITIONS = (owners, nowMs) => [
  ...PARTITIONS(owners, nowMs),
  { label: "Next owner", by: (o) => o.next_member_id, cell: (o) => (o.next_member_id ? html`<${Who} owners=${owners} id=${o.next_member_id} />` : NOTHING) },
];

const COMMITS = (nowMs) => [
  ...place,
  { label: "Offset", by: (o) => o.committed_offset, kind: "num", cell: (o) => count(o.committed_offset) },
  { label: "Generation", by: (o) => o.commit_generation_id, kind: "num", cell: (o) => (o.commit_generation_id < 0 ? "none" : count(o.commit_generation_id)) },
  { label: "By", by: (o) => o.committed_by, cell: (o) => (o.committed_by ? html`<span title=${shown(o.committed_by, 300)}>${brief(o.committed_by)}</span>` : o.committed_by === null ? "not recorded" : "no member") },
  { label: "When", by: (o) => o.commit_timestamp_ms, isDownFirst: true, cell: (o) => age(o, nowMs()) },
  { label: "Epoch", by: (o) => o.leader_epoch, kind: "num", cell: (o) => count(o.leader_epoch) },
  { label: "Expires", by: (o) => o.expire_timestamp_ms, cell: (o) => html`<${Time} at=${o.expire_timestamp_ms} />` },
  { label: "Metadata", kind: "wide", cell: (o) => (o.metadata ? shown(o.metadata, 200) : NOTHING) },
];

export class Group extends Component {
  constructor(props) {
    super(props);
    this.owners = new Owners();
    this.state = { detail: null, told: null, later: [], problem: null };
    const nowMs = () => Date.now();
    this.columns = {
      classic: { members: MEMBERS(this.owners), partitions: PARTITIONS(this.owners, nowMs) },
      consumer: { members: CONSUMERS(this.owners), partitions: CONSUMER_PARTITIONS(this.owners, nowMs) },
      streams: { members: CONSUMERS(this.owners), partitions: CONSUMER_PARTITIONS(this.owners, nowMs) },
      share: { members: CONSUMERS(this.owners), partitions: PARTITIONS(this.owners, nowMs) },
      commits: COMMITS(nowMs),
    };
    this.range = null; // the wanted period of the history; null for no bound
    this.anew = new Soon(() => this.fetchDetail(), 0);
    this.history = new Soon(() => this.fetchHistory(), TOLD_AFTER_MS);
    this.want = (range) => {
      this.range = range;
      this.history.ask(0);
    };
  }
  componentDidMount() {
    document.title = `${shown(this.props.id, 60)} – consumer group`;
    const told = {
      ...this.props.told,
      reset: () => {
        this.anew.ask();
        this.history.ask(0);
      },
      detail: (detail) => this.take(detail),
      event: (event) => this.tell(event),
    };
    this.stream = new Stream(this.props.id, told, this.props.of);
    this.tick = setInterval(() => this.setState({}), TICK_MS);
  }
  componentDidUpdate(before) {
    if (before.tab !== this.props.tab) this.history.ask(0);
  }
  componentWillUnmount() {
    this.stream.close();
    this.anew.stop();
    this.history.stop();
    clearInterval(this.tick);
  }
  take(detail) {
    for (const member of detail.members) {
      learn(member.member_id, member.client_id);
      this.owners.number(member.member_id);
    }
    this.detail = detail;
    this.drawing ??= requestAnimationFrame(() => {
      this.drawing = null;
      this.setState({ detail: this.detail, problem: null });
    });
  }
  tell(event) {
    if (REFUSALS.has(event.event)) this.setState(({ later }) => ({ later: [...later, event].slice(-REFUSALS_LATER) }));
    if (this.props.tab === "timeline" && this.range?.to === null) this.history.ask();
  }
  async fetchDetail() {
    try {
      this.take(await fetched("api/group", { id: this.props.id, of: this.props.of }));
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }
  async fetchHistory() {
    const isTimeline = this.props.tab === "timeline";
    if (!isTimeline && this.props.tab !== "commits") return;
    if (isTimeline && !this.range) return; // the timeline sets the period first
    try {
      const told = await fetched("api/timeline", { id: this.props.id, of: this.props.of, ...(isTimeline && this.range) });
      for (const [memberId, clientId] of Object.entries(told.client_ids)) learn(memberId, clientId);
      for (const lane of told.lanes) for (const span of lane.spans) {
        if (span.seat_of != null && span.how !== "adopted") this.owners.inherit(span.member_id, span.seat_of);
        this.owners.number(span.member_id);
      }
      this.setState({ told });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }
  refusals(told) {
    const known = new Set((told?.events ?? []).map(keyOf));
    const later = this.state.later.filter((event) => !known.has(keyOf(event)));
    return [...(told?.events ?? []), ...later].filter((event) => REFUSALS.has(event.event));
  }
  tab(detail, told) {
    const nowMs = Date.now();
    const columns = this.columns[detail.summary.type] ?? this.columns.classic;
    switch (this.props.tab) {
      case "partitions":
        return html`<${Table} key="partitions" caption="Partitions" columns=${columns.partitions} rows=${detail.offsets} keyOf=${placeOf}
          by="Lag" isDown stamp=${(o) => ago(o.commit_timestamp_ms, nowMs)} empty="No partition is owned or committed." />`;
      case "timeline":
        return html`<${Timeline} told=${told} owners=${this.owners} want=${this.want} />`;
      case "commits":
        return html`
          <${Table} key="commits" caption="Commits" columns=${this.columns.commits} rows=${detail.offsets.filter((o) => o.committed_offset != null)}
            keyOf=${placeOf} by="Topic" stamp=${(o) => ago(o.commit_timestamp_ms, nowMs)} empty="Nothing is committed." />
          <h2>Refused, replaced, dropped, expired${told?.known_from_ms > 0 && html` <span class="note">since <${Time} at=${told.known_from_ms} /></span>`}</h2>
          <${Table} key="refusals" caption="Refusals" columns=${EVENTS} rows=${this.refusals(told)} keyOf=${keyOf}
            by="Time" isDown empty="Nothing was, as far as its history goes back." />`;
      default:
        return html`<${Table} key="members" caption="Members" columns=${columns.members} rows=${detail.members} keyOf=${(m) => m.member_id}
          stamp=${(m) => this.owners.number(m.member_id)} empty="It has no members." />`;
    }
  }
  turn(event) {
    const names = Object.keys(TABS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const to = names[(names.indexOf(this.props.tab) + step + names.length) % names.length];
    location.replace(hrefOf(this.props.id, to, this.props.of));
    document.getElementById(`tab-${to}`).focus();
  }
  render({ id, tab, of }, { detail, told, problem }) {
    return html`
      <nav class="crumbs" aria-label="Where this is"><a href="#/">All groups</a></nav>
      <h1 class="groupname" title=${shown(id, 300)}>${shown(id, 1000)}</h1>
      ${problem && html`<${Problem} text=${problem} />`}
      ${detail && html`
        <${Strip} detail=${detail} nowMs=${Date.now()} />
        <${Why} why=${detail.why} flapping=${detail.flapping} />
        <div role="tablist" class="tabs" aria-label="What to look into" onKeyDown=${(event) => this.turn(event)}>${Object.entries(TABS).map(
          ([name, label]) => html`<a role="tab" id="tab-${name}" href=${hrefOf(id, name, of)} aria-selected=${name === tab ? "true" : "false"}
            tabindex=${name === tab ? 0 : -1} aria-controls="panel">${label}</a>`,
        )}</div>
        <section role="tabpanel" id="panel" aria-labelledby="tab-${tab}">${this.tab(detail, told)}</section>`}`;
  }
}
