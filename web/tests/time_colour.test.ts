import { expect, test } from "vitest";
import { EVENT_TYPES, FLAGS } from "../src/shapes.gen";
import { dimmed, scaleOf, valuesByAgent, valuesByRow } from "../src/time/colour";
import { columns } from "./time_fixture";

const of = (name: string) => (EVENT_TYPES as readonly string[]).indexOf(name);

test("families of event types; an unknown one is grey, not lost", () => {
  const types = [of("orchestrator_decision"), of("tool_call"), of("aggregate"), 99];
  const events = columns(types.map((type, t) => ({ t, type })));
  expect([...scaleOf("family", events, EVENT_TYPES, null).classes]).toEqual([0, 1, 3, 5]);
});

test("tokens in steps of one factor; none is not the least", () => {
  const scale = scaleOf("tokens", columns([0, 1, 10, 100, 100_000].map((tokens, t) => ({ t, tokens }))), [], null);
  expect([...scale.classes]).toEqual([0, 1, 1, 2, 5]);
  expect(scale.names).toEqual(["no tokens", "≤ 10", "≤ 100", "≤ 1 k", "≤ 10 k", "≤ 100 k"]);
  expect(scaleOf("cost", columns([{ t: 0 }]), [], null).names).toEqual(["no cost"]);
});

test("credit has a sign, nothing in the middle, and absence apart", () => {
  const events = columns([0, 1, 2, 3, 4].map((t) => ({ t })));
  const values = Float32Array.of(-0.4, 0, 0.1, 0.3, NaN);
  const scale = scaleOf("credit", events, [], values);
  expect([...scale.classes]).toEqual([1, 5, 6, 8, 0]);
  expect(scale.names).toEqual(["no credit", "−0.40", "−0.30", "−0.20", "−0.10", "0", "+0.10", "+0.20", "+0.30", "+0.40"]);
  expect(scaleOf("credit", events, [], null).names).toEqual(["no credit"]);
});

test("values find the rows of a window by number", () => {
  const events = { ...columns([{ t: 0 }, { t: 1 }]), numbers: Uint32Array.from([2, 90]) };
  expect([...valuesByRow(events, Float32Array.of(5, 6, 7))!]).toEqual([7, NaN]);
});

test("credit of agents is that of their events; none is none", () => {
  const events = columns([{ t: 0, agent: 1 }, { t: 1, agent: 0 }]);
  expect([...valuesByAgent(events, [null, 0.5])!]).toEqual([0.5, NaN]);
  expect(valuesByAgent(events, [null, null])).toBeNull();
});

test("what a filter leaves out is in a second set of classes", () => {
  const events = columns([{ t: 0, type: 0 }, { t: 1, type: of("tool_call") }]);
  const scale = scaleOf("family", events, EVENT_TYPES, null);
  expect([...dimmed(scale, events, Uint8Array.of(1, 0))]).toEqual([0, 7]);
  expect(dimmed(scale, events, null)).toBe(scale.classes);
});

test("taint: where it came in, and where it went", () => {
  const events = columns([{ t: 0 }, { t: 1, flags: FLAGS.tainted }, { t: 2, flags: FLAGS.untrusted | FLAGS.tainted }]);
  expect([...scaleOf("taint", events, [], null).classes]).toEqual([0, 1, 2]);
});
