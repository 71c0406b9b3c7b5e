// A transcript in pages. Always true: a page is asked for once; pages of another agent or trace are forgotten, and answers that
// come too late are not shown.
import { subtree } from "./file";
import type { About, TalkRow } from "./shapes.gen";
import type { Columns, Source } from "./source";

export const PAGE = 100;

/** Whose text: one agent, an agent with all below it, or (-1) everybody. */
export interface Scope {
  agent: number;
  tree: boolean;
}

export class Pages {
  total = -1;
  private pages = new Map<number, TalkRow[]>();
  private asked = new Map<number, Promise<TalkRow[]>>();

  constructor(private source: Source, private id: string, readonly scope: Scope, private onChange: () => void) {}

  row(i: number): TalkRow | undefined {
    return this.pages.get(Math.floor(i / PAGE))?.[i % PAGE];
  }

  /** Asks for the pages of these rows that are not here. */
  want(from: number, to: number): void {
    for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) void this.page(page).catch(() => undefined);
  }

  page(page: number): Promise<TalkRow[]> {
    const known = this.asked.get(page);
    if (known) return known;
    const asked = this.source.talk(this.id, this.scope.agent, this.scope.tree, page * PAGE, PAGE).then((talk) => {
      this.total = talk.total;
      this.pages.set(page, talk.rows);
      this.onChange();
      return talk.rows;
    });
    this.asked.set(page, asked);
    asked.catch(() => this.asked.delete(page));
    return asked;
  }

  /** The number of the event in a row. */
  async at(i: number): Promise<number> {
    return (await this.page(Math.floor(i / PAGE)))[i % PAGE]?.n ?? Number.POSITIVE_INFINITY;
  }
}

/** The row of an event, or of the first one after it: rows are in order of events. Begins at a guess and widens from there. */
export async function findRow(total: number, guess: number, n: number, at: (row: number) => Promise<number>): Promise<number> {
  if (!total) return -1;
  let low = 0;
  let high = total;
  let probe = Math.max(0, Math.min(total - 1, guess));
  let step = 1;
  while (low < high) {
    const have = await at(probe);
    if (have === n) return probe;
    if (have < n) low = probe + 1;
    else high = probe;
    const wide = have < n ? probe + step : probe - step;
    step *= 8;
    probe = wide > low && wide < high ? wide : (low + high) >> 1;
  }
  return Math.min(low, total - 1);
}

/** Rows before an event, if every event of these agents has a row. */
export function guessRow(columns: Columns | null, about: About, scope: Scope, n: number, total: number): number {
  if (scope.agent < 0) return Math.round((n / Math.max(1, about.events)) * total);
  if (!columns || columns.numbers) return total >> 1;
  const inside = members(about, scope);
  let rows = 0;
  for (let i = 0; i < Math.min(n, columns.n); i++) if (inside.has(columns.agent[i]!)) rows++;
  return rows;
}

/** Agents of a scope. */
export function members(about: About, scope: Scope): Set<number> {
  if (scope.agent < 0) return new Set(about.agents.keys());
  return scope.tree ? subtree(about, scope.agent) : new Set([scope.agent]);
}

/** From the root down to an agent. */
export function lineage(about: About, agent: number): number[] {
  const out: number[] = [];
  for (let at = agent; at >= 0 && !out.includes(at); at = about.agents[at]?.parent ?? -1) out.unshift(at);
  return out;
}
