// Bundles regl-scatterplot and what it needs into one script that a page can hold inline: dolb/viewer/scatterplot.js.
//   npm ci --ignore-scripts && npm run build
// The lock file pins every package, so that the same bytes come out everywhere. The licences stand at its top.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const TARGET = new URL("../../dolb/viewer/scatterplot.js", import.meta.url);
const ALLOWED = new Set(["MIT", "ISC"]);

const result = await build({
  stdin: { contents: 'export { default as create, createRenderer } from "regl-scatterplot";', resolveDir: "." },
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "dolbScatterplot",
  target: "es2020",
  legalComments: "none", // the full texts are in the banner
  alias: { regl: "regl/dist/regl.unchecked.js" }, // its checks are for those who write shaders
  write: false,
});

// regl-scatterplot comes with most of its dependencies bundled already, so the lock file says what is in it.
const locked = Object.keys(JSON.parse(readFileSync("package-lock.json", "utf8")).packages);
const folders = locked.filter((path) => path && !/^node_modules\/(@esbuild\/|esbuild$)/.test(path)).sort();
const licences = folders.map((folder) => {
  const name = folder.replace("node_modules/", "");
  const about = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  if (!ALLOWED.has(about.license))
    throw new Error(`${name} has the licence ${about.license}; accepted: ${[...ALLOWED]}`);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no licence file`);
  return `${name} ${about.version} (${about.license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
const banner = `/* Built by deploy/scatterplot/build.mjs; not to be edited.\n\n${licences.join("\n---\n\n").replaceAll("*/", "* /")}*/\n`;
// Comments in shaders name pages of the registry.
const script = result.outputFiles[0].text.replace(/\/\/ https?:\S+$/gm, "//");
if (/<\/script|<!--/i.test(script)) throw new Error("the bundle cannot stand inside a script element");
writeFileSync(TARGET, banner.replace(/[ \t]+$/gm, "") + script);
console.log(
  `${TARGET.pathname}: ${Math.round((banner.length + script.length) / 1024)} KiB of ${folders.length} packages`,
);
