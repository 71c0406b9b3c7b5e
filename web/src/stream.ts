// The live stream, resumed where it broke. Always true: batches arrive in order of `seq`, none twice. Read by fetch and not by
// EventSource, because a page that opens late must be able to say from which batch on.
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
