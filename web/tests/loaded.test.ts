import { expect, test } from "vitest";
import { sentence } from "../src/loaded";

test("a sentence begins with a capital letter, unless it begins with a name", () => {
  expect(["nothing", "it has none. ", "e10 is read", "mail.read says so", "group_relative refuses"].map(sentence))
    .toEqual(["Nothing.", "It has none.", "e10 is read.", "mail.read says so.", "group_relative refuses."]);
});
