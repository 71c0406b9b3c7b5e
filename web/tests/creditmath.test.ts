import { expect, test } from "vitest";
import { add, barParts, bySize, closing, disagreements, nearestUnit, sharedScale, tokensByEvent } from "../src/creditmath";
import type { Credit, CreditRow } from "../src/shapes.gen";

const row = (label: string, event: number, value: number, agent = 0): CreditRow =>
  ({ label, event, agent, value, low: null, high: null, excerpt: "" });

function credit(some: Partial<Credit>): Credit {
  return {
    method: "c3", unit: "event", units: ["event"], rows: [], by_agent: {}, total: null, target: null, unassigned: null, whole: "R",
    notes: [],
    is_additive: true, closes: null, refusal: null, fix: null, ...some,
  };
}

const team = credit({
  by_agent: { orchestrator: 0.22, researcher: 0.05, coder: -0.03, verifier: 0.31 }, unassigned: 0.16, total: 0.55, target: 0.71,
    closes: true,
});

test("agents and what nobody got make the reward", () => {
  const found = closing(team);
  expect(found.state).toBe("closes");
  expect(found.sum).toBeCloseTo(0.71, 12);
});

test("a broken sum shows the difference, whatever the server says", () => {
  const found = closing({ ...team, target: 0.8 });
  expect(found.state).toBe("broken");
  expect(found.difference).toBeCloseTo(-0.09, 12);
  expect(closing({ ...team, closes: false }).state).toBe("broken");
});

test("a method that is not additive shows its own total", () => {
  expect(closing({ ...team, is_additive: false }).state).toBe("own");
  expect(closing(credit({ refusal: "no reward" })).state).toBe("none");
  expect(closing(credit({})).state).toBe("none");
});

test("adding up keeps what is small", () => {
  expect(add([1e16, 1, -1e16, 1])).toBe(2);
});

test("one scale for both methods, rounded up", () => {
  expect(sharedScale([team])).toBe(0.35);
  expect(sharedScale([team, credit({ rows: [row("x", 1, -1.62)] })])).toBe(2);
  expect(sharedScale([credit({ by_agent: { a: 0.35 } })])).toBe(0.35);
  expect(sharedScale([credit({})])).toBe(1);
});

test("agents by size", () => {
  expect(bySize(team).map(([name]) => name)).toEqual(["verifier", "orchestrator", "researcher", "coder"]);
});

test("the bar has what is taken left of the zero and what is given right of it", () => {
  const { parts, zero } = barParts(team);
  expect(zero).toBeCloseTo(0.03 / 0.77, 9);
  expect(parts.at(-1)).toMatchObject({ label: "unassigned", to: expect.closeTo(1, 9) });
  expect(parts.find((part) => part.label === "coder")).toMatchObject({ from: expect.closeTo(0, 9), to: zero });
});

test("methods disagree where both gave credit", () => {
  const a = credit({ rows: [row("e1", 1, 0.08), row("e2", 2, 0.3), row("e3", 3, 0.1)] });
  const b = credit({ rows: [row("e1", 1, 0), row("e2", 2, 0.25), row("e9", 9, 1)] });
  const found = disagreements(a, b);
  expect(found.at.map((d) => [d.event, d.a, d.b])).toEqual([[1, 0.08, 0], [2, 0.3, 0.25]]);
  expect(found.onlyOne).toBe(2);
});

test("tokens are gathered by event, in order", () => {
  const found = tokensByEvent([row("a", 1, 0.1), row("b", 1, 0.2), row("c", 4, 0)]);
  expect(found.map((group) => [group.event, group.rows.length])).toEqual([[1, 2], [4, 1]]);
});

test("a unit that a method does not have gives way to the nearest", () => {
  expect(nearestUnit("token", ["agent", "turn"])).toBe("turn");
  expect(nearestUnit("event", ["agent"])).toBe("agent");
  expect(nearestUnit("team", ["orchestrator", "message", "event"])).toBe("orchestrator");
  expect(nearestUnit("turn", [])).toBeNull();
});
