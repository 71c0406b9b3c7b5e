import { expect, test } from "vitest";
import { command } from "../src/pages/Share";

test("the command makes the same file as the choices", () => {
  const all = { mask: true, texts: true, range: null, agent: null };
  expect(command("a b", all)).toBe("counterpoint export 'a b' --to html -o trace.html");
  expect(command("t", { mask: false, texts: false, range: [0, 12.5004], agent: "lead.1" }))
    .toBe("counterpoint export t --to html -o trace.html --mask off --summary --window 0-12.5 --agent lead.1");
});
