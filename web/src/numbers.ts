// Numbers as people read them, written as the commands write them (`counterpoint.display`; one table tests both). Always true:
// what is absent is a dash, never 0; a sign is a real minus.

export const ABSENT = "–";

type Maybe = number | null | undefined;

const isAbsent = (value: Maybe): value is null | undefined => value === null || value === undefined || Number.isNaN(value);

/** 950, 18.2 k, 1.2 M: three digits at most. */
export function compact(value: Maybe): string {
  if (isAbsent(value)) return ABSENT;
  const size = Math.abs(value);
  for (const [from, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]] as const) {
    if (size >= from * 0.9995) return minus(digits(value / from, 3)) + unit;
  }
  return minus(digits(value, 3));
}

/** Up to `most` digits that count, no zeros at the end. */
export function plain(value: Maybe, most = 3): string {
  return isAbsent(value) ? ABSENT : minus(digits(value, most));
}

/** Credit and differences: always with a sign, `places` after the point. */
export function signed(value: Maybe, places = 2): string {
  if (isAbsent(value)) return ABSENT;
  const text = Math.abs(value).toFixed(places);
  if (Number(text) === 0) return value === 0 ? text : `${value < 0 ? "−" : "+"}${Math.abs(value).toExponential(0)}`;
  return (value < 0 ? "−" : "+") + text;
}

/** 850 ms, 12.4 s, 4m10, 4h55, 3d04h. */
export function span(seconds: Maybe): string {
  if (isAbsent(seconds)) return ABSENT;
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (size === 0) return "0 s";
  if (size < 0.9995) return `${sign}${digits(size * 1000, 3)} ms`;
  if (size < 59.95) return `${sign}${digits(size, 3)} s`;
  const whole = Math.round(size);
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)}m${two(whole % 60)}`;
  const minutes = Math.round(size / 60);
  if (minutes < 48 * 60) return `${sign}${Math.floor(minutes / 60)}h${two(minutes % 60)}`;
  const hours = Math.round(size / 3600);
  return `${sign}${Math.floor(hours / 24).toLocaleString("en")}d${two(hours % 24)}h`;
}

/** Seconds since the epoch as day and minute, UTC: 2026-11-16 09:20. */
export function moment(seconds: Maybe): string {
  return isAbsent(seconds) ? ABSENT : new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

/** The same in the reader's time zone. */
export function localMoment(seconds: Maybe): string {
  return isAbsent(seconds) ? ABSENT : moment(seconds - new Date(seconds * 1000).getTimezoneOffset() * 60);
}

export function money(dollars: Maybe): string {
  if (isAbsent(dollars)) return ABSENT;
  const size = Math.abs(dollars);
  const text = size >= 999.995 ? Math.round(size).toLocaleString("en") : size === 0 || size >= 0.0995 ? size.toFixed(2) : digits(size, 2);
  return `${dollars < 0 ? "−" : ""}$${text}`;
}

/** 18 kB, 4 MB. */
export function bytes(size: number): string {
  if (size < 1000) return `${size} B`;
  return `${compact(size).replace(" G", " GB").replace(" M", " MB").replace(" k", " kB")}`;
}

export function percent(share: Maybe): string {
  return isAbsent(share) ? ABSENT : `${minus(digits(share * 100, 2))} %`;
}

/** A share of something known, as the commands print it: 97.3 %. */
export function tenths(share: Maybe): string {
  return isAbsent(share) ? ABSENT : `${minus((share * 100).toFixed(1))} %`;
}

/** With a sign and so many digits that count, as `compare` prints differences. */
export function signedPlain(value: Maybe, most = 4): string {
  return isAbsent(value) ? ABSENT : (value > 0 ? "+" : "") + plain(value, most);
}

/** Change from a to b, as a share of a; absent when there is nothing to hold it against. */
export function change(a: Maybe, b: Maybe): string {
  if (isAbsent(a) || isAbsent(b) || a === 0) return ABSENT;
  const share = (b - a) / Math.abs(a);
  if (share === 0) return "0 %";
  return `${share < 0 ? "−" : "+"}${digits(Math.abs(share) * 100, 2)} %`;
}

export function count(value: number, one: string, many = `${one}s`): string {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
}

function digits(value: number, most: number): string {
  if (value === 0) return "0";
  const before = Math.floor(Math.log10(Math.abs(value))) + 1;
  const places = Math.max(0, Math.min(8, most - before));
  const text = value.toFixed(places);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A real minus for a hyphen. */
export const minus = (text: string) => text.replace("-", "−");
const two = (value: number) => String(value).padStart(2, "0");
