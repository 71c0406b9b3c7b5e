import { expect, test } from "vitest";
import { pieces } from "../src/plaintext";

test("found words are marked, whatever their case and signs", () => {
  expect(pieces("Run the tests (run!)", ["run"])).toEqual([
    { kind: "found", text: "Run" }, { kind: "text", text: " the tests (" }, { kind: "found", text: "run" },
      { kind: "text", text: "!)" },
  ]);
  expect(pieces("a.c abc a-c", ["a.c", "a-c", "(", "[x"])[0]).toEqual({ kind: "found", text: "a.c" });
});

test("masked labels are marked", () => {
  expect(pieces("key [masked:key:0001] end")[1]).toEqual({ kind: "masked", text: "[masked:key:0001]" });
});

test("characters that hide or turn the text are written out", () => {
  expect(pieces("gp\u202Efdp.exe").map((piece) => piece.text)).toEqual(["gp", "U+202E", "fdp.exe"]);
  expect(pieces("a\r\nb\tc")).toEqual([{ kind: "text", text: "a" }, { kind: "text", text: "\nb\tc" }]);
});

test("markup stays what it is: text", () => {
  expect(pieces("<script>alert(1)</script>")).toEqual([{ kind: "text", text: "<script>alert(1)</script>" }]);
});
