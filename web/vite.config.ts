// One HTML file, inline: it must open from disk, and the server gives out nothing else.
import preact from "@preact/preset-vite";
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
  base: "./",
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), viteSingleFile({ removeViteModuleLoader: true })],
  build: { outDir: "../src/counterpoint/app/viewer/page", emptyOutDir: false, target: "es2022", cssCodeSplit: false, reportCompressedSize: false },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
});
