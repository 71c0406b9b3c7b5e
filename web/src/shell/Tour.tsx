// The tour of a first visit: six cards. Always true: it is shown once in a browser, on a server's page only; it is in nobody's way:
// Esc and Skip end it, everything below it can be used, no legend is hidden by it, and the menu brings it back.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { onCommand } from "../keys";
import { keep, recall, route, source, trace } from "../state";

interface Card { title: string; text: string; /** What it speaks of, if that is on the screen. */ at: string }

const CARDS: readonly Card[] = [
  { title: "Your traces", at: ".traces-body .grid-table",
    text: "The list under Traces has a line for each run of a team. Click a column to sort, a filter on the left to narrow the list, or type: errors>0 cost>5. J, K and Enter move through it. The address keeps what you see." },
  { title: "The answers first", at: ".answers",
    text: "Open a trace: the line under its title says who was slowest, what cost most, who earned the result, where it first went wrong. Each answer leads to the events behind it." },
  { title: "Who and when", at: ".panels",
    text: "On the left the agents, as they were spawned; in the middle their work over time, with the critical path outlined. W and S zoom, A and D move, F shows everything again." },
  { title: "What was said", at: ".tabs",
    text: "Text is the transcript of one agent, its sub-agents or everybody. Select any event, in any view, and the panel on the right shows what it says, what caused it and what it led to." },
  { title: "Who earned it, what went wrong", at: ".tabs",
    text: "Credit divides the result among agents, turns or events, by the method you choose. Blame ranks the steps that may have broken a failed run. Safety follows content from outside to where it had an effect." },
  { title: "Try, compare, share", at: ".trace-head .end",
    text: "Fork changes one event of a simulated or recorded team and runs on. Pick two traces in the list for a Diff. Share makes one file of a trace, with secrets masked. Press ? for all keys." },
];

const at = signal(-1);
const NAME = "tour";

function end(): void {
  at.value = -1;
  keep(NAME, "seen");
}

export function Tour() {
  const box = useRef<HTMLElement>(null);
  const now = at.value;
  useEffect(() => {
    if (source.value?.kind === "server" && recall(NAME) === null) at.value = 0;
    return onCommand("tour", () => { at.value = 0; });
  }, []);
  useEffect(() => {
    if (now < 0) return;
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      end();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [now < 0]);
  useEffect(() => ring(now < 0 ? null : CARDS[now]!.at), [now, route.value.page, trace.value?.id]);
  useEffect(() => (now >= 0 && box.current ? keepOff(box.current) : undefined), [now]);
  const card = CARDS[now];
  if (!card) return null;
  const isLast = now === CARDS.length - 1;
  return (
    <aside ref={box} class="tour" aria-label="Tour">
      <p class="quiet">{now + 1} of {CARDS.length}</p>
      <h2>{card.title}</h2>
      <p aria-live="polite">{card.text}</p>
      <div class="row">
        <button type="button" class="main" onClick={() => (isLast ? end() : (at.value = now + 1))}>{isLast ? "Done" : "Next"}</button>
        {now > 0 && <button type="button" onClick={() => (at.value = now - 1)}>Back</button>}
        {!isLast && <button type="button" class="plain" onClick={end}>Skip</button>}
      </div>
    </aside>
  );
}

/** Marks what a card speaks of as soon as it is on the screen; gives a function that ends it. */
function ring(selector: string | null): (() => void) | undefined {
  if (selector === null) return undefined;
  let found: Element | null = null;
  const look = (): void => {
    found = document.querySelector(selector);
    found?.classList.add("toured");
    if (found) changes.disconnect();
  };
  const changes = new MutationObserver(look);
  changes.observe(document.body, { childList: true, subtree: true });
  look();
  return () => { changes.disconnect(); found?.classList.remove("toured"); };
}

const FOOT = 20, APART = 8;

/** Keeps the card at the foot of the page, above any legend there, whatever opens, scrolls or is resized; gives a function that ends it. */
function keepOff(box: HTMLElement): () => void {
  let asked = 0;
  const place = (): void => {
    asked = 0;
    const { left, right, height } = box.getBoundingClientRect();
    const tops = [...document.querySelectorAll(".time-legend")].map((one) => one.getBoundingClientRect())
      .filter((one) => one.width > 0 && one.left < right && one.right > left && one.top < innerHeight && one.bottom > innerHeight - FOOT - height)
      .map((one) => one.top);
    const bottom = Math.max(FOOT, ...tops.map((top) => innerHeight - top + APART));
    const wanted = bottom + height <= innerHeight ? `${bottom}px` : "";
    if (box.style.bottom !== wanted) box.style.bottom = wanted;
  };
  const look = (): void => { asked ||= requestAnimationFrame(place); };
  const changes = new MutationObserver(look), sizes = new ResizeObserver(look);
  changes.observe(document.body, { childList: true, subtree: true });
  sizes.observe(document.body);
  addEventListener("scroll", look, true);
  place();
  return () => { cancelAnimationFrame(asked); changes.disconnect(); sizes.disconnect(); removeEventListener("scroll", look, true); };
}
