import { expect, test } from "vitest";
import { asJson, blocks, type Inline, inline, isMarkdown } from "../src/markdown";

const text = (all: Inline[]): string =>
  all.map((one) => (one.kind === "text" || one.kind === "code" ? one.text : one.kind === "link" ? `${text(one.inside)}<${one.address}>` : text(one.inside))).join("");

test("blocks of every kind", () => {
  const found = blocks("# Plan\n\nTwo *steps*:\n\n1. read\n   - a\n   - b\n2. write\n\n> said\n\n```py\nx = 1\n\n# not a heading\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\nend");
  expect(found.map((one) => one.kind)).toEqual(["heading", "paragraph", "list", "quote", "code", "table", "rule", "paragraph"]);
  expect(found[4]).toEqual({ kind: "code", language: "py", text: "x = 1\n\n# not a heading" });
  const list = found[2]!;
  expect(list.kind === "list" && [list.isOrdered, list.items.length, list.items[0]!.map((one) => one.kind)]).toEqual([true, 2, ["paragraph", "list"]]);
  const table = found[5]!;
  expect(table.kind === "table" && [table.head.map(text), table.rows.map((row) => row.map(text))]).toEqual([["a", "b"], [["1", "2"]]]);
});

test("marks inside a line; names with underscores and lone stars are text", () => {
  expect(inline("a **b `c`** d").map((one) => one.kind)).toEqual(["text", "strong", "text"]);
  expect(inline("wide_verify_8 and 2 * 3 * 4 and **open").every((one) => one.kind === "text")).toBe(true);
  expect(text(inline("see [the *page*](http://x.test/a_b) now"))).toBe("see the page<http://x.test/a_b> now");
});

test("HTML is text, whatever it says", () => {
  const hostile = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) <script>1</script>";
  const found = blocks(hostile);
  expect(found).toHaveLength(1);
  expect(found[0]!.kind === "paragraph" && text(found[0]!.inside)).toBe("<img src=x onerror=alert(1)> click<javascript:alert(1>) <script>1</script>");
});

test("no letter is lost, and nothing takes long", () => {
  for (const odd of ["*".repeat(30_000), "[".repeat(30_000), "> ".repeat(3_000), "`".repeat(20_000), "- ".repeat(20_000), "_a_".repeat(9_000), "|\n|-\n".repeat(3_000)]) {
    expect(JSON.stringify(blocks(odd)).length).toBeGreaterThan(0);
  }
});

test("what is worth setting", () => {
  expect(isMarkdown("plain words, and more.")).toBe(false);
  expect(isMarkdown("- one\n- two")).toBe(true);
  expect(isMarkdown("use `ls`")).toBe(true);
});

test("JSON is what is JSON as a whole", () => {
  expect(asJson(' {"a": [1]} ')).toEqual({ a: [1] });
  expect(asJson("[1, 2")).toBeUndefined();
  expect(asJson("12")).toBeUndefined();
});
