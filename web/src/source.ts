// Where the page's data comes from: the local server, or the block inside a one-file page. Views know only this interface.
import type {
  About, AlertCount, AnnotationList, Bench, BinsHead, Compare, Credit, Diff, EventDetail, IssueBoard, IssuePage, LiveBatch, MethodInfo, OrderReceipt,
  Outcomes, Race, RaceRow, RecurringCauses, Run, RunRow, Talk,
  Traces,
} from "./shapes.gen";

/** The arrays of a trace, decoded. */
export interface Columns {
  n: number;
  ids: string[];
  /** Number of each event in the whole trace; identity unless this is a window of a large one. */
  numbers: Uint32Array | null;
  t: Float64Array;
  dur: Float32Array;
  agent: Uint32Array;
  type: Uint8Array;
  flags: Uint16Array;
  tokens: Uint32Array;
  cost: Float32Array;
  tool: Uint16Array;
  turn: Int32Array;
  src: Uint32Array;
  dst: Uint32Array;
  edge: Uint8Array;
}

export interface Bins {
  head: BinsHead;
  /** Per level: lanes x bins x (family, density). */
  levels: Uint8Array[];
}

/** Refused or failed: what, why, and what would work, as the server or the file says. */
export class SourceError extends Error {
  constructor(readonly what: string, readonly fix: string | null = null, readonly status = 0) {
    super(what);
  }
}

/** What an operator wants of a running team: agent "" is all of it; tree: with all that the agent spawned. */
export interface OrderBody {
  action: string;
  agent: string;
  text: string;
  tree: boolean;
}

/** What a reader says about a trace, or about one event of it; or the id of an annotation that is taken back. */
export interface AnnotationBody {
  event?: string;
  name?: string;
  label?: string;
  score?: number;
  text?: string;
  remove?: string;
}

/** What goes into a file: secrets masked or not, with texts or not, seconds from the beginning of the trace, an agent and all below it. */
export interface Choice {
  mask: boolean;
  texts: boolean;
  range: [number, number] | null;
  agent: string | null;
}

export interface Source {
  readonly kind: "server" | "file";
  /** Absent on a file: it cannot write. */
  readonly canWrite: boolean;
  traces(query: string): Promise<Traces>;
  /** What recurs over the failed runs that a query finds. */
  causes(query: string): Promise<RecurringCauses>;
  /** What recurs over the runs that a query finds, and one of these with its runs. */
  issues(query: string): Promise<IssueBoard>;
  issue(id: string, query: string): Promise<IssuePage>;
  /** Keeps what a reader decides about an issue: open, resolved or ignored; what there is then. */
  decide(id: string, state: string, note: string): Promise<IssuePage>;
  /** How many alerts traces have; those that are not counted unasked are left out. */
  alerts(ids: string[]): Promise<Record<string, AlertCount>>;
  /** The trace as a one-file page, with what was chosen. */
  download(id: string, choice: Choice): Promise<Blob>;
  /** `first`: what can be told at once of a large trace; `is_partial` says that there is more. */
  about(id: string, first?: boolean): Promise<About>;
  columns(id: string): Promise<Columns>;
  bins(id: string, first?: boolean): Promise<Bins>;
  window(id: string, from: number, to: number, limit: number): Promise<Columns>;
  event(id: string, n: number, whole?: boolean): Promise<EventDetail>;
  /** agent -1: all; `tree`: with its sub-agents. */
  talk(id: string, agent: number, tree: boolean, first: number, count: number): Promise<Talk>;
  /** Numbers of the events that match, of a query in the search language; text is searched too. */
  find(id: string, query: string): Promise<number[]>;
  methods(id: string): Promise<MethodInfo[]>;
  credit(id: string, method: string, unit: string): Promise<Credit>;
  outcomes(id: string): Promise<Outcomes>;
  /** Gives the trace an outcome, or accepts a proposal by its place; what there is then. */
  /** Notes, labels and scores: add one, or take one back; the answer is all that is said. Only where `canWrite`. */
  annotate?(id: string, said: AnnotationBody): Promise<AnnotationList>;
  score(id: string, said: { channel?: string; value?: number; note?: string; proposal?: number }): Promise<Outcomes>;
  /** What a panel of `app/viewer/panels` answers; its shape is in shapes.gen.ts. */
  panel<T>(id: string, panel: string): Promise<T>;
  diff(a: string, b: string): Promise<Diff>;
  runs(): Promise<RunRow[]>;
  run(id: string): Promise<Run>;
  /** `anyway`: also what may not be compared, with the reason. */
  compare(spec: string, anyway?: boolean): Promise<Compare>;
  /** Folders of `counterpoint compare methods`, and the rows that come with the package. */
  races(): Promise<RaceRow[]>;
  race(id: string): Promise<Race>;
  /** The leaderboard of results of `counterpoint bench run`; with a name its card, with two both side by side. */
  bench(a: string, b: string): Promise<Bench>;
  fork(id: string, edit: { kind: string; event: string; value: string | null }): Promise<{ id: string; line: string }>;
  /** Sends an order to a running team; the stream says when it has taken effect. */
  steer(id: string, order: OrderBody): Promise<OrderReceipt>;
  /** Calls back with every batch, from `after` on; gives a function that ends it. */
  live(after: number, onBatch: (batch: LiveBatch) => void, onState: (state: "open" | "lost") => void): () => void;
}
