import { expect, test } from "vitest";
import { pieces, visible } from "../src/plaintext";

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

test("joiners that spell an emoji or a word are no hidden characters", () => {
  for (const text of ["\u{1F469}\u200D\u{1F680}", "\u{1F469}\u{1F3FD}\u200D\u{1F4BB}", "\u0645\u06CC\u200C\u062E\u0648\u0627\u0647\u0645", "\u0915\u094D\u200D\u0937"]) {
    expect(pieces(text)).toEqual([{ kind: "text", text }]);
  }
  expect(visible("pass\u200Dword")).toBe("passU+200Dword");
  expect(visible("\u200D\u{1F680}")).toBe("U+200D\u{1F680}");
  expect(visible("\u202Etluciffid")).toBe("U+202Etluciffid");
});
