import { beforeEach, expect, test } from "vitest";
import {
  COMMANDS, canRun, commandOf, isTyping, keyLabel, keyOf, onCommand, ownKeys, readOwn, runCommand, setKey,
} from "../src/keys";

const press = (key: string,
  more: object = {}) =>
    ({ key, ctrlKey: false, metaKey: false, altKey: false, target: { tagName: "DIV" } as unknown as EventTarget, ...more });

beforeEach(() => { ownKeys.value = {}; });

test("the keys of the specification, each once", () => {
  const keys = COMMANDS.map((command) => command.key).filter(Boolean);
  expect(new Set(keys).size).toBe(keys.length);
  const wanted = ["?", "/", "ctrl+k", "1", "2", "3", "4", "5", "6", "7", "8", "[", "]", "w", "s", "a", "d", "arrowleft", "arrowright", "arrowup",
    "arrowdown", "p", "c", ".", ",", "f", "m", "b", "x", "n", "y", " ", "t", "j", "k", "enter"];
  expect([...keys].sort()).toEqual([...wanted].sort());
});

test("letters large or small; with control only Ctrl-K", () => {
  expect(commandOf(press("W"))?.id).toBe("zoom-in");
  expect(commandOf(press("k", { ctrlKey: true }))?.id).toBe("commands");
  expect(commandOf(press("k", { metaKey: true }))?.id).toBe("commands");
  expect(commandOf(press("c", { ctrlKey: true }))).toBeNull();
  expect(commandOf(press("w", { altKey: true }))).toBeNull();
});

test("off while someone types, but for Ctrl-K; a button keeps its space", () => {
  const input = { tagName: "INPUT", type: "search" } as unknown as EventTarget;
  expect(isTyping(input)).toBe(true);
  expect(isTyping({ tagName: "INPUT", type: "checkbox" } as unknown as EventTarget)).toBe(false);
  expect(commandOf(press("w", { target: input }))).toBeNull();
  expect(commandOf(press("k", { ctrlKey: true, target: input }))?.id).toBe("commands");
  expect(commandOf(press(" ", { target: { tagName: "BUTTON" } }))).toBeNull();
  expect(commandOf(press(" "))?.id).toBe("follow");
  expect(commandOf(press("Enter", { target: { tagName: "A" } }))).toBeNull();
  expect(commandOf(press("Enter"))?.id).toBe("list-open");
});

test("keys can be changed and switched off; a key belongs to one command", () => {
  const [zoom, note] = ["zoom-in",
    "note"].map((id) => COMMANDS.find((command) => command.id === id)!) as [(typeof COMMANDS)[number], (typeof COMMANDS)[number]];
  setKey("zoom-in", "n");
  expect([keyOf(zoom), keyOf(note)]).toEqual(["n", ""]);
  expect(commandOf(press("n"))?.id).toBe("zoom-in");
  setKey("zoom-in", "");
  expect(commandOf(press("n"))).toBeNull();
  setKey("zoom-in", null);
  expect(keyOf(zoom)).toBe("w");
});

test("what was kept is read with care", () => {
  expect(readOwn("{not json")).toEqual({});
  expect(readOwn('{"zoom-in": "q", "nothing": "z", "note": 5}')).toEqual({ "zoom-in": "q" });
});

test("the last listener is asked, and only while it listens", () => {
  const heard: string[] = [];
  const first = onCommand("fork", () => heard.push("first"));
  const second = onCommand("fork", () => heard.push("second"));
  runCommand("fork");
  second();
  runCommand("fork");
  first();
  expect(runCommand("fork")).toBe(false);
  expect(canRun("fork")).toBe(false);
  expect(heard).toEqual(["second", "first"]);
});

test("keys as people read them", () => {
  expect(["arrowleft", " ", "w", "ctrl+k"].map(keyLabel)).toEqual(["←", "Space", "W", "Ctrl-K"]);
});
