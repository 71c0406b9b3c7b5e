// One HTML file, inline: it must open from disk, and the server gives out nothing else.
import preact from "@preact/preset-vite";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { viteSingleFile } from "vite-plugin-singlefile";

/** The page is called viewer.html in the package; the development server wants index.html. */
const rename: Plugin = {
  name: "viewer-html",
  enforce: "post",
  generateBundle: { order: "post", handler(_, bundle) {
    const page = bundle["index.html"];
    if (page) page.fileName = "viewer.html";
  } },
};

export default defineConfig({
  base: "./",
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), viteSingleFile({ removeViteModuleLoader: true }), rename],
  build: { outDir: "../src/counterpoint/app/viewer/page", emptyOutDir: false, target: "es2022", cssCodeSplit: false, reportCompressedSize: false },
  test: { environment: "node", include: ["tests/**/*.test.ts"] },
});
