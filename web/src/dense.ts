// Columns and fields of a one-file page, unpacked. Always true: what comes out is what `counterpoint.app.viewer.dense` packed, whose
// docstring says how; a field that an event does not have stays absent.
import { COLUMNS, type About } from "./shapes.gen";
import type { Columns } from "./source";

/** A list of values, packed. */
export interface DenseList {
  v?: unknown[];
  d?: number[];
  of?: unknown[];
  c?: number[];
  s?: number;
  sum?: string[];
  same?: true;
  at?: number[];
}

export interface DenseColumns {
  events: number;
  edges: number;
  ids: { v?: string[]; stem?: DenseList; number?: DenseList };
  columns: Record<string, DenseList>;
}

export type DenseFields = Record<string, DenseList>;

const KINDS = {
  float64: Float64Array, float32: Float32Array, uint32: Uint32Array, int32: Int32Array, uint16: Uint16Array, uint8: Uint8Array,
} as const;

/** From steps to places. */
function summed(steps: readonly number[]): number[] {
  let at = 0;
  return steps.map((step) => (at += step));
}

export function values(packed: DenseList): unknown[] {
  const found = packed.d ? summed(packed.d) : packed.c ? packed.c.map((k) => packed.of![k]) : packed.v ?? [];
  return packed.s ? found.map((one) => (one as number) / packed.s!) : found;
}

/** The arrays of a trace; `fields` are those of its events, which some columns are sums of. */
export function denseColumns(packed: DenseColumns, fields: DenseFields): Columns {
  const arrays: Record<string, { [i: number]: number; length: number }> = {};
  for (const [name, dtype] of Object.entries(COLUMNS)) {
    const length = name === "src" || name === "dst" || name === "edge" ? packed.edges : packed.events;
    const list = packed.columns[name];
    const out = new KINDS[dtype](length);
    if (list?.sum) total(out, list.sum, fields, name === "dur" ? NaN : 0);
    else if (list) values(list).forEach((one, i) => { out[i] = one === null ? NaN : one as number; });
    arrays[name] = out;
  }
  for (let i = 0; i < packed.edges; i++) arrays["src"]![i] = arrays["dst"]![i]! - arrays["src"]![i]!;
  return { n: packed.events, ids: ids(packed.ids), numbers: null, ...arrays } as unknown as Columns;
}

function ids(packed: DenseColumns["ids"]): string[] {
  if (packed.v) return packed.v;
  const stems = values(packed.stem ?? {});
  return values(packed.number ?? {}).map((number, i) => `${String(stems[i])}${String(number)}`);
}

/** Sums are made in double precision and then cut to the column's, as they were. */
function total(out: { [i: number]: number; length: number }, names: readonly string[], fields: DenseFields, absent: number): void {
  const sums = new Float64Array(out.length).fill(NaN);
  for (const name of names) {
    const list = fields[name];
    if (!list) continue;
    const at = list.at ? summed(list.at) : null;
    values(list).forEach((one, i) => {
      const n = at ? at[i]! : i;
      sums[n] = (Number.isNaN(sums[n]!) ? 0 : sums[n]!) + Number(one);
    });
  }
  sums.forEach((sum, n) => { out[n] = Number.isNaN(sum) ? absent : sum; });
}

/** The fields of events, one event at a time. */
export class DenseRows {
  private readonly lists: { name: string; list: unknown[] | null; place: Map<number, number> | null }[];

  constructor(fields: DenseFields, private readonly columns: Columns, private readonly about: About) {
    this.lists = Object.entries(fields).map(([name, packed]) => ({
      name, list: packed.same ? null : values(packed),
      place: packed.at ? new Map(summed(packed.at).map((n, i) => [n, i])) : null,
    }));
  }

  row(n: number): Record<string, unknown> | undefined {
    if (!this.lists.length) return undefined;
    const out: Record<string, unknown> = {};
    for (const { name, list, place } of this.lists) {
      const at = place ? place.get(n) : n;
      if (at !== undefined) out[name] = list ? list[at] : this.known(name, n);
    }
    return out;
  }

  /** What the columns say of an event, under the name of its field. */
  private known(name: string, n: number): unknown {
    const { columns, about } = this;
    switch (name) {
      case "id": return columns.ids[n];
      case "t": return columns.t[n];
      case "turn": return columns.turn[n];
      case "type": return about.types[columns.type[n]!];
      case "agent": return about.agents[columns.agent[n]!]?.name;
      case "role": return about.agents[columns.agent[n]!]?.role;
      case "tool": return about.tools[columns.tool[n]! - 1];
      default: return undefined;
    }
  }
}
