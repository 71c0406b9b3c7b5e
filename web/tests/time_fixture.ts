// Small and large teams for the timeline's tests: written down here, so that expected numbers can be worked out by hand.
import type { Agent } from "../src/shapes.gen";
import type { Columns } from "../src/source";

export function agent(name: string, parent: number, more: Partial<Agent> = {}): Agent {
  return {
    name, label: name, parent, role: null, depth: parent < 0 ? 0 : 1, spawn: -1, events: 0, tokens_own: 0, tokens_total: 0,
    cost_own: null, cost_total: null, busy_s: null, start: 0, end: 1, path_share: 0, is_outside: false, ...more,
  };
}

export interface Row {
  t: number;
  dur?: number;
  agent?: number;
  type?: number;
  flags?: number;
  tokens?: number;
  cost?: number;
}

export function columns(rows: Row[]): Columns {
  const of = (pick: (row: Row) => number | undefined, absent = 0) => rows.map((row) => pick(row) ?? absent);
  return {
    n: rows.length, ids: rows.map((_, i) => `e${i}`), numbers: null,
    t: Float64Array.from(of((r) => r.t)), dur: Float32Array.from(of((r) => r.dur, NaN)),
    agent: Uint32Array.from(of((r) => r.agent)), type: Uint8Array.from(of((r) => r.type)), flags: Uint16Array.from(of((r) => r.flags)),
    tokens: Uint32Array.from(of((r) => r.tokens)), cost: Float32Array.from(of((r) => r.cost, NaN)),
    tool: new Uint16Array(rows.length), turn: new Int32Array(rows.length).fill(-1),
    src: new Uint32Array(0), dst: new Uint32Array(0), edge: new Uint8Array(0),
  };
}
