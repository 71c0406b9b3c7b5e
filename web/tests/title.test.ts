import { expect, test } from "vitest";
import { traceLink } from "../src/router";
import { titleAt } from "../src/title";

test("a tab says what it shows", () => {
  expect(titleAt({ page: "traces", query: "" }, null)).toBe("Traces · Counterpoint");
  expect(titleAt({ page: "traces", query: "errors>0" }, null)).toBe("Traces: errors>0 · Counterpoint");
  expect(titleAt(traceLink("3f2a"), null)).toBe("3f2a · Counterpoint");
  expect(titleAt(traceLink("3f2a"), "Read many pages")).toBe("Read many pages · Counterpoint");
  expect(titleAt({ page: "diff", a: "x", b: "y" }, null)).toBe("Diff of x and y · Counterpoint");
  expect(titleAt({ page: "runs", id: "runs/a" }, null)).toBe("runs/a · Counterpoint");
  expect(titleAt({ page: "live" }, null)).toBe("Live · Counterpoint");
});

test("a name that turns the reading direction does not turn the title", () => {
  expect(titleAt(traceLink("a"), "x\u202Ey")).toBe("xU+202Ey · Counterpoint");
});
