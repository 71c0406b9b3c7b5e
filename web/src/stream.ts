// The live stream, resumed where it broke. Always true: batches arrive in order of `seq`, none twice; the tabs of a browser share one
// connection, since a browser opens six to a server at most. Read by fetch and not by EventSource, because a page that opens late must
// be able to say from which batch on.
import type { LiveBatch } from "./shapes.gen";

const WAIT_MS = 3000;

/** The `data` of every whole message in `text`, and what is left over. */
export function messages(text: string): { data: string[]; rest: string } {
  const parts = text.replaceAll("\r\n", "\n").split("\n\n");
  const rest = parts.pop() ?? "";
  const data = parts
    .map((part) => part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).replace(/^ /,
      "")).join("\n"))
    .filter(Boolean);
  return { data, rest };
}

export function listen(
  url: string, after: number, onBatch: (batch: LiveBatch) => void, onState: (state: "open" | "lost") => void,
): () => void {
  const stop = new AbortController();
  let last = after;
  const take = (data: string): void => {
    const batch = JSON.parse(data) as LiveBatch;
    // A reset only has a number: what we missed is forgotten, and the whole picture follows under this number.
    if (!batch.traces) { last = batch.seq - 1; return; }
    if (batch.seq <= last) return;
    last = batch.seq;
    onBatch(batch);
  };
  const read = async (): Promise<void> => {
    const headers: Record<string,
      string> = { Accept: "text/event-stream", ...(last >= 0 ? { "Last-Event-ID": String(last) } : {}) };
    const answer = await fetch(url, { headers, signal: stop.signal, cache: "no-store" });
    if (!answer.ok || !answer.body) throw new Error(`stream: ${answer.status}`);
    onState("open");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const found = messages(rest + value);
      rest = found.rest;
      found.data.forEach(take);
    }
  };
  const keep = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      await read().catch(() => undefined);
      if (stop.signal.aborted) return;
      onState("lost");
      await new Promise((done) => setTimeout(done, WAIT_MS));
    }
  };
  void keep();
  return () => stop.abort();
}

type TabMessage = { kind: "hello" } | { kind: "batch"; batch: LiveBatch } | { kind: "state"; state: "open" | "lost" };

/**
 * The same for all tabs together: whoever holds the browser's lock reads the stream and tells the others. When that tab is closed,
 * the lock goes to another one, which resumes after the last batch that it heard. Without locks (an address that the browser does not
 * trust) each tab reads for itself.
 */
export function listenTogether(
  url: string, after: number, onBatch: (batch: LiveBatch) => void, onState: (state: "open" | "lost") => void,
): () => void {
  if (!("locks" in navigator) || typeof BroadcastChannel === "undefined") return listen(url, after, onBatch, onState);
  const channel = new BroadcastChannel("counterpoint-live");
  const stop = new AbortController();
  let [last, latest, state]: [number, LiveBatch | null, "open" | "lost" | null] = [after, null, null];
  const tell = (told: TabMessage): void => channel.postMessage(told);
  const take = (batch: LiveBatch): void => {
    if (batch.seq <= last) return;
    [last, latest] = [batch.seq, batch];
    onBatch(batch);
  };
  const become = (next: "open" | "lost"): void => { state = next; onState(next); };
  let isReader = false;
  channel.onmessage = ({ data: told }: MessageEvent<TabMessage>) => {
    if (told.kind === "batch") take(told.batch);
    else if (told.kind === "state") { if (!isReader) become(told.state); }
    else if (isReader) {
      // who comes late is told what runs now; its events are no news any more
      if (state) tell({ kind: "state", state });
      if (latest) tell({ kind: "batch", batch: { ...latest, events: {} } });
    }
  };
  tell({ kind: "hello" });
  navigator.locks.request("counterpoint-live", { signal: stop.signal }, () => new Promise<void>((done) => {
    isReader = true;
    const end = listen(url, last, (batch) => { take(batch); tell({ kind: "batch", batch }); },
      (next) => { become(next); tell({ kind: "state", state: next }); });
    stop.signal.addEventListener("abort", () => { end(); done(); });
  })).catch(() => undefined);
  return () => { stop.abort(); channel.close(); };
}
