// The help and the command menu, both made from the table of commands. Always true: a dialog holds the focus and gives it back.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { COMMANDS, canRun, keyLabel, keyOf, ownKeys, pressed, runCommand, setKey, type Command } from "../keys";

const opened = signal<"help" | "menu" | null>(null);

export function openDialog(which: "help" | "menu"): void {
  opened.value = which;
}

/** The browser's own dialog: it keeps the focus inside, closes by Escape and gives the focus back. */
function useDialog(which: "help" | "menu") {
  const dialog = useRef<HTMLDialogElement>(null);
  const isOpen = opened.value === which;
  useEffect(() => {
    if (isOpen && !dialog.current?.open) dialog.current?.showModal();
    if (!isOpen) dialog.current?.close();
  }, [isOpen]);
  return { dialog, isOpen, close: () => { opened.value = null; } };
}

const GROUPS = ["Look", "Move", "Do", "Go"] as const;

function KeyRow({ command }: { command: Command }) {
  const [isAsking, ask] = useState(false);
  const key = keyOf(command);
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!isAsking || event.key === "Tab" || event.key === "Shift" || event.key === "Control") return;
    event.preventDefault();
    event.stopPropagation();
    ask(false);
    if (event.key !== "Escape") setKey(command.id, event.key === "Backspace" || event.key === "Delete" ? "" : pressed(event));
  };
  return (
    <tr>
      <td>
        <button type="button" class="key" onClick={() => ask(true)} onBlur={() => ask(false)} onKeyDown={onKeyDown}
          aria-label={`Key of “${command.text}”: ${key ? keyLabel(key) : "none"}. Press to change`}>
          {isAsking ? "press…" : key ? keyLabel(key) : "off"}
        </button>
      </td>
      <td>{command.text}</td>
      <td>{command.id in ownKeys.value && <button type="button" class="plain"
        onClick={() => setKey(command.id, null)}>reset</button>}</td>
    </tr>
  );
}

export function Help() {
  const { dialog, isOpen, close } = useDialog("help");
  return (
    <dialog ref={dialog} class="dialog" onClose={close} aria-labelledby="help-title">
      {isOpen && <>
        <header><h2 id="help-title">Keys and help</h2><button type="button" onClick={close}>Close</button></header>
        <p class="quiet">Keys do nothing while you type in a field. Press a key's button to change it, then Backspace to switch it off.</p>
        <div class="key-groups">
          {GROUPS.slice(0, 3).map((group) => (
            <table key={group}>
              <caption>{group}</caption>
              <tbody>{COMMANDS.filter((one) => one.group === group).map((one) => <KeyRow key={one.id} command={one} />)}</tbody>
            </table>
          ))}
        </div>
        <h3>Search</h3>
        <p>Words or fields; an event must match all: <code>kind:spawn agent:coder tokens&gt;5k credit&lt;0 tainted "merge"</code></p>
      </>}
    </dialog>
  );
}

export function Menu() {
  const { dialog, isOpen, close } = useDialog("menu");
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  useEffect(() => { setText(""); setAt(0); }, [isOpen]);
  const found = isOpen
    ? COMMANDS.filter((one) => one.id !== "commands" && canRun(one.id) && one.text.toLowerCase().includes(text.toLowerCase()))
    : [];
  const chosen = found[Math.min(at, found.length - 1)];
  const run = (command: Command | undefined): void => { close(); if (command) setTimeout(() => runCommand(command.id)); };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((found.length + Math.min(at, found.length - 1) + step) % Math.max(1, found.length));
    }
    if (event.key === "Enter") { event.preventDefault(); run(chosen); }
  };
  return (
    <dialog ref={dialog} class="dialog menu" onClose={close} aria-label="Commands">
      {isOpen && <>
        <input type="text" value={text} placeholder="What to do?" role="combobox" aria-expanded="true" aria-controls="menu-list"
          aria-label="Command"
          aria-activedescendant={chosen ? `menu-${chosen.id}` : undefined}
            onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={onKeyDown} />
        <ul id="menu-list" role="listbox" aria-label="Commands">
          {found.map((one) => (
            <li key={one.id} id={`menu-${one.id}`} role="option" aria-selected={one === chosen} onClick={() => run(one)}>
              <span class="quiet">{one.group}</span> {one.text} {keyOf(one) && <kbd>{keyLabel(keyOf(one))}</kbd>}
            </li>
          ))}
        </ul>
        {!found.length && <p class="quiet">No such command here.</p>}
      </>}
    </dialog>
  );
}
