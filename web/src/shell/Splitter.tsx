// The bar between two panels. Always true: it can be dragged, and moved by arrow keys; widths are kept in this browser.
import { useState } from "preact/hooks";
import { keep, recall } from "../state";

const LEAST = 12;
const MOST = 48;
const STEP = 1;

export interface Widths { left: number; right: number }

/** Widths in rem, so that they grow with the text. */
export function readWidths(text: string | null): Widths {
  const [left, right] = (text ?? "").split(" ").map(Number);
  return { left: within(left ?? NaN, 20), right: within(right ?? NaN, 24) };
}

function within(width: number, otherwise: number): number {
  return Number.isFinite(width) && width > 0 ? Math.min(MOST, Math.max(LEAST, width)) : otherwise;
}

export function usePanelWidths(): [Widths, (side: keyof Widths, rem: number) => void] {
  const [widths, set] = useState(() => readWidths(recall("widths")));
  const change = (side: keyof Widths, rem: number): void => {
    const next = { ...widths, [side]: within(rem, widths[side]) };
    set(next);
    keep("widths", `${next.left} ${next.right}`);
  };
  return [widths, change];
}

interface Props { label: string; side: "left" | "right"; width: number; onWidth: (rem: number) => void }

export function Splitter({ label, side, width, onWidth }: Props) {
  const sign = side === "left" ? 1 : -1;
  const onPointerDown = (down: PointerEvent): void => {
    const bar = down.currentTarget as HTMLElement;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const [from, before] = [down.clientX, width];
    bar.setPointerCapture(down.pointerId);
    const move = (event: PointerEvent): void => onWidth(before + (sign * (event.clientX - from)) / rem);
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", () => bar.removeEventListener("pointermove", move), { once: true });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? STEP : event.key === "ArrowLeft" ? -STEP : 0;
    if (!step) return;
    event.preventDefault();
    onWidth(width + sign * step);
  };
  return (
    <div class={`splitter ${side}`} role="separator" aria-orientation="vertical" aria-label={label}
      aria-valuenow={Math.round(width)} aria-valuemin={LEAST}
      aria-valuemax={MOST} tabIndex={0} onPointerDown={onPointerDown} onKeyDown={onKeyDown} />
  );
}
