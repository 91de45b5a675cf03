// The page: the visible part, and the state of the connection.

import { Group } from "./group.js";
import { List } from "./list.js";
import { Component, html, Patterns, render } from "./ui.js";
import { count, shown } from "./words.js";

// #/ is the list; #/g/ID/TAB is a group, with its id encoded; #/o/OF/ID/TAB is one under another prefix.
const routed = () => {
  const [, where, ...rest] = location.hash.split("/");
  const of = where === "o" ? rest.shift() : null;
  const [id, tab] = rest;
  try {
    if ((where !== "g" && where !== "o") || id == null) return {};
    return { id: decodeURIComponent(id), tab: tab || "members", of: of && decodeURIComponent(of) };
  } catch {
    return {}; // not an encoded id: a user typed it
  }
};

const BADGES = {
  live: ["good", "Live"],
  reconnecting: ["bad", "Reconnecting"],
  "catching up": ["busy", "Catching up"],
  connecting: ["idle", "Connecting"],
};

const Badge = ({ isConnected, status }) => {
  const phase = isConnected === null ? "connecting" : isConnected ? (status?.phase ?? "connecting") : "reconnecting";
  const [kind, text] = BADGES[phase];
  const done = phase === "catching up" && status.of ? ` ${count(status.read)} of ${count(status.of)}` : "";
  const why = isConnected === false ? "The page's server does not answer." : (status?.why ?? "");
  return html`<span id="badge" class="badge ${kind}" role="status" title=${why}>${text}${done}</span>`;
};

class Page extends Component {
  constructor() {
    super();
    this.state = { ...routed(), isConnected: null, status: null, theme: window.theme.get() };
    this.connection = (isConnected) => this.setState({ isConnected });
    this.status = (status) => this.setState({ status });
  }
  componentDidMount() {
    addEventListener("hashchange", () => this.setState({ id: undefined, tab: undefined, of: null, ...routed() }));
  }
  turnTheme() {
    const { all, get, set } = window.theme;
    set(all[(all.indexOf(get()) + 1) % all.length]);
    this.setState({ theme: get() });
  }
  render(_, { id, tab, of, isConnected, status, theme }) {
    const told = { connection: this.connection, status: this.status };
    return html`
      <${Patterns} />
      <header class="top">
        <a class="home" href="#/">Consumer groups</a>
        <span class="right">
          ${status?.phase === "reconnecting" && html`<span class="note" title=${shown(status.why, 500)}>It cannot read on; this is as of before.</span>`}
          <${Badge} isConnected=${isConnected} status=${status} />
          <button type="button" id="theme" onClick=${() => this.turnTheme()}>Theme: ${theme}</button>
        </span>
      </header>
      <main>${id === undefined ? html`<${List} told=${told} />` : html`<${Group} key=${`${of ?? ""} ${id}`} id=${id} tab=${tab} of=${of ?? null} told=${told} />`}</main>`;
  }
}

render(html`<${Page} />`, document.getElementById("app"));
