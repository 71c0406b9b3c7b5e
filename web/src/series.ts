// Curves made ready for a chart. Always true: curves of a chart share one x axis, and where a curve has no point there is a gap,
// not a zero.
import type { Series } from "./shapes.gen";

export interface Aligned {
  x: number[];
  /** One row per series: its values, and its band where it has one. */
  rows: { series: Series; y: (number | null)[]; low: (number | null)[] | null; high: (number | null)[] | null }[];
}

export function aligned(all: Series[]): Aligned {
  const x = [...new Set(all.flatMap((series) => series.x))].sort((a, b) => a - b);
  const place = new Map(x.map((value, i) => [value, i]));
  const spread = (series: Series, values: (number | null)[]) => {
    const out: (number | null)[] = new Array(x.length).fill(null);
    series.x.forEach((value, i) => {
      out[place.get(value)!] = finite(values[i]);
    });
    return out;
  };
  const rows = all.map((series) => {
    const hasBand = series.low.length === series.x.length && series.high.length === series.x.length && series.x.length > 0;
    return {
      series,
      y: spread(series, series.y),
      low: hasBand ? spread(series, series.low) : null,
      high: hasBand ? spread(series, series.high) : null,
    };
  });
  return { x, rows };
}

const finite = (value: number | null | undefined) =>
  (value === null || value === undefined || !Number.isFinite(value) ? null : value);

export interface ChartGroup {
  title: string;
  series: Series[];
}

/** One chart for each quantity: `reward/seed 3` is a curve of the chart `reward`; the mean comes first. */
export function charts(all: Series[]): ChartGroup[] {
  const groups = new Map<string, Series[]>();
  for (const series of all) {
    const title = splitName(series.name)[0];
    const group = groups.get(title);
    if (group) group.push(series);
    else groups.set(title, [series]);
  }
  return [...groups].map(([title, series]) => ({
    title,
    series: series.sort((a, b) => Number(b.low.length > 0) - Number(a.low.length > 0)),
  }));
}

/** Name of the chart, and of the curve within it. */
export function splitName(name: string): [string, string] {
  const at = name.indexOf("/");
  return at < 0 ? [name, name] : [name.slice(0, at), name.slice(at + 1)];
}

/** The last point that is there. */
export function last(series: Series): { x: number; y: number } | null {
  for (let i = series.y.length - 1; i >= 0; i--) {
    const y = finite(series.y[i]);
    if (y !== null) return { x: series.x[i]!, y };
  }
  return null;
}

/** `step 40` in an alert's text is where to mark it; null where it names none. */
export function stepOf(text: string): number | null {
  const found = /\b(?:step|update)s?\s+(\d+)/i.exec(text);
  return found ? Number(found[1]) : null;
}
