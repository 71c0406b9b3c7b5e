// A short word at the bottom, read out by screen readers too.
import { signal } from "@preact/signals";

const word = signal("");
let timer = 0;

export function say(text: string): void {
  word.value = text;
  clearTimeout(timer);
  timer = window.setTimeout(() => { word.value = ""; }, 4000);
}

export function Toast() {
  return <div class={word.value ? "toast" : "toast off"} role="status" aria-live="polite">{word.value}</div>;
}
