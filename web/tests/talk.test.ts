import { expect, test } from "vitest";
import type { About, Agent, TalkRow } from "../src/shapes.gen";
import type { Source } from "../src/source";
import { findRow, lineage, members, PAGE, Pages } from "../src/talk";

const agent = (parent: number): Agent => ({
  name: "", label: "", role: null, parent, depth: 0, spawn: -1, events: 0, tokens_own: 0, tokens_total: 0, cost_own: null, cost_total: null,
  busy_s: null, start: 0, end: 0, path_share: 0, is_outside: false,
});
const about = { agents: [agent(-1), agent(0), agent(1), agent(0)], events: 10 } as unknown as About;

test("an event is found among rows, from a good guess in one look", async () => {
  const events = Array.from({ length: 1000 }, (_, i) => i * 3);
  let looks = 0;
  const at = async (row: number) => (looks++, events[row]!);
  expect(await findRow(1000, 333, 999, at)).toBe(333);
  expect(looks).toBe(1);
  for (const [guess, n] of [[0, 2997], [999, 0], [500, 1503], [10, 1000]] as const) {
    expect(events[await findRow(1000, guess, n, at)]).toBe(Math.min(2997, Math.ceil(n / 3) * 3));
  }
  expect(await findRow(0, 0, 5, at)).toBe(-1);
  expect(await findRow(1000, 0, 99999, at)).toBe(999);
});

test("who is in a scope, and the way down to an agent", () => {
  expect([...members(about, { agent: 0, tree: true })].sort()).toEqual([0, 1, 2, 3]);
  expect([...members(about, { agent: 1, tree: true })].sort()).toEqual([1, 2]);
  expect([...members(about, { agent: 1, tree: false })]).toEqual([1]);
  expect(members(about, { agent: -1, tree: false }).size).toBe(4);
  expect(lineage(about, 2)).toEqual([0, 1, 2]);
});

test("a page is asked for once, and a page that failed again", async () => {
  const calls: number[] = [];
  let isBroken = true;
  const source = {
    talk: async (_id: string, _agent: number, _tree: boolean, first: number, count: number) => {
      calls.push(first);
      if (isBroken) throw new Error("gone");
      return { total: 250, first,
        rows: Array.from({ length: Math.min(count, 250 - first) }, (_, i) => ({ n: first + i }) as TalkRow) };
    },
  } as unknown as Source;
  const pages = new Pages(source, "x", { agent: -1, tree: false }, () => undefined);
  await expect(pages.page(0)).rejects.toThrow("gone");
  isBroken = false;
  await pages.page(0);
  pages.want(0, PAGE + 1);
  await pages.page(1);
  expect(calls).toEqual([0, 0, 100]);
  expect([pages.total, pages.row(120)?.n, pages.row(240)]).toEqual([250, 120, undefined]);
});
