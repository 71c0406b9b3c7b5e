// Icons: one stroke each, drawn here so that nothing is fetched. The text beside them names them.
const PATHS: Record<string, string> = {
  traces: "M3 5h14M3 10h14M3 15h14",
  trace: "M3 4h7M6 10h11M3 16h8",
  diff: "M3 4h6v12H3zM11 4h6v12h-6zM5 8h2M13 12h2",
  runs: "M3 16V4M3 16h14M5 13l4-5 3 3 5-6",
  compare: "M5 16V9M10 16V4M15 16v-5",
  bench: "M4 16h12M5 16V8h3v8M8.5 16V4h3v12M12 16v-6h3v6",
  issues: "M10 3l8 14H2zM10 8v4M10 14.6v.1",
  live: "M10 10m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0M5.5 5.5a6.4 6.4 0 0 0 0 9M14.5 5.5a6.4 6.4 0 0 1 0 9",
  theme: "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
  menu: "M4 6h12M4 10h12M4 14h7",
  help: "M7.5 7.5a2.5 2.5 0 1 1 3.5 2.3c-.7.4-1 .9-1 1.7M10 14.6v.1",
};

export function Icon({ name }: { name: string }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? ""} fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round"
        stroke-linejoin="round" />
    </svg>
  );
}
