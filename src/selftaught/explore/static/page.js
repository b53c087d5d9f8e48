// The page: what is asked of the server, the controls, the keys.

import { map, draw, fit, goTo, isVisible, middlePhoto, pan, ratio, resize, visiblePhotos, zoom } from "./map.js";
import { colorBy } from "./colors.js";
import { close, follow, openPhoto, searchBy, select, shelf } from "./panel.js";
import { $, ask, make, say } from "./parts.js";

const canvas = $("map"), places = [];
let matches = null, progress = "";

map.onOpen = openPhoto;
map.nameOf = (photo) => shelf.names[photo];
map.onLasso = (photos) => { setDrawing(false); select(photos); draw(); };
shelf.report = () => {
  const { names, selected } = shelf;
  map.chosen = selected || matches;
  if (selected) say(`${selected.size} of ${names.length} photos selected`);
  else if (!matches) say(progress || `${names.length} photos${map.current < 0 ? ": click one to see its neighbors" : ""}`);
  else if (!matches.size) say("No photo has such a name.");
  else say(`${matches.size} of ${names.length} photos have such a name; Enter opens one after another`);
};

// ---- maps ----------------------------------------------------------------------------------------------------------
async function loadMap(version) {
  places[version] = new Float32Array(await (await ask("api/map/" + version)).arrayBuffer());
}
async function setVersion(version) {
  shelf.version = version;
  $("versions").querySelectorAll("button").forEach((button, n) => button.setAttribute("aria-pressed", n === version));
  if (!places[version]) await loadMap(version);
  if (shelf.version !== version) return;  // another one was chosen meanwhile
  moveTo(places[version], keepInView);
  await recolor();
  if (location.hash) await follow();
}
function offerVersions(names) {
  if (names.length < 2) return;
  if (names.length < 4) {
    names.forEach((name, n) => $("versions").append(make("button", name, { type: "button", onclick: () => setVersion(n) })));
    return;
  }
  const last = names.length - 1, word = make("output", names[last]);
  const slider = make("input", "", { type: "range", id: "epochs", min: 0, max: last, value: last });
  slider.setAttribute("aria-label", "Stage of training");
  slider.oninput = () => { word.textContent = names[slider.value]; setVersion(Number(slider.value)); };
  $("versions").append(slider, word);
}
function keepInView() {
  const photo = map.current >= 0 ? map.current : map.near[0] ?? -1;
  if (photo >= 0 && !isVisible(photo)) goTo(photo);
}
function moveTo(target, then = () => {}) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || target.length > 100000;
  if (map.shown.length !== target.length || calm) { map.shown = target.slice(); draw(); then(); return; }
  const from = map.shown.slice(), began = performance.now();
  const step = () => {
    if (target !== places[shelf.version]) return;  // another map has come
    const time = Math.min(1, (performance.now() - began) / 500), part = time * time * (3 - 2 * time);
    for (let i = 0; i < from.length; i++) map.shown[i] = from[i] + part * (target[i] - from[i]);
    draw();
    if (time < 1) requestAnimationFrame(step); else then();
  };
  step();
}
async function watch() {
  for (let last = []; ;) {
    const { steps, of } = await (await ask("api/state")).json();
    const done = Math.floor((100 * steps.reduce((a, b) => a + b)) / (of * steps.length));
    progress = done < 100 ? `The map is getting better: ${done}%` : "";
    for (let n = 0; n < steps.length; n++) {
      if (steps[n] === last[n] || !places[n]) continue;
      await loadMap(n);
      if (n === shelf.version) moveTo(places[n]);
    }
    last = steps;
    if (!map.drawing) shelf.report();
    canvas.dataset.map = progress ? "moving" : "done";
    if (!progress) return;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// ---- controls ------------------------------------------------------------------------------------------------------
async function recolor() {
  try { await colorBy($("color").value, shelf.version); } catch (error) { say(error.message); }
}
function setDrawing(on) {
  map.drawing = on;
  canvas.classList.toggle("drawing", on);
  $("lasso").setAttribute("aria-pressed", on);
  if (on) say("Draw a line around photos."); else shelf.report();
}
$("color").onchange = recolor;
$("lasso").onclick = () => setDrawing(!map.drawing);
$("fit").onclick = fit;
$("visible").onclick = () => select(visiblePhotos());
$("theme").onclick = () => {
  const root = document.documentElement;
  root.dataset.theme = getComputedStyle(root).colorScheme === "dark" ? "light" : "dark";
  recolor();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
$("name").oninput = () => {
  const plain = (name) => name.normalize().toLowerCase(), text = plain($("name").value.trim());  // "ü" has two forms
  matches = text ? new Set(shelf.names.flatMap((name, photo) => (plain(name).includes(text) ? [photo] : []))) : null;
  shelf.report();
  draw();
};
$("find").onsubmit = (event) => {
  event.preventDefault();
  if (!matches || !matches.size) return;
  const list = [...matches], next = list[(list.indexOf(map.current) + 1) % list.length];
  openPhoto(next);
  goTo(next);
};
$("file").onchange = () => { searchBy($("file").files[0]); $("file").value = ""; };
$("pick").onclick = () => $("file").click();
window.addEventListener("dragover", (event) => { event.preventDefault(); canvas.classList.add("over"); });
window.addEventListener("dragleave", () => canvas.classList.remove("over"));
window.addEventListener("drop", (event) => {
  event.preventDefault();
  canvas.classList.remove("over");
  searchBy(event.dataTransfer.files[0]);
});

const step = () => 60 * ratio();
const KEYS = {
  ArrowLeft: () => pan(step(), 0), ArrowRight: () => pan(-step(), 0),
  ArrowUp: () => pan(0, step()), ArrowDown: () => pan(0, -step()),
  "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: fit,
  l: () => setDrawing(!map.drawing), s: () => select(visiblePhotos()), "/": () => $("name").focus(),
  n: () => { if (middlePhoto() >= 0) openPhoto(middlePhoto()); },
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { $("name").blur(); if (map.drawing) setDrawing(false); else close(); return; }
  const typing = /^(INPUT|SELECT)$/.test(event.target.tagName), scrolling = $("panel").contains(event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || typing || (scrolling && event.key.startsWith("Arrow"))) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (action) { event.preventDefault(); action(); }
});

// ---- start ---------------------------------------------------------------------------------------------------------
try {
  say("Loading …");
  const { names, versions, colors } = await (await ask("api/collection")).json();
  shelf.names = names;
  document.title = `${names.length} photos · selftaught explore`;
  const words = { distance: "distance to nearest" };
  for (const kind of ["none", ...colors]) $("color").append(make("option", words[kind] || kind, { value: kind }));
  if (names.some((name) => name.includes("/"))) $("color").value = "folder";
  offerVersions(versions);
  if (innerWidth < 700) $("legend").open = false;
  resize();
  fit();
  await setVersion(versions.length - 1);
  await watch();
} catch (error) { say("The page cannot reach its server: " + error.message); }
