// A box that opens below its button. Always true: Esc, a press elsewhere and its button close it, and Esc gives the focus back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function Popover(props: { title: ComponentChildren; class?: string; children: ComponentChildren }) {
  const box = useRef<HTMLDetailsElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isOpen) return;
    const close = (): void => { if (box.current) box.current.open = false; };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      close();
      box.current?.querySelector("summary")?.focus();
    };
    const onPress = (event: PointerEvent): void => { if (!box.current?.contains(event.target as Node)) close(); };
    addEventListener("keydown", onKey);
    addEventListener("pointerdown", onPress);
    return () => { removeEventListener("keydown", onKey); removeEventListener("pointerdown", onPress); };
  }, [isOpen]);
  return (
    <details ref={box} class={`share ${props.class ?? ""}`} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{props.title}</summary>
      {props.children}
    </details>
  );
}
