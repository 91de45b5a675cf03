// Answers and changes from the server. A stream resumes at its last change. If that is too long ago, the server sends
// `reset`, and the page loads everything again.

const AGAIN_MS = 2000;

export const fetched = async (path, params = {}) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value != null) query.set(name, value);
  const answer = await fetch(`${path}?${query}`, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `The server answers ${answer.status}.`);
  return body;
};

export class Stream {
  // told: by an event's name, the function that gets its data; `connection` gets whether the stream is connected.
  // of: the prefix of the coordinator's topics; null for the page's own.
  constructor(groupId, told, of = null) {
    this.groupId = groupId;
    this.of = of;
    this.told = told;
    this.last = null;
    this.open();
  }
  open() {
    const query = new URLSearchParams();
    if (this.groupId != null) query.set("id", this.groupId);
    if (this.of != null) query.set("of", this.of);
    if (this.last) query.set("last", this.last);
    this.source = new EventSource(`api/stream?${query}`);
    this.source.onopen = () => this.told.connection(true);
    this.source.onerror = () => {
      this.told.connection(false);
      if (this.source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.open(), AGAIN_MS);
    };
    for (const name of ["status", "reset", "group", "alarm", "event", "detail"]) {
      this.source.addEventListener(name, (event) => {
        if (event.lastEventId) this.last = event.lastEventId;
        this.told[name]?.(JSON.parse(event.data));
      });
    }
  }
  close() {
    clearTimeout(this.timer);
    this.source.close();
  }
}

// Calls `act` soon. The next call waits until it is done, and then `REST` times as long as it took.
const REST = 5;
export class Soon {
  constructor(act, waitMs) {
    this.act = act;
    this.waitMs = waitMs;
    this.timer = this.isBusy = this.isWanted = false;
  }
  ask(waitMs = this.waitMs) {
    if (this.isBusy) this.isWanted = true;
    else if (!this.timer) this.timer = setTimeout(() => this.run(), waitMs);
  }
  async run() {
    const beganMs = performance.now();
    this.timer = this.isWanted = false;
    this.isBusy = true;
    await this.act();
    this.isBusy = false;
    if (this.isWanted) this.ask(Math.max(this.waitMs, REST * (performance.now() - beganMs)));
  }
  stop() {
    clearTimeout(this.timer);
    this.act = async () => {};
  }
}
