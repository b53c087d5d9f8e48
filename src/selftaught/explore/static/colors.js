// Colors of points, by a class or a number of each photo, and what they mean.

import { map, draw, themeColor, toPixel } from "./map.js";
import { $, ask, make } from "./parts.js";

const LISTED = 30;  // classes in the legend
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

export const legend = { describe: (_photo) => "" };

let asked = 0;

export async function colorBy(kind, version) {
  const number = ++asked;
  const content = kind === "none" ? null : await (await ask(`api/colors/${kind}/${version}`)).json();
  if (number !== asked) return;  // another color was chosen meanwhile
  legend.describe = () => "";
  map.colors = null;
  const rows = !content ? [] : content.names ? byClass(kind, content) : byNumber(content);
  $("legend").hidden = !rows.length;
  $("classes").replaceChildren(...rows.map(([color, text, count = ""]) => {
    const row = make("div", "", { title: text }), dot = make("canvas", "", { width: 12, height: 12 });
    const pen = dot.getContext("2d");
    pen.fillStyle = `rgb(${color})`; pen.fillRect(0, 0, 12, 12);
    row.append(dot, make("span", text), count);
    return row;
  }));
  draw();
}
function byClass(kind, { names, values }) {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  const table = names.map((_, n) => fromHue((n * 137.508 + 210) % 360, 0.65, (dark ? 0.62 : 0.46) + ((n % 3) - 1) * 0.07));
  const pixels = table.map(toPixel), sizes = new Array(names.length).fill(0);
  for (const value of values) sizes[value]++;
  map.colors = Uint32Array.from(values, (value) => pixels[value]);
  legend.describe = (photo) => `${kind}: ${names[values[photo]]}`;
  const order = names.map((_, n) => n).sort((a, b) => sizes[b] - sizes[a]);
  const rows = order.slice(0, LISTED).map((n) => [table[n], names[n], `(${sizes[n]})`]);
  if (order.length > LISTED) rows.push([themeColor("--band"), `and ${order.length - LISTED} more`]);
  return rows;
}
function byNumber({ values, unit }) {
  const known = Float64Array.from(values.filter((value) => value !== null)).sort();
  const low = known[Math.floor(0.01 * known.length)] ?? 0, high = known[Math.floor(0.99 * (known.length - 1))] ?? 1;
  // The Swedish form of a date is YYYY-MM-DD.
  const text = (value) => (unit === "date" ? new Date(1000 * value).toLocaleDateString("sv") : value.toFixed(3));
  const none = toPixel(themeColor("--line"));
  map.colors = Uint32Array.from(values, (value) => (value === null ? none : toPixel(ramp((value - low) / (high - low || 1)))));
  const word = unit === "date" ? "date" : "distance to the nearest";
  legend.describe = (photo) => (values[photo] === null ? "" : `${word}: ${text(values[photo])}`);
  return [0, 0.25, 0.5, 0.75, 1].map((part) => [ramp(part), text(low + part * (high - low))]);
}
function ramp(part) {
  const place = Math.max(0, Math.min(0.9999, part)) * (RAMP.length - 1), low = Math.floor(place);
  return RAMP[low].map((value, n) => Math.round(value + (place - low) * (RAMP[low + 1][n] - value)));
}
function fromHue(hue, saturation, light) {
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (light - saturation * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}
