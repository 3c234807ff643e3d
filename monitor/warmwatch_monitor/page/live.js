// The daemon's event stream. Reconnects after the daemon restarts.

const AGAIN_MS = 2000;
const SILENT_MS = 6000; // a sample comes every second
const CHANGES = [
  "attached", "state", "condition", "compile_begin", "phase", "compilation", "compile_end",
  "reopened", "warm", "ended", "run", "gone", "source",
];

export function listen({ present, sample, change, connection }) {
  let source = null;
  let lastEvent = Date.now();
  const receive = (handle) => (event) => {
    lastEvent = Date.now();
    connection("live");
    handle(JSON.parse(event.data), event.type);
  };
  function connect() {
    source?.close();
    lastEvent = Date.now();
    source = new EventSource("events?samples=true");
    source.addEventListener("snapshot", receive(present));
    source.addEventListener("reset", receive(present));
    source.addEventListener("sample", receive(sample));
    for (const kind of CHANGES) source.addEventListener(kind, receive(change));
    source.onerror = () => {
      connection("lost");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_MS);
    };
  }
  setInterval(() => {
    if (Date.now() - lastEvent < SILENT_MS || document.hidden) return;
    connection("lost");
    if (source.readyState === EventSource.OPEN) connect(); // the network drops all packets
  }, 1000);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && connect());
  connect();
}
