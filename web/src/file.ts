// The block inside a one-file page as a source. Always true: nothing is fetched, nothing is written; what the file does not hold
// is said to be absent, with the command that has it.
import { decodeBins, decodeColumns, fromBase64, unzip } from "./decode";
import { denseColumns, type DenseColumns, type DenseFields, DenseRows } from "./dense";
import { search, terms } from "./search";
import type {
  About, AlertCount, AnnotationInfo, AnnotationList, Bench, Compare, Credit, Diff, EventDetail, IssueBoard, IssuePage, MethodInfo, Neighbour, Outcomes, Race, RaceRow, RecurringCauses, Run, RunRow, Talk, TalkRow, TraceRow,
  Traces,
} from "./shapes.gen";
import { VERSION } from "./shapes.gen";
import { SourceError, type Bins, type Columns, type Source } from "./source";

const SHOWN = 64 * 1024;

/** One trace in the block. */
export interface Packed {
  about: About;
  /** Packed; base64 of the server's bytes in files of version 1. */
  columns: DenseColumns | string;
  bins?: string;
  texts: Record<string, string>;
  /** Packed by field; in files of version 1 the fields by the event's number. */
  events: DenseFields | Record<string, Record<string, unknown>>;
  credit: Record<string, Credit>;
  outcomes?: Outcomes;
  methods: MethodInfo[];
  /** Panel to what it answers. */
  panels: Record<string, unknown>;
}

export interface Block { version: number; made_by: string; masked: unknown; traces: Record<string, Packed> }

/** The block of a page, unpacked. Both a plain and a packed block can be read, so that a file can be made by hand. */
export async function readBlock(element: Element): Promise<Block> {
  const text = (element.textContent ?? "").trim();
  const isPacked = element.getAttribute("data-encoding") === "gzip+base64";
  const json = isPacked ? new TextDecoder().decode(await unzip(fromBase64(text))) : text;
  const block = JSON.parse(json) as Block;
  if (block.version > VERSION) {
    throw new SourceError(`This file was written by a newer version of Counterpoint (format ${block.version}; this page reads up to ${VERSION}).`,
      "open it with a newer counterpoint view");
  }
  return block;
}

export class FileSource implements Source {
  readonly kind = "file";
  readonly canWrite = false;
  private readonly decoded = new Map<string, Columns>();
  private readonly rows = new Map<string, DenseRows>();

  constructor(readonly block: Block) {}

  private packed(id: string): Packed {
    const found = this.block.traces[id];
    if (!found) throw new SourceError(`No trace “${id}” in this file.`, "open the list of its traces", 404);
    return found;
  }

  private arrays(id: string): Columns {
    const known = this.decoded.get(id);
    if (known) return known;
    const { columns: packed, events } = this.packed(id);
    const columns = typeof packed === "string" ? decodeColumns(fromBase64(packed)) : denseColumns(packed, events as DenseFields);
    this.decoded.set(id, columns);
    return columns;
  }

  /** The fields of an event; undefined where they are not in the file. */
  private fields(id: string, n: number): Record<string, unknown> | undefined {
    const packed = this.packed(id);
    if (typeof packed.columns === "string") return (packed.events as Record<string, Record<string, unknown>>)[n];
    let rows = this.rows.get(id);
    if (!rows) this.rows.set(id, rows = new DenseRows(packed.events as DenseFields, this.arrays(id), packed.about));
    return rows.row(n);
  }

  async traces(query: string): Promise<Traces> {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const all = Object.entries(this.block.traces).map(([id, packed]) => row(id, packed.about));
    const rows = all.filter((one) =>
      words.every((word) => `${one.title ?? ""} ${one.id} ${one.task_id} ${one.project ?? ""} ${one.system ?? ""}`.toLowerCase().includes(word)));
    return { store: "this file", rows, found: rows.length, total: all.length, facets: {}, zone: "", remarks: [], version: this.block.made_by };
  }

  async causes(): Promise<RecurringCauses> { throw absent("find what recurs over runs", "counterpoint blame --causes"); }
  async issues(): Promise<IssueBoard> { throw absent("find what recurs over runs", "counterpoint issues"); }
  async issue(): Promise<IssuePage> { throw absent("find what recurs over runs", "counterpoint issues"); }
  async decide(): Promise<IssuePage> { throw absent("keep a decision", "counterpoint issues"); }
  async alerts(ids: string[]): Promise<Record<string, AlertCount>> {
    return Object.fromEntries(ids.map((id) => {
      const all = this.packed(id).about.alerts;
      return [id, { count: all.length, severity: all[0]?.severity ?? "", text: all[0]?.text ?? "" }];
    }));
  }
  async download(): Promise<Blob> { throw absent("make another file", "counterpoint export"); }
  async about(id: string): Promise<About> { return { ...this.packed(id).about, can_fork: false }; }
  async columns(id: string): Promise<Columns> { return this.arrays(id); }

  async bins(id: string): Promise<Bins> {
    const bins = this.packed(id).bins;
    if (!bins) throw new SourceError("This file has no summary of the timeline.", `counterpoint export ${id} --to html -o FILE`);
    return decodeBins(fromBase64(bins));
  }

  async window(id: string, from: number, to: number, limit: number): Promise<Columns> {
    return part(this.arrays(id), from, to, limit);
  }

  async event(id: string, n: number, whole = false): Promise<EventDetail> {
    const packed = this.packed(id);
    const columns = this.arrays(id);
    const fields = this.fields(id, n) ?? { type: packed.about.types[columns.type[n]!],
      agent: packed.about.agents[columns.agent[n]!]?.name };
    const text = packed.texts[n] ?? null;
    const isCut = !whole && text !== null && text.length > SHOWN;
    const { causes, effects } = neighbours(packed.about, columns, n);
    return {
      n, id: columns.ids[n] ?? String(n), fields, text: isCut ? text.slice(0, SHOWN) : text, text_size: text?.length ?? 0,
        is_cut: isCut,
      causes, effects, badge: typeof fields["badge"] === "string" ? fields["badge"] : null,
    };
  }

  async talk(id: string, agent: number, tree: boolean, first: number, count: number): Promise<Talk> {
    const packed = this.packed(id);
    const columns = this.arrays(id);
    const wanted = agent < 0 ? null : tree ? subtree(packed.about, agent) : new Set([agent]);
    const all: number[] = [];
    for (let n = 0; n < columns.n; n++) if (!wanted || wanted.has(columns.agent[n]!)) all.push(n);
    return { total: all.length, first, rows: all.slice(first, first + count).map((n) => line(packed, columns, n, this.fields(id, n) ?? {})) };
  }

  async find(id: string, query: string): Promise<number[]> {
    const packed = this.packed(id);
    const columns = this.arrays(id);
    const says = (i: number, word: string): boolean =>
      (packed.texts[i] ?? "").toLowerCase().includes(word) || (columns.ids[i] ?? "").toLowerCase().includes(word) ||
      nameAndLabel(packed.about, columns.agent[i]!).includes(word) || about(i).some((one) => inNote(one).includes(word)) ||
      (packed.about.tools[columns.tool[i]! - 1] ?? "").toLowerCase().includes(word);
    const notes = (packed.panels?.["annotations"] as AnnotationList | undefined)?.given ?? [];
    const about = (i: number): AnnotationInfo[] => notes.filter((one) => one.event === i);
    const field = (i: number, name: string): unknown => {
      if (name === "score") return about(i).map((one) => one.score);
      if (name === "label") return about(i).flatMap((one) => (one.label === null ? [] : [`${one.name}=${one.label}`])).join("\n");
      if (name === "note") return about(i).map((one) => one.text ?? "").join("\n");
      const value = this.fields(id, i)?.[name];
      if (name !== "reward" || typeof value !== "object" || value === null) return value;
      return Object.values(value).reduce((sum: number, one) => sum + Number(one), 0);
    };
    return search(terms(query), { about: packed.about, columns, credit: null }, { says, field });
  }

  async methods(id: string): Promise<MethodInfo[]> { return this.packed(id).methods; }

  async credit(id: string, method: string, unit: string): Promise<Credit> {
    const packed = this.packed(id);
    const found = packed.credit[`${method}/${unit}`] ?? Object.values(packed.credit).find((one) => one.method === method);
    if (!found) throw new SourceError(`This file has no credit by ${method}.`, `counterpoint credit ${id} --mechanism ${method}`);
    return found;
  }

  async panel<T>(id: string, panel: string): Promise<T> {
    const packed = this.packed(id) as Packed & Record<string, unknown>;
    const found = packed.panels?.[panel] ?? packed[panel]; // files of version 1 have safety beside the rest
    if (found === undefined) throw new SourceError(`This file was written without the panel ${panel}.`, "counterpoint view");
    return found as T;
  }
  async diff(): Promise<Diff> { throw absent("compare two traces", "counterpoint view"); }
  async runs(): Promise<RunRow[]> { return []; }
  async run(): Promise<Run> { throw absent("show training runs", "counterpoint view"); }
  async races(): Promise<RaceRow[]> { return []; }
  async bench(): Promise<Bench> { throw absent("look at the bench", "counterpoint view"); }
  async race(): Promise<Race> { throw absent("compare methods", "counterpoint compare methods --show"); }
  async compare(): Promise<Compare> { throw absent("compare runs", "counterpoint compare runs"); }
  async outcomes(id: string): Promise<Outcomes> { return this.packed(id).outcomes ?? { given: [], proposed: [] }; }

  async score(): Promise<Outcomes> { throw absent("score", "counterpoint notes score"); }

  async fork(): Promise<{ id: string; line: string }> { throw absent("fork", "counterpoint fork"); }
  async steer(): Promise<never> { throw absent("steer", "counterpoint steer"); }

  live(_after: number, _onBatch: unknown, onState: (state: "open" | "lost") => void): () => void {
    onState("lost");
    return () => undefined;
  }
}

function absent(what: string, command: string): SourceError {
  return new SourceError(`A file cannot ${what}.`, command);
}

/** All words of an annotation. */
function inNote(one: AnnotationInfo): string {
  return `${one.name}=${one.label ?? ""}\n${one.text ?? ""}`.toLowerCase();
}

function nameAndLabel(about: About, agent: number): string {
  const one = about.agents[agent];
  return one ? `${one.name}\n${one.label ?? ""}`.toLowerCase() : "";
}

function row(id: string, about: About): TraceRow {
  const reward = Object.values(about.rewards);
  return {
    id, title: about.title ?? null, project: about.project ?? null, models: about.models, date: about.started ?? 0,
      active: about.started === null || about.started === undefined ? 0 : about.started + (about.costs["wall_clock_s"] ?? 0),
      task_id: about.task_id, system: about.system, topology: about.topology,
      agents: about.agents.filter((a) => !a.is_outside).length,
    events: about.events, tokens: about.costs["tokens"] ?? null, cost_usd: about.costs["cost_usd"] ?? null,
      seconds: about.costs["wall_clock_s"] ?? null,
    reward: about.rewards["team"] ?? reward[0] ?? null, errors: about.errors ?? 0, problems: 0,
      unpriced: Object.values(about.unpriced ?? {}).reduce((sum, one) => sum + one, 0), is_open: false, is_steered: about.is_steered ?? false,
      waits: "", since: null, parent: null, lanes: [],
  };
}

/** The agent and everyone below it. */
export function subtree(about: About, agent: number): Set<number> {
  const found = new Set([agent]);
  for (let grew = true; grew;) {
    grew = false;
    about.agents.forEach((one, i) => { if (!found.has(i) && found.has(one.parent)) { found.add(i); grew = true; } });
  }
  return found;
}

function neighbours(about: About, columns: Columns, n: number): { causes: Neighbour[]; effects: Neighbour[] } {
  const of = (other: number, edge: number): Neighbour => ({
    n: other, id: columns.ids[other] ?? String(other), type: about.types[columns.type[other]!] ?? "unknown",
      agent: columns.agent[other]!,
    edge: about.edge_types[edge] ?? "unknown",
  });
  const causes: Neighbour[] = [];
  const effects: Neighbour[] = [];
  for (let i = 0; i < columns.src.length; i++) {
    if (columns.dst[i] === n) causes.push(of(columns.src[i]!, columns.edge[i]!));
    if (columns.src[i] === n) effects.push(of(columns.dst[i]!, columns.edge[i]!));
  }
  return { causes, effects };
}

function line(packed: Packed, columns: Columns, n: number, fields: Record<string, unknown>): TalkRow {
  const agent = columns.agent[n]!;
  const text = packed.texts[n] ?? "";
  const to = packed.about.agents.findIndex((one) => one.name === (fields["recipient"] ?? fields["to"]));
  const flags = columns.flags[n]!;
  return {
    n, t: columns.t[n]!, type: packed.about.types[columns.type[n]!] ?? "unknown", agent, to,
      tool: packed.about.tools[columns.tool[n]! - 1] ?? null,
    text: text.slice(0, SHOWN), text_size: text.length, is_cut: text.length > SHOWN, trusted: (flags & 1) !== 0 ? false : null,
    ok: (flags & 4) !== 0 ? false : null, tokens: columns.tokens[n] || null, depth: packed.about.agents[agent]?.depth ?? 0,
  };
}

/** The events of a window of time, at most `limit`, with their numbers. */
export function part(columns: Columns, from: number, to: number, limit: number): Columns {
  const kept: number[] = [];
  for (let i = 0; i < columns.n && kept.length < limit; i++) {
    if (columns.t[i]! + (columns.dur[i]! || 0) >= from && columns.t[i]! <= to) kept.push(i);
  }
  const pick = <T extends { [i: number]: number; length: number }>(Kind: new (n: number) => T, from: T): T => {
    const out = new Kind(kept.length);
    kept.forEach((i, k) => { out[k] = from[i]!; });
    return out;
  };
  return {
    n: kept.length, ids: kept.map((i) => columns.ids[i]!), numbers: Uint32Array.from(kept, (i) => columns.numbers?.[i] ?? i),
    t: pick(Float64Array, columns.t), dur: pick(Float32Array, columns.dur), agent: pick(Uint32Array, columns.agent),
    type: pick(Uint8Array, columns.type), flags: pick(Uint16Array, columns.flags), tokens: pick(Uint32Array, columns.tokens),
    cost: pick(Float32Array, columns.cost), tool: pick(Uint16Array, columns.tool), turn: pick(Int32Array, columns.turn),
    src: new Uint32Array(0), dst: new Uint32Array(0), edge: new Uint8Array(0),
  };
}
