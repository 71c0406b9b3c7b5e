// J, K and Enter in a list. Always true: the line that they reach has the focus, so that Enter and a screen reader find it.
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { onCommand } from "./keys";

export interface Cursor {
  /** The line where the keys are, -1 for none. */
  at: number;
  /** For `Windowed`: another object whenever the cursor moves. */
  show: { row: number } | null;
}

/** The cursor of a list whose lines carry `data-row`; `listKey` is another one for another list. What is opened is a line's first link. */
export function useListKeys(box: RefObject<HTMLElement>, count: number, listKey: string): Cursor {
  const [place, setPlace] = useState<{ row: number; of: string } | null>(null);
  const show = place?.of === listKey && place.row < count ? place : null;
  const now = useRef({ at: -1, count, listKey });
  now.current = { at: show?.row ?? -1, count, listKey };
  const target = (row: number) => box.current?.querySelector<HTMLElement>(`[data-row="${row}"] :is(a, button)`);
  useEffect(() => {
    const step = (by: 1 | -1) => () => {
      const { at, count: many, listKey: of } = now.current;
      if (many) setPlace({ row: Math.max(0, Math.min(many - 1, at + by)), of });
    };
    const ends = [onCommand("list-next", step(1)), onCommand("list-previous", step(-1)),
      onCommand("list-open", () => target(now.current.at)?.click())];
    return () => ends.forEach((end) => end());
  }, []);
  useEffect(() => {
    if (!show) return;
    // the line may have to be drawn first
    const frame = requestAnimationFrame(() => target(show.row)?.focus({ preventScroll: true }));
    return () => cancelAnimationFrame(frame);
  }, [show]);
  return { at: show?.row ?? -1, show };
}
