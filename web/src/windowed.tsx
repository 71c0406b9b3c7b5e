// A list that draws only the rows near the screen. Always true: rows may have any height and change it; the row that the reader
// looks at stays in place when heights above it become known.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { Heights, scaled, TALLEST, unscaled, visible } from "./heights";

export interface WindowedProps {
  count: number;
  /** Height of a row before it is measured. */
  estimate: number;
  label: string;
  /** Another list: forgets heights and place. */
  listKey: string;
  /** Rows of a table rather than items of a list. */
  isTable?: boolean;
  class?: string;
  render: (row: number) => ComponentChildren;
  /** Rows on the screen, `to` one past the last. */
  onRange?: (from: number, to: number) => void;
  /** Brings a row into view, whenever it is another object. */
  show?: { row: number } | null;
  /** Stay at the end while rows are added, as long as the reader is there. */
  stick?: boolean;
}

const BEYOND = 300;

/** Where the reader is: a row, and how far the screen's top is below its top. */
class Viewport {
  heights: Heights;
  view = 600;
  private row = 0;
  private offset = 0;
  private atEnd = true;

  constructor(readonly key: string, count: number, estimate: number) {
    this.heights = new Heights(count, estimate);
  }

  get top(): number {
    const wanted = this.heights.top(Math.min(this.row, this.heights.count)) + this.offset;
    return Math.max(0, Math.min(wanted, this.heights.total - this.view));
  }

  goTo(top: number): void {
    this.row = this.heights.at(top);
    this.offset = top - this.heights.top(this.row);
    this.atEnd = top >= this.heights.total - this.view - 4;
  }

  resize(count: number, stick: boolean): void {
    if (count === this.heights.count) return;
    const old = this.heights;
    this.heights = new Heights(count, old.estimate);
    for (let row = 0; row < Math.min(count, old.count); row++) this.heights.measure(row, old.height(row));
    if (stick && this.atEnd) this.goTo(this.heights.total - this.view);
  }

  /** Brings a row in, a third down the screen, unless it is there already. */
  show(row: number): void {
    const at = this.heights.top(row);
    if (at >= this.top && at + this.heights.height(row) <= this.top + this.view) return;
    this.row = row;
    this.offset = -this.view / 3;
    this.atEnd = false;
  }

  /** The reader moved the scroll bar; what we set ourselves comes back here too and changes nothing. */
  scrolled(scrollTop: number): boolean {
    const total = this.heights.total;
    if (Math.abs(scrollTop - scaled(this.top, total, this.view)) < 2) return false;
    this.goTo(unscaled(scrollTop, total, this.view));
    return true;
  }
}

export function Windowed(props: WindowedProps) {
  const box = useRef<HTMLDivElement>(null);
  const kept = useRef<Viewport | null>(null);
  const [, redraw] = useReducer<number, void>((n) => n + 1, 0);
  if (kept.current?.key !== props.listKey) {
    const view = kept.current?.view;
    kept.current = new Viewport(props.listKey, props.count, props.estimate);
    if (view) kept.current.view = view;
  }
  const port = kept.current;
  port.resize(props.count, props.stick ?? false);
  useLayoutEffect(() => follow(box.current!, kept, redraw), []);
  useLayoutEffect(() => {
    if (props.show && props.show.row >= 0) port.show(props.show.row);
    redraw();
  }, [props.show, props.listKey]);
  const { heights, view, top } = port;
  const { from, to } = visible(heights, top, view, BEYOND);
  const scrollTop = scaled(top, heights.total, view);
  useLayoutEffect(() => {
    const element = box.current!;
    if (measured(element, heights)) return redraw();
    if (Math.abs(element.scrollTop - scrollTop) >= 1) element.scrollTop = scrollTop;
  });
  useLayoutEffect(() => props.onRange?.(from, to), [from, to, props.listKey]);
  return (
    <div ref={box} class={`windowed ${props.class ?? ""}`} tabIndex={0} role={props.isTable ? "rowgroup" : "list"}
      aria-label={props.label}>
      <div class="windowed-all" role="presentation" style={{ height: `${Math.min(heights.total, TALLEST)}px` }}>
        <div class="windowed-rows" role="presentation"
          style={{ transform: `translateY(${scrollTop + heights.top(from) - top}px)` }}>
          {Array.from({ length: to - from }, (_, i) => (
            <div key={from + i} data-row={from + i} {...(props.isTable ? { role: "presentation" } : item(from + i, props.count))}>
              {props.render(from + i)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

const item = (row: number, count: number) => ({ role: "listitem", "aria-posinset": row + 1, "aria-setsize": count }) as const;

function measured(box: HTMLElement, heights: Heights): boolean {
  let changed = false;
  for (const element of box.querySelectorAll<HTMLElement>(":scope > .windowed-all > .windowed-rows > [data-row]")) {
    changed = heights.measure(Number(element.dataset["row"]), element.offsetHeight) || changed;
  }
  return changed;
}

/** Scrolling, resizing, and the wheel where the scroll bar is scaled and would leap. */
function follow(box: HTMLElement, kept: { current: Viewport | null }, redraw: () => void): () => void {
  const port = () => kept.current!;
  const onScroll = () => port().scrolled(box.scrollTop) && redraw();
  const onWheel = (event: WheelEvent) => {
    if (port().heights.total <= TALLEST || event.ctrlKey) return;
    event.preventDefault();
    port().goTo(Math.max(0, port().top + event.deltaY));
    redraw();
  };
  const sizes = new ResizeObserver(() => {
    if (box.clientHeight) port().view = box.clientHeight;
    redraw();
  });
  box.addEventListener("scroll", onScroll, { passive: true });
  box.addEventListener("wheel", onWheel, { passive: false });
  sizes.observe(box);
  return () => {
    box.removeEventListener("scroll", onScroll);
    box.removeEventListener("wheel", onWheel);
    sizes.disconnect();
  };
}
