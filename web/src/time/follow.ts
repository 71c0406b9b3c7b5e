// Between the timeline and the rest of the page: the shared zoom, the selection, windows of large traces. Always true: a zoom
// that the timeline wrote itself never moves it; what another view selects comes into sight.
import { batch, effect } from "@preact/signals";
import {
  colourBy, columns, hover, marked, mask, rowOf, selectedAgent, selectedEvent, shade, source, suspects, trace, zoom, zoomTo,
} from "../state";
import { covered, forgetWindows, wantWindow } from "./large";
import * as model from "./model";
import { EXACT } from "./plan";
import type { Stage } from "./stage";

/** Draws again when anything that is drawn changes. */
function redraw(stage: Stage): () => void {
  const ends = [
    effect(model.rebuildBins),
    effect(() => {
      void [model.lanes.value, model.index.value, model.classes.value, model.binned.value, model.map.value];
      void [covered.value, shade.value, colourBy.value, stage.rows.value];
      stage.changed();
    }),
    effect(() => {
      void [selectedEvent.value, selectedAgent.value, hover.value, marked.value, suspects.value];
      stage.pointed();
    }),
  ];
  return () => ends.forEach((end) => end());
}

function followZoom(stage: Stage): () => void {
  let own: [number, number] | null | undefined;
  const ends = [
    effect(() => {
      const [wanted, map] = [zoom.value, model.map.value];
      if (!map || (own !== undefined && wanted === own)) return;
      own = wanted;
      if (wanted) stage.look({ ...stage.view, s0: map.fold(wanted[0]), s1: map.fold(wanted[1]) });
      else stage.fitAll();
    }),
    effect(() => {
      const view = stage.settled.value;
      const map = model.map.peek();
      if (!view || !map) return;
      const isAll = view.s0 <= 0 && view.s1 >= map.length;
      const range: [number, number] = [map.unfold(view.s0), map.unfold(view.s1)];
      // The same times again are no news: writing them would move nothing and fill the history.
      if (!isAll || zoom.peek()) zoomTo(isAll ? null : range);
      own = zoom.peek();
      void wantWindow(range[0], range[1]);
    }),
    // A large trace comes in two steps: what was asked for at the first is asked again when the whole is there.
    effect(() => {
      const [current, view, map] = [trace.value, stage.settled.peek(), model.map.peek()];
      if (current && view && map) void wantWindow(map.unfold(view.s0), map.unfold(view.s1));
    }),
  ];
  return () => ends.forEach((end) => end());
}

/** Seconds of an event that is not at hand, as its fields say. */
async function timeOf(n: number): Promise<number | null> {
  const current = trace.value;
  const found = current ? await source.value?.event(current.id, n).catch(() => null) : null;
  const t = found?.fields["t"];
  return typeof t === "number" ? t : null;
}

function followSelection(stage: Stage): () => void {
  return effect(() => {
    const n = selectedEvent.value;
    const current = trace.value;
    if (n < 0 || !current) return;
    const row = rowOf(n);
    if (row >= 0 && columns.peek()) return stage.revealRow(row);
    void timeOf(n).then((t) => {
      const map = model.map.peek();
      if (t === null || !map || selectedEvent.peek() !== n) return;
      const half = Math.min(stage.view.s1 - stage.view.s0, (map.length * EXACT) / 4 / current.about.events) / 2;
      stage.look({ ...stage.view, s0: map.fold(t) - half, s1: map.fold(t) + half });
    });
  });
}

/** Another trace: nothing of the last one is kept. */
function followTrace(): () => void {
  let last = "";
  return effect(() => {
    const id = trace.value?.id ?? "";
    if (id === last) return;
    last = id;
    batch(() => {
      model.opened.value = new Set();
      model.rewardByEvent.value = null;
      forgetWindows();
    });
  });
}

/** Rewards of single events are asked for when they are to be shown. */
function followReward(): () => void {
  return effect(() => {
    const current = trace.value;
    if (colourBy.value !== "reward" || !current || model.rewardByEvent.value || !source.value) return;
    void source.value.credit(current.id, "reward", "event").catch(() => null).then((found) => {
      if (!found || found.refusal || trace.peek() !== current) return;
      const values = new Float32Array(current.about.events).fill(NaN);
      for (const row of found.rows) if (row.event >= 0) values[row.event] = row.value;
      model.rewardByEvent.value = values;
    });
  });
}

/** Open events have a moving edge, unless the reader wants none. */
function followOpen(stage: Stage): () => void {
  const isStill = matchMedia("(prefers-reduced-motion: reduce)");
  const timer = setInterval(() => { if (model.hasOpen.peek() && !isStill.matches && !document.hidden) stage.pointed(); }, 120);
  return () => clearInterval(timer);
}

export function follow(stage: Stage): () => void {
  const ends = [followTrace(), followZoom(stage), redraw(stage), followSelection(stage), followReward(), followOpen(stage)];
  return () => ends.forEach((end) => end());
}

/** What the reader should know about the colours, or null. */
export function note(isExact: boolean): string | null {
  const by = colourBy.value;
  const isLarge = trace.value?.columns === null;
  if (!isExact && isLarge && (by !== "family" || mask.value)) {
    return "Seen from afar, colours show families of all events; zoom in (W) for the rest.";
  }
  if (by === "credit" && model.isCreditOfAgents.value) return "Credit of agents: each event has its agent's colour.";
  if (by === "credit" && !model.creditByRow.value) return "No credit by event yet: the Credit view (4) says what is missing.";
  if (by === "reward" && !model.rewardByEvent.value) {
    return "No rewards of single events here, only of the whole team; colour by credit shows who earned it.";
  }
  return null;
}
