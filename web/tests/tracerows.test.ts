import { expect, test } from "vitest";
import type { TraceRow } from "../src/shapes.gen";
import { COLUMNS, fitting, folded, hasTerm, howMany, nextSort, picked, runsTitle, sorted, sortFrom, sortText, term, terms, toggled } from "../src/tracerows";

const row = (id: string, reward: number | null): TraceRow => ({
  id, title: `Title of ${id}`, project: null, models: [], date: 0, active: 0, waits: "", since: null, parent: null, problems: 0, unpriced: 0, task_id: id, system: null, topology: null, agents: 1, events: 1, tokens: null, cost_usd: null, seconds: null, reward,
    errors: 0,
  is_open: false, is_steered: false, lanes: [],
});

test("absent values are last, whichever way", () => {
  const rows = [row("a", null), row("b", 0.2), row("c", 0.9)];
  expect(sorted(rows, { key: "reward", down: true }).map((r) => r.id)).toEqual(["c", "b", "a"]);
  expect(sorted(rows, { key: "reward", down: false }).map((r) => r.id)).toEqual(["b", "c", "a"]);
  expect(sorted(rows, null)).toBe(rows);
});

test("alerts sort by what was counted", () => {
  const rows = [row("a", 1), row("b", 1), row("c", 1)];
  const counts: Record<string, number> = { a: 1, c: 4 };
  expect(sorted(rows, { key: "alerts", down: true }, (id) => counts[id] ?? null).map((r) => r.id)).toEqual(["c", "a", "b"]);
  expect(sortFrom("-alerts")).toEqual({ key: "alerts", down: true });
});

test("titles, models and dates sort, too", () => {
  const rows = [{ ...row("a", 1), title: null, models: ["m2"], date: 3 }, { ...row("b", 1), title: "aaa", models: ["m1", "m3"], date: 1 }];
  expect(sorted(rows, { key: "title", down: false }).map((r) => r.id)).toEqual(["a", "b"]);
  expect(sorted(rows, { key: "model", down: false }).map((r) => r.id)).toEqual(["b", "a"]);
  expect(sorted(rows, { key: "date", down: true }).map((r) => r.id)).toEqual(["a", "b"]);
});

test("a column's head goes through both ways and none", () => {
  const first = nextSort(null, "reward");
  expect(first).toEqual({ key: "reward", down: true });
  expect(nextSort(first, "reward")).toEqual({ key: "reward", down: false });
  expect(nextSort({ key: "reward", down: false }, "reward")).toBeNull();
  expect(nextSort(first, "id")).toEqual({ key: "id", down: false });
  expect(sortFrom(sortText(first))).toEqual(first);
  expect(sortFrom("nonsense")).toBeNull();
});

test("facets are terms of the query", () => {
  expect(toggled("merge agents>5", "topology", "swarm")).toBe("merge agents>5 topology=swarm");
  expect(toggled("topology=swarm merge", "topology", "swarm")).toBe("merge");
  expect(toggled("topology:swarm", "topology", "debate")).toBe("topology=debate");
  expect(toggled("topology=swarm", "topology", "debate")).toBe("topology=debate");
  expect(term("system", "claude code")).toBe('system="claude code"');
  expect(term("project", 'the "big" one')).toBe("project='the \"big\" one'");
  expect(hasTerm('x system="claude code"', term("system", "claude code"))).toBe(true);
  expect(terms('a "b c" system:"d e" f')).toEqual(["a", '"b c"', 'system:"d e"', "f"]);
});

test("columns leave a narrow list in order, the title never", () => {
  const names = (rem: number) => fitting(rem).map((one) => one.text);
  expect(names(80)).toEqual(COLUMNS.map((one) => one.text));
  const order: string[] = [];
  for (let rem = 80; rem > 0; rem -= 0.5) for (const one of COLUMNS) if (!names(rem).includes(one.text) && !order.includes(one.text)) order.push(one.text);
  expect(order).toEqual(["model", "project", "busy", "agents", "time", "tokens", "reward", "cost", "active", "errors", "alerts"]);
  expect(names(0)).toEqual(["pick", "title"]);
  expect(fitting(80, (one) => one.text === "cost").map((one) => one.text)).not.toContain("cost");
});

test("two rows can be picked", () => {
  expect(picked(picked(picked([], "a"), "b"), "c")).toEqual(["b", "c"]);
  expect(picked(["a", "b"], "a")).toEqual(["b"]);
});

test("a filtered list says how many there are in all, and a long one how many it shows", () => {
  const rows = (n: number) => Array.from({ length: n }, () => ({}) as TraceRow);
  const list = (shown: number, found: number, total: number) =>
    howMany({ store: "s", rows: rows(shown), found, total, facets: {}, zone: "UTC", remarks: [], version: "" });
  expect(list(8, 8, 8)).toBe("8 traces");
  expect(list(0, 0, 8)).toBe("0 of 8 traces");
  expect(list(1, 1, 8)).toBe("1 of 8 traces");
  expect(list(2000, 9500, 9500)).toBe("9,500 traces, the newest 2,000 shown");
  expect(list(2000, 3000, 9500)).toBe("3,000 of 9,500 traces, the newest 2,000 shown");
});

test("runs that a session made for itself are one line below it, or say that it is not here", () => {
  const run = (id: string, parent: string, tokens: number): TraceRow =>
    ({ ...row(id, null), parent, tokens, models: ["auto-review"], active: tokens });
  const rows = [row("a", 1), run("r1", "a", 5), run("x1", "gone-session", 1), row("b", 1), run("r2", "a", 7)];
  const lines = folded(rows, () => false);
  expect(lines.map((line) => (line.runs.length ? runsTitle(line) : line.row.id))).toEqual(
    ["a", "2 auto-review runs of it", "1 auto-review run, session gone-ses is not here", "b"]);
  expect(lines[1]!.row).toMatchObject({ tokens: 12, agents: 2, active: 7 });
  expect(runsTitle(folded([...rows, run("x2", "other", 1)], () => false)[2]!)).toBe("2 auto-review runs of 2 sessions that are not here");
  expect(folded(rows, (key) => key === "a").map((line) => line.row.id)).toEqual(["a", "r2", "r1", "r2", "x1", "b"]);
});
