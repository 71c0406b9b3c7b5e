import { expect, test } from "vitest";
import { format, innerBar, parse, traceLink, type Route } from "../src/router";

test("the address of the specification", () => {
  expect(parse("/t/research-team?e=e0431&v=credit&z=12.5-40&f=tainted&m=c3")).toEqual({
    page: "trace", id: "research-team", view: "credit", event: "e0431", zoom: [12.5, 40], filter: "tainted", methods: ["c3"],
  });
});

test.each<Route>([
  { page: "traces", query: "" },
  { page: "traces", query: 'topology:swarm "two words" 50%' },
  { page: "traces", query: "errors>0", sort: "-cost_usd", ids: true },
  { page: "runs", id: null, sort: "preset" },
  { page: "runs", id: null, query: "grpo live" },
  traceLink("91bd~1"),
  traceLink("a/b c#?&=%2F..ü",
    { event: "e/1?#&", view: "safety", zoom: [0, 0.125], filter: 'kind:spawn tokens>5k "a+b"',
      methods: ["c3", "leave_one_out"] }),
  { page: "diff", a: "a..b", b: "c/d" },
  { page: "diff", a: "grpo:17", b: "c3:17" },
  { page: "diff", a: "", b: "" },
  { page: "runs", id: null },
  { page: "runs", id: "runs/7c1e" },
  { page: "compare", spec: "a=runs/x,runs/y b=runs/z" },
  { page: "bench", a: "", b: "" },
  { page: "bench", a: "bench/a..b", b: "" },
  { page: "bench", a: "bench/x", b: "bench/y z" },
  { page: "live" },
  { page: "issues", id: null, query: "", state: "", kind: "" },
  { page: "issues", id: null, query: "project:shop last:7d", state: "all", kind: "failure" },
  { page: "issues", id: "95ee38da", query: "", state: "", kind: "" },
])("every route comes back from its address: %j", (route) => {
  expect(parse(format(route))).toEqual(route);
  expect(parse(`#${format(route)}`)).toEqual(route);
});

test("whole words are addresses too", () => {
  expect(parse("/runs")).toEqual({ page: "runs", id: null });
  expect(parse("/diff/a..b")).toEqual({ page: "diff", a: "a", b: "b" });
  expect(parse("/compare?s=x")).toEqual({ page: "compare", spec: "x" });
  expect(parse("/trace/x")).toEqual(traceLink("x"));
  expect(parse("/traces?q=x")).toEqual({ page: "traces", query: "x" });
});

test("a browser leaves addresses as they are", () => {
  const address = format(traceLink("a b/c", { event: "e 1", filter: 'kind:x "y z"' }));
  const url = new URL(address, "http://127.0.0.1:7700");
  expect(url.pathname + url.search).toBe(address.replaceAll('"', "%22"));
});

test("nonsense in an address does no harm", () => {
  expect(parse("/t/x?v=nope&z=9-1&e=")).toMatchObject({ view: "time", zoom: null, event: "" });
  expect(parse("/t/%E0%A4%A")).toMatchObject({ page: "trace", id: "%E0%A4%A" });
  expect(parse("/what/ever")).toMatchObject({ page: "unknown" });
});

test("a page without an address keeps its own", () => {
  const bar = innerBar("/t/one");
  expect(parse(bar.read())).toEqual(traceLink("one"));
  bar.write("/t/two", true);
  expect(bar.read()).toBe("/t/two");
  expect(bar.href("/t/two")).toBe("#/t/two");
});
