// The local server as a source. Always true: reads are GET to this page's own server; only `fork`, `score`, `annotate`, `decide` and `steer` write, and
// they carry the token.
import { decodeBins, decodeColumns } from "./decode";
import { listenTogether } from "./stream";
import type {
  About, AlertCount, AnnotationList, Bench, Compare, Credit, Diff, EventDetail, IssueBoard, IssuePage, LiveBatch, MethodInfo, OrderReceipt, Outcomes, Race,
  RaceRow, RecurringCauses, Run, RunRow, Talk, Traces,
} from "./shapes.gen";
import { SourceError, type Bins, type Choice, type Columns, type AnnotationBody, type Source, type OrderBody } from "./source";

export interface Problem {
  what?: string; where?: string | null; why?: string | null; fix?: string | null; exit?: number;
}

/** A refusal of the server as an error that says what, why and what would work. */
export function refusal(status: number, problem: Problem | null): SourceError {
  const what = [problem?.what ?? `The server answered ${status}.`, problem?.why].filter(Boolean).join(": ");
  return new SourceError(what, problem?.fix ?? null, status);
}

export class HttpSource implements Source {
  readonly kind = "server";
  readonly canWrite: boolean;

  /** `onReach` hears of every answer (true) and of every silence (false), so that the page can say "Reconnecting". */
  constructor(private readonly token: string | null, private readonly onReach: (isThere: boolean) => void = () => undefined) {
    this.canWrite = token !== null;
  }

  private async ask(path: string, parameters: Record<string, string | number> = {}, init: RequestInit = {}): Promise<Response> {
    const query = new URLSearchParams(Object.entries(parameters).map(([name, value]) => [name, String(value)])).toString();
    let answer: Response;
    try {
      answer = await fetch(`/api/${path}${query ? `?${query}` : ""}`, init);
    } catch {
      this.onReach(false);
      throw new SourceError("The server does not answer.", "start it again: counterpoint view", 0);
    }
    this.onReach(true);
    if (answer.ok) return answer;
    const body = (await answer.json().catch(() => null)) as { error?: Problem } | null;
    throw refusal(answer.status, body?.error ?? null);
  }

  private async json<T>(path: string, parameters: Record<string, string | number> = {}): Promise<T> {
    return (await this.ask(path, parameters)).json() as Promise<T>;
  }

  private async bytes(path: string, parameters: Record<string, string | number> = {}): Promise<Uint8Array> {
    return new Uint8Array(await (await this.ask(path, parameters)).arrayBuffer());
  }

  traces(query: string): Promise<Traces> { return this.json("traces", { q: query }); }
  causes(query: string): Promise<RecurringCauses> { return this.json("causes", { q: query }); }
  issues(query: string): Promise<IssueBoard> { return this.json("issues", { q: query }); }
  issue(id: string, query: string): Promise<IssuePage> { return this.json(`issues/${encodeURIComponent(id)}`, { q: query }); }
  alerts(ids: string[]): Promise<Record<string, AlertCount>> {
    return this.json(`alerts?${ids.map((id) => `id=${encodeURIComponent(id)}`).join("&")}`);
  }
  async download(id: string, choice: Choice): Promise<Blob> {
    const { range, agent } = choice;
    const part = { ...(range ? { from: range[0], to: range[1] } : {}), ...(agent === null ? {} : { agent }) };
    return (await this.ask(`${at(id)}/file`, { mask: choice.mask ? 1 : 0, texts: choice.texts ? 1 : 0, ...part })).blob();
  }
  about(id: string, first = false): Promise<About> { return this.json(at(id), first ? { first: 1 } : {}); }
  async columns(id: string): Promise<Columns> { return decodeColumns(await this.bytes(`${at(id)}/columns`)); }
  async bins(id: string, first = false): Promise<Bins> {
    return decodeBins(await this.bytes(`${at(id)}/bins`, first ? { first: 1 } : {}));
  }
  async window(id: string, from: number, to: number, limit: number): Promise<Columns> {
    return decodeColumns(await this.bytes(`${at(id)}/window`, { from, to, limit }));
  }
  event(id: string, n: number,
    whole = false): Promise<EventDetail> { return this.json(`${at(id)}/event/${n}`, whole ? { whole: 1 } : {}); }
  talk(id: string, agent: number, tree: boolean, first: number, count: number): Promise<Talk> {
    return this.json(`${at(id)}/talk`, { agent, tree: tree ? 1 : 0, first, count });
  }
  async find(id: string,
    query: string): Promise<number[]> { return (await this.json<{ events: number[] }>(`${at(id)}/find`, { q: query })).events; }
  methods(id: string): Promise<MethodInfo[]> { return this.json(`${at(id)}/methods`); }
  credit(id: string, method: string, unit: string): Promise<Credit> { return this.json(`${at(id)}/credit`, { method, unit }); }
  outcomes(id: string): Promise<Outcomes> { return this.json(`${at(id)}/outcomes`); }
  panel<T>(id: string, panel: string): Promise<T> { return this.json(`${at(id)}/${panel}`); }
  diff(a: string, b: string): Promise<Diff> { return this.json("diff", { a, b }); }
  runs(): Promise<RunRow[]> { return this.json("runs"); }
  run(id: string): Promise<Run> { return this.json("run", { id }); }
  races(): Promise<RaceRow[]> { return this.json("races"); }
  race(id: string): Promise<Race> { return this.json("race", { id }); }
  bench(a: string, b: string): Promise<Bench> { return this.json("bench", { ...(a && { a }), ...(b && { b }) }); }
  compare(spec: string, anyway = false): Promise<Compare> { return this.json("compare", anyway ? { spec, anyway: 1 } : { spec });
    }

  async fork(id: string, edit: { kind: string; event: string; value: string | null }): Promise<{ id: string; line: string }> {
    return this.write(`${at(id)}/fork`, edit);
  }

  annotate(id: string, said: AnnotationBody): Promise<AnnotationList> { return this.write(`${at(id)}/annotations`, said); }

  score(id: string, said: { channel?: string; value?: number; note?: string; proposal?: number }): Promise<Outcomes> {
    return this.write(`${at(id)}/score`, said);
  }

  decide(id: string, state: string, note: string): Promise<IssuePage> {
    return this.write(`issues/${encodeURIComponent(id)}`, { state, note });
  }

  steer(id: string, order: OrderBody): Promise<OrderReceipt> { return this.write(`steer/${encodeURIComponent(id)}`, order); }

  private async write<T>(path: string, body: unknown): Promise<T> {
    const answer = await this.ask(path, {}, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Counterpoint-Token": this.token ?? "" },
      body: JSON.stringify(body),
    });
    return answer.json() as Promise<T>;
  }

  live(after: number, onBatch: (batch: LiveBatch) => void, onState: (state: "open" | "lost") => void): () => void {
    return listenTogether("/api/live", after, onBatch, onState);
  }
}

function at(id: string): string {
  return `t/${encodeURIComponent(id)}`;
}
