// A table with sorting, pages and keyboard navigation. Only changed rows are drawn again.

import { Component, html } from "./ui.js";

const PAGE_ROWS = 100;

class Row extends Component {
  shouldComponentUpdate(next) {
    return next.row !== this.props.row || next.columns !== this.props.columns || next.stamp !== this.props.stamp || next.isCurrent !== this.props.isCurrent;
  }
  render({ row, columns, isCurrent, open }) {
    return html`<tr class=${isCurrent ? "current" : ""} onClick=${open && (() => open(row))}>
      ${columns.map((c) => html`<td class=${c.kind ?? ""} data-label=${c.label}>${c.cell(row, isCurrent)}</td>`)}
    </tr>`;
  }
}

const compared = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);

// columns: label, cell(row), and by(row) if it sorts; kind is a class. stamp(row) has the row's other dependencies.
export class Table extends Component {
  constructor(props) {
    super(props);
    this.state = { by: props.by, isDown: props.isDown ?? false, page: 0, current: null };
    this.onKey = this.onKey.bind(this);
  }
  componentDidMount() {
    if (this.props.hasKeys) document.addEventListener("keydown", this.onKey);
  }
  componentWillUnmount() {
    document.removeEventListener("keydown", this.onKey);
  }
  sorted() {
    const { columns, rows, keyOf } = this.props;
    const by = columns.find((c) => c.label === this.state.by)?.by;
    if (!by) return rows;
    const sign = this.state.isDown ? -1 : 1;
    return rows
      .map((row) => [by(row), keyOf(row), row])
      .sort((a, b) =>
        a[0] == null || b[0] == null
          ? (a[0] == null) - (b[0] == null) || compared(a[1], b[1])
          : sign * compared(a[0], b[0]) || compared(a[1], b[1]),
      )
      .map(([, , row]) => row);
  }
  sort(column) {
    const isDown = this.state.by === column.label ? !this.state.isDown : (column.isDownFirst ?? false);
    this.setState({ by: column.label, isDown, page: 0 });
  }
  onKey(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const at = document.activeElement;
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    if (at && at !== document.body && !this.box.contains(at)) {
      if (!(at.matches?.("input") && event.key === "ArrowDown")) return;
    }
    event.preventDefault();
    const rows = this.sorted();
    const found = rows.findIndex((row) => this.props.keyOf(row) === this.state.current);
    const next = found < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, found + step));
    if (!rows[next]) return;
    this.setState({ current: this.props.keyOf(rows[next]), page: Math.floor(next / PAGE_ROWS) }, () =>
      this.box.querySelector("tr.current a")?.focus(),
    );
  }
  head(column) {
    const { by, isDown } = this.state;
    const sorts = by === column.label ? (isDown ? "descending" : "ascending") : "none";
    if (!column.by) return html`<th scope="col" class=${column.kind ?? ""}>${column.label}</th>`;
    return html`<th scope="col" class=${column.kind ?? ""} aria-sort=${sorts}>
      <button type="button" onClick=${() => this.sort(column)}>${column.label}<span aria-hidden="true" class="arrow"
        >${{ none: "", ascending: "↑", descending: "↓" }[sorts]}</span></button>
    </th>`;
  }
  render({ columns, caption, keyOf, stamp, open, empty }) {
    const rows = this.sorted();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
    const page = Math.min(this.state.page, pages - 1);
    const first = page * PAGE_ROWS;
    const visible = rows.slice(first, first + PAGE_ROWS);
    const turn = (to) => () => this.setState({ page: to });
    return html`<div class="tablebox" ref=${(box) => (this.box = box)}>
      <div class="scroll" tabindex=${open ? undefined : "0"} role=${open ? undefined : "region"} aria-label=${caption}>
        <table>
          <caption class="unseen">${caption}</caption>
          <thead><tr>${columns.map((c) => this.head(c))}</tr></thead>
          <tbody>${visible.map(
            (row) => html`<${Row} key=${keyOf(row)} row=${row} columns=${columns} stamp=${stamp?.(row)} open=${open}
              isCurrent=${keyOf(row) === this.state.current} />`,
          )}</tbody>
        </table>
      </div>
      ${rows.length === 0 && html`<p class="empty">${empty}</p>`}
      ${pages > 1 && html`<nav class="pages" aria-label="Pages of ${caption}">
        <button type="button" disabled=${page === 0} onClick=${turn(page - 1)}>Previous</button>
        <span>${first + 1} to ${first + visible.length} of ${rows.length}</span>
        <button type="button" disabled=${page === pages - 1} onClick=${turn(page + 1)}>Next</button>
      </nav>`}
    </div>`;
  }
}
