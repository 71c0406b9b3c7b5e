// One chart of curves with bands: the only place that knows uPlot. Always true: charts of one group show the same x under the
// pointer; a curve is told by its dash and its name as well as its hue; the numbers are in a table too.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { compact, plain } from "../numbers";
import { FAMILY_COLOURS, GROUND, type Shade, TEXT } from "../palette";
import { type Aligned, aligned, last, splitName } from "../series";
import type { Series } from "../shapes.gen";
import { shade } from "../state";
import { chartMeaning } from "../terms";
import "./chart.css";

export interface Mark {
  x: number;
  text: string;
}

/** A value to compare with, drawn across the chart. */
export interface ChartLevel {
  name: string;
  value: number;
  is_bound: boolean;
}

export interface ChartProps {
  title: string;
  xLabel: string;
  series: Series[];
  /** Charts of one group are hovered together. */
  group: string;
  marks?: Mark[];
  levels?: readonly ChartLevel[];
  height?: number;
}

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 4]];
const MOST_ROWS = 200;
/** Curves beyond this are thin: each seed beside the mean. */
const STRONG = 1;

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const data = useMemo(() => aligned(props.series), [props.series]);
  const now = shade.value;
  useLayoutEffect(() => {
    const element = place.current!;
    const plot = new uPlot(options(props, data, now, element.clientWidth || 300, setAt), columns(data), element);
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth) plot.setSize({ width: element.clientWidth, height: props.height ?? HEIGHT });
    });
    sizes.observe(element);
    return () => { sizes.disconnect(); plot.destroy(); };
  }, [data, now, props.title, props.marks, props.levels]);
  return (
    <figure class="chart">
      <figcaption>
        <strong title={chartMeaning(props.title) ?? undefined}>{props.title.replaceAll("_", " ")}</strong>{" "}
        {props.series.slice(0, MOST_NAMED).map((series, i) =>
          <Reading key={series.name} series={series} data={data} i={i} at={at} isOnly={props.series.length === 1} />)}
        {props.levels?.map((level) => <span key={level.name} class="reading quiet">{level.is_bound ? "━" : "┄"} {level.name.replaceAll("_", " ")}{" "}
          <b>{compact(level.value)}</b></span>)}
        {props.series.length > MOST_NAMED && <span class="quiet">and {props.series.length - MOST_NAMED} more</span>}
        <span class="quiet end">{at === null || data.x[at] === undefined ? "" : `${props.xLabel} ${compact(data.x[at])}`}</span>
      </figcaption>
      <div ref={place} class="chart-canvas" role="img" aria-label={spoken(props)} />
      {props.marks?.length
        ? <ul class="chart-marks">
        {props.marks.map((mark) =>
          <li key={`${mark.x}${mark.text}`}>▲ {props.xLabel} {compact(mark.x)}: <bdi>{mark.text}</bdi></li>)}</ul> : null}
      <Twin data={data} title={props.title} xLabel={props.xLabel} />
    </figure>
  );
}

const HEIGHT = 190;
const MOST_NAMED = 6;

/** The name of a curve and its value: under the pointer, or the last one. */
function Reading(props: { series: Series; data: Aligned; i: number; at: number | null; isOnly: boolean }) {
  const { i, at, data } = props;
  const value = at === null ? last(props.series)?.y ?? null : data.rows[i]!.y[at] ?? null;
  const [low, high] = at === null ? [null, null] : [data.rows[i]!.low?.[at] ?? null, data.rows[i]!.high?.[at] ?? null];
  return (
    <span class="reading">
      <svg width="22" height="8" aria-hidden="true">
        <line x1="0" x2="22" y1="4" y2="4" stroke={colourOf(i, shade.value)} stroke-width={i < STRONG ? 3 : 2}
          stroke-dasharray={DASHES[i % DASHES.length]!.join(" ")} /></svg>
      {!props.isOnly && <bdi>{splitName(props.series.name)[1]}</bdi>} <b>{compact(value)}</b>
      {low !== null && high !== null && <span class="quiet">[{compact(low)}, {compact(high)}]</span>}
    </span>
  );
}

function spoken(props: ChartProps): string {
  const ends = props.series.slice(0, MOST_NAMED).map((series) => `${series.name} ends at ${plain(last(series)?.y)}`);
  const levels = (props.levels ?? []).map((level) => `${level.name} is ${plain(level.value)}`);
  return `${props.title} by ${props.xLabel}: ${[...ends, ...levels].join(", ")}. The numbers are in the table below.`;
}

/** The same numbers as a table, thinned where there are many. */
function Twin(props: { data: Aligned; title: string; xLabel: string }) {
  const { x, rows } = props.data;
  const [isOpen, setOpen] = useState(false);
  const step = Math.max(1, Math.ceil(x.length / MOST_ROWS));
  const shown = x.map((_, i) => i).filter((i) => i % step === 0 || i === x.length - 1);
  return (
    <details class="twin" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Table{step > 1 ? `, every ${step}th of ${x.length} rows` : ""}</summary>
      {isOpen && <div class="twin-scroll" tabIndex={0} role="region" aria-label={`${props.title} as a table`}><table>
        <thead><tr><th scope="col">{props.xLabel}</th>
          {rows.map((row) => <th key={row.series.name} scope="col">{row.series.name}</th>)}</tr></thead>
        <tbody>{shown.map((i) => (
          <tr key={i}><th scope="row">{plain(x[i], 6)}</th>{rows.map((row) => (
            <td key={row.series.name} class="number">{plain(row.y[i], 4)}
              {row.low && row.low[i] !== null ? ` [${plain(row.low[i])}, ${plain(row.high![i])}]` : ""}</td>
          ))}</tr>
        ))}</tbody>
      </table></div>}
    </details>
  );
}

function colourOf(i: number, shade: Shade): string {
  return FAMILY_COLOURS[shade][i % 5]!;
}

function columns(data: Aligned): uPlot.AlignedData {
  return [data.x, ...data.rows.flatMap((row) => (row.low ? [row.y, row.low, row.high!] : [row.y]))] as uPlot.AlignedData;
}

function options(props: ChartProps, data: Aligned, shade: Shade, width: number,
  onAt: (at: number | null) => void): uPlot.Options {
  const ink = TEXT[shade];
  const axis: uPlot.Axis = { stroke: ink, font: "12px system-ui, sans-serif", grid: { stroke: `${ink}1F`, width: 1 },
    ticks: { stroke: `${ink}40`, width: 1 } };
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  data.rows.forEach((row, i) => {
    const colour = colourOf(i, shade);
    const first = series.length;
    series.push({ stroke: colour, width: i < STRONG ? 2.5 : 1.5, dash: DASHES[i % DASHES.length]!, spanGaps: true,
      points: { show: data.x.length < 40 } });
    if (!row.low) return;
    series.push({ stroke: "transparent", points: { show: false }, spanGaps: true },
      { stroke: "transparent", points: { show: false }, spanGaps: true });
    bands.push({ series: [first + 2, first + 1], fill: `${colour}33` });
  });
  return {
    width, height: props.height ?? HEIGHT, series, bands, legend: { show: false }, padding: [8, 12, 0, 0],
    scales: { x: { time: false }, y: { range: (_plot, low, high) => around(low, high, props.levels ?? []) } },
    axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => compact(tick)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => compact(tick)) }],
    cursor: { sync: { key: props.group }, drag: { x: true, y: false }, y: false },
    hooks: {
      setCursor: [(plot) => onAt(plot.cursor.idx ?? null)],
      draw: [(plot) => { drawMarks(plot, props.marks ?? [], ink); drawLevels(plot, props.levels ?? [], ink); }],
    },
  };
}

/** The range of the y axis: what is drawn, and a little more. */
function around(low: number, high: number, levels: readonly ChartLevel[]): uPlot.Range.MinMax {
  const values = [low, high, ...levels.map((level) => level.value)].filter((value) => Number.isFinite(value));
  if (!values.length) return [0, 1];
  const [from, to] = uPlot.rangeNum(Math.min(...values), Math.max(...values), 0.08, false);
  return [from ?? 0, to ?? 1];
}

/** The bound as a whole line, hand-made policies as dotted ones, each with its name where it ends. */
function drawLevels(plot: uPlot, levels: readonly ChartLevel[], ink: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.fillStyle = ink;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  const named: number[] = [];
  const words: [string, number][] = [];
  for (const level of [...levels].sort((a, b) => Number(b.is_bound) - Number(a.is_bound) || b.value - a.value)) {
    const y = Math.round(plot.valToPos(level.value, "y", true));
    ctx.setLineDash(level.is_bound ? [] : [2 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.globalAlpha = level.is_bound ? 0.9 : 0.55;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    // names that would stand on each other are in the caption only
    if (named.some((other) => Math.abs(y - other) < 13 * devicePixelRatio)) continue;
    named.push(y);
    words.push([level.name.replaceAll("_", " "), y]);
  }
  // the names last, on the ground of the page: a line through a word cannot be read
  ctx.globalAlpha = 1;
  ctx.setLineDash([]);
  ctx.lineWidth = 4 * devicePixelRatio;
  ctx.lineJoin = "round";
  ctx.strokeStyle = GROUND[shade.peek()];
  for (const [text, y] of words) {
    const [right, base] = [bbox.left + bbox.width - 4 * devicePixelRatio, y + 4 * devicePixelRatio];
    ctx.strokeText(text, right, base);
    ctx.fillText(text, right, base);
  }
  ctx.restore();
}

function drawMarks(plot: uPlot, marks: Mark[], ink: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ink;
  ctx.fillStyle = ink;
  ctx.setLineDash([3, 3]);
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText("▲", x - 4, bbox.top + bbox.height);
  }
  ctx.restore();
}
