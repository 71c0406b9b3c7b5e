import { expect, test } from "vitest";
import { isInArrays, search as found, spanOf, terms, type Beyond, type Place } from "../src/search";
import { SourceError } from "../src/source";
import { FileSource, subtree, type Packed } from "../src/file";
import { FLAGS, type About } from "../src/shapes.gen";
import CASES from "../../tests/app/query_terms.json";
import { messages } from "../src/stream";

const about = {
  types: ["spawn", "message", "tool_call"], tools: ["pytest"], edge_types: ["message"],
  agents: [{ name: "boss", role: "orchestrator", parent: -1, depth: 0 }, { name: "coder-1", role: "coder", parent: 0, depth: 1 }],
} as unknown as About;
const columns = {
  n: 3, ids: ["e1", "e2", "e3"], numbers: null, t: new Float64Array([0, 1, 2]), dur: new Float32Array([1, NaN, 3]),
    agent: new Uint32Array([0, 0, 1]),
  type: new Uint8Array([0, 1, 2]), flags: new Uint16Array([0, FLAGS.tainted, FLAGS.tainted | FLAGS.failed]),
    tokens: new Uint32Array([0, 100, 6000]),
  cost: new Float32Array(3), tool: new Uint16Array([0, 0, 1]), turn: new Int32Array([-1, 0, 1]), src: new Uint32Array([0]),
    dst: new Uint32Array([1]),
  edge: new Uint8Array([0]),
};
const place: Place = { about, columns, credit: new Float32Array([0.2, NaN, -0.1]) };

const search = (query: string, at: Place, beyond?: Beyond): number[] => found(terms(query), at, beyond);

test.each([
  ["kind:spawn", [0]], ["agent:coder tokens>5k", [2]], ["tainted", [1, 2]], ["tainted failed", [2]], ["credit<0", [2]],
    ["credit>=0", [0]],
  ["tool:pytest", [2]], ["seconds>2", [2]], ["id:e2", [1]], ["role!=coder", [0, 1]], ["turn=1", [2]],
    ["kind:message agent:coder", []], ["tokens<200", [1]], ["turn!=0", [2]], ["tokens>=0 path", []],
])("%s", (query, found) => {
  expect(search(query, place)).toEqual(found);
});

test("words are asked of the text, quotes keep them together", () => {
  expect(terms('kind:spawn "two words" agent:"a b"')).toMatchObject([
    { field: "kind", sign: ":", value: "spawn" }, { field: "", sign: "", value: "two words" },
      { field: "agent", sign: ":", value: "a b" },
  ]);
  expect(terms('tainted tokens>5 merge model:large').map(isInArrays)).toEqual([true, true, false, false]);
  expect(terms('agent:"a b" x').map((term) => term.raw)).toEqual(['agent:"a b"', "x"]);
  const beyond: Beyond = { says: (i, word) => i === 1 && word === "merge",
    field: (i, name) => (name === "reward" ? i : `${name}-${i}`) };
  expect(search("Merge", place, beyond)).toEqual([1]);
  expect(search("model:L-2 reward>1", place, beyond)).toEqual([2]);
});

test.each(CASES as { query: string; terms?: string[][]; error?: string }[])("$query is read as the server reads it", (one) => {
  if (one.error) expect(() => terms(one.query)).toThrow(new RegExp(one.error));
  else expect(terms(one.query).map(({ field, sign, value }) => [field, sign, value])).toEqual(one.terms);
});

test("an unknown field and a number that is none are errors", () => {
  expect(() => search("colour:red", place)).toThrow(SourceError);
  expect(() => search("tokens>many", place)).toThrow(/not a number/);
  expect(() => search("agent>5", place)).toThrow(/cannot be compared/);
  expect(() => search("credit<0", { ...place, credit: null })).toThrow(/No credit method/);
});

test("a file answers from its block and says what it cannot", async () => {
  const packed = { about, texts: { "1": "merge it" }, events: {}, credit: {}, methods: [] } as unknown as Packed;
  const file = new FileSource({ version: 1, made_by: "test", masked: null, traces: { x: packed } });
  (file as unknown as { decoded: Map<string, unknown> }).decoded.set("x", columns);
  expect(await file.find("x", "merge")).toEqual([1]);
  expect((await file.event("x", 1)).causes).toEqual([{ n: 0, id: "e1", type: "spawn", agent: 0, edge: "message" }]);
  expect((await file.talk("x", 0, true, 1, 5)).rows.map((row) => row.n)).toEqual([1, 2]);
  expect((await file.window("x", 1.5, 9, 10)).ids).toEqual(["e3"]);
  expect([...subtree(about, 0)]).toEqual([0, 1]);
  await expect(file.about("y")).rejects.toThrow(/No trace/);
  await expect(file.fork()).rejects.toThrow(/cannot fork/);
});

test("messages of the stream, whole ones only", () => {
  expect(messages("id: 1\ndata: {}\n\n: still here\n\ndata: a\ndata: b\n\ndata: half")).toEqual({ data: ["{}", "a\nb"],
    rest: "data: half" });
});

test("dates are asked of the clock, in the reader's time zone", () => {
  const day = (text: string) => new Date(`${text}T00:00`).getTime() / 1000;
  expect(spanOf("2026-11-16")).toEqual([day("2026-11-16"), day("2026-11-17")]);
  expect(spanOf("2026-11")).toEqual([day("2026-11-01"), day("2026-12-01")]);
  expect(spanOf("7d", 8 * 86400)).toEqual([86400, 86400]);
  expect(spanOf("2026-11-16T09:20Z")).toEqual([1794820800, 1794820860]);
  const began = day("2026-11-16") + 86400 - 1.5;  // the spawn and the message are of that day, the call behind them of the next
  const dated: Place = { ...place, about: { ...about, started: began, start: 0 } as About };
  expect(search("since:2026-11-17", dated)).toEqual([2]);
  expect(search("until:2026-11-16", dated)).toEqual([0, 1]);
  expect(search("date:2026-11-16 kind:spawn", dated)).toEqual([0]);
  expect(search("last:7d", place)).toEqual([]);
  for (const wrong of ["since:soon", "last:2026-11-16", "since>7d", "date:2026-13"]) expect(() => search(wrong, dated)).toThrow(SourceError);
});
