// Keys and commands. Always true: a command is written once here; the help, the command menu and the keyboard read the same
// table; nothing happens while someone types, or where a command has no listener.
import { signal } from "@preact/signals";
import { PAGES, PANELS } from "./shapes.gen";
import { keep, recall } from "./state";

export interface Command {
  id: string;
  /** As `KeyboardEvent.key` has it, letters small; "" where there is no key. */
  key: string;
  text: string;
  group: "Look" | "Move" | "Do" | "Go";
}

export const COMMANDS: readonly Command[] = [
  { id: "help", key: "?", text: "Keys and help", group: "Look" },
  { id: "search", key: "/", text: "Search and filter events", group: "Look" },
  { id: "commands", key: "ctrl+k", text: "All commands", group: "Look" },
  { id: "view-map", key: "1", text: "Map", group: "Look" },
  { id: "view-time", key: "2", text: "Time", group: "Look" },
  { id: "view-text", key: "3", text: "Text", group: "Look" },
  { id: "view-credit", key: "4", text: "Credit", group: "Look" },
  ...PANELS.map((panel): Command => ({ id: `view-${panel.id}`, key: panel.key, text: panel.name, group: "Look" })),
  { id: "zoom-in", key: "w", text: "Zoom in", group: "Move" },
  { id: "zoom-out", key: "s", text: "Zoom out", group: "Move" },
  { id: "pan-left", key: "a", text: "Pan left", group: "Move" },
  { id: "pan-right", key: "d", text: "Pan right", group: "Move" },
  { id: "fit", key: "f", text: "Fit everything, or the selection", group: "Move" },
  { id: "list-next", key: "j", text: "Next line of the list", group: "Move" },
  { id: "list-previous", key: "k", text: "Previous line of the list", group: "Move" },
  { id: "list-open", key: "enter", text: "Open the line", group: "Move" },
  { id: "event-next", key: "arrowright", text: "Next event in the lane", group: "Move" },
  { id: "event-previous", key: "arrowleft", text: "Previous event in the lane", group: "Move" },
  { id: "lane-up", key: "arrowup", text: "Lane above", group: "Move" },
  { id: "lane-down", key: "arrowdown", text: "Lane below", group: "Move" },
  { id: "parent", key: "p", text: "Parent agent", group: "Move" },
  { id: "child", key: "c", text: "First child agent", group: "Move" },
  { id: "alert-next", key: ".", text: "Next alert", group: "Move" },
  { id: "alert-previous", key: ",", text: "Previous alert", group: "Move" },
  { id: "suspect-next", key: "]", text: "Next suspect of the Blame panel", group: "Move" },
  { id: "suspect-previous", key: "[", text: "Previous suspect", group: "Move" },
  { id: "mark", key: "m", text: "Mark the range on the screen", group: "Do" },
  { id: "second-method", key: "b", text: "Second credit method beside the first", group: "Do" },
  { id: "fork", key: "x", text: "Fork here", group: "Do" },
  { id: "note", key: "n", text: "Note on the event", group: "Do" },
  { id: "copy-link", key: "y", text: "Copy a link to what is on the screen", group: "Do" },
  { id: "follow", key: " ", text: "Follow or pause", group: "Do" },
  { id: "theme", key: "t", text: "Theme: as the system, light, dark", group: "Do" },
  { id: "tour", key: "", text: "Tour of the page", group: "Do" },
  { id: "go-traces", key: "", text: "Traces", group: "Go" },
  { id: "go-diff", key: "", text: "Diff", group: "Go" },
  { id: "go-issues", key: "", text: "Issues", group: "Go" },
  ...PAGES.map((page): Command => ({ id: `go-${page.id}`, key: "", text: page.name, group: "Go" })),
  { id: "go-live", key: "", text: "Live", group: "Go" },
];

const listeners = new Map<string, (() => void)[]>();

/** The user's own keys: command to key, "" for off. */
export const ownKeys = signal<Record<string, string>>(readOwn(recall("keys")));

export function readOwn(text: string | null): Record<string, string> {
  try {
    const found: unknown = JSON.parse(text ?? "{}");
    if (typeof found !== "object" || found === null) return {};
    return Object.fromEntries(Object.entries(found).filter(([id, key]) => COMMANDS.some((one) => one.id === id)
      && typeof key === "string"));
  } catch {
    return {};
  }
}

/** The key of a command, the user's own before ours. */
export function keyOf(command: Command): string {
  return ownKeys.value[command.id] ?? command.key;
}

/** Gives a command another key, "" to switch it off, null for ours. A key that another command has is taken from it. */
export function setKey(id: string, key: string | null): void {
  const next = { ...ownKeys.value };
  if (key === null) delete next[id]; else next[id] = key;
  if (key) for (const other of COMMANDS) if (other.id !== id && (next[other.id] ?? other.key) === key) next[other.id] = "";
  ownKeys.value = next;
  keep("keys", JSON.stringify(next));
}

/** Listens to a command; the last listener wins. Gives a function that ends it. */
export function onCommand(id: string, run: () => void): () => void {
  const all = listeners.get(id) ?? [];
  listeners.set(id, [...all, run]);
  return () => listeners.set(id, (listeners.get(id) ?? []).filter((one) => one !== run));
}

export function canRun(id: string): boolean {
  return (listeners.get(id)?.length ?? 0) > 0;
}

/** Runs a command; false when nobody listens. */
export function runCommand(id: string): boolean {
  const run = listeners.get(id)?.at(-1);
  run?.();
  return run !== undefined;
}

interface Press { key: string; ctrlKey: boolean; metaKey: boolean; altKey: boolean; target?: EventTarget | null }

/** How a key press is written in the table. */
export function pressed(event: Press): string {
  const key = event.key.toLowerCase();
  return event.ctrlKey || event.metaKey ? `ctrl+${key}` : key;
}

/** Whether someone is typing: in a field, or choosing in a list. */
export function isTyping(target: EventTarget | null | undefined): boolean {
  const element = target as { tagName?: string; isContentEditable?: boolean; type?: string } | null;
  if (!element?.tagName) return false;
  if (element.isContentEditable) return true;
  if (element.tagName === "INPUT") return !["checkbox", "radio", "button", "range"].includes(element.type ?? "text");
  return element.tagName === "TEXTAREA" || element.tagName === "SELECT";
}

/** The command of a key press. Ctrl-K works everywhere, all others only outside fields. Space and Enter on a button are the button's. */
export function commandOf(event: Press): Command | null {
  if (event.altKey) return null;
  const name = pressed(event);
  const found = COMMANDS.find((command) => keyOf(command) === name && name !== "");
  if (!found) return null;
  if (found.id !== "commands" && isTyping(event.target)) return null;
  const tag = (event.target as { tagName?: string } | null)?.tagName;
  if ((name === " " || name === "enter") && (tag === "BUTTON" || tag === "A" || tag === "SUMMARY" || tag === "INPUT")) return null;
  return found;
}

/** How a key is shown to people. */
export function keyLabel(key: string): string {
  const names: Record<string, string> = {
    " ": "Space", enter: "Enter", arrowleft: "←", arrowright: "→", arrowup: "↑", arrowdown: "↓", "ctrl+k": "Ctrl-K",
  };
  return names[key] ?? (key.length === 1 ? key.toUpperCase() : key);
}

/** Listens to the keyboard. A view that handles its own keys (a tree, a list) calls `preventDefault` first. */
export function listenToKeys(target: Pick<Window, "addEventListener" | "removeEventListener">): () => void {
  const onKey = (event: KeyboardEvent): void => {
    if (event.defaultPrevented) return;
    const command = commandOf(event);
    if (command && runCommand(command.id)) event.preventDefault();
  };
  target.addEventListener("keydown", onKey as EventListener);
  return () => target.removeEventListener("keydown", onKey as EventListener);
}
