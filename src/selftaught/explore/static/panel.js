// The panel: a photo and its neighbors, a selection, or the neighbors of a photo that was dropped.

import { map, draw, goTo, isVisible, resize } from "./map.js";
import { legend } from "./colors.js";
import { $, ask, make, say } from "./parts.js";

const MOST = 120;  // photos of a selection that are shown
const panel = $("panel");
export const shelf = { names: [], version: 0, selected: null, report: () => {} };

// The address says what is open, so that the back button goes back. A selection or a search lasts as long as the page.
const views = [];
let turn = 0;  // an answer that comes after the next thing was opened is not shown
export function openPhoto(photo) { go("#photo=" + photo); }
export function close() { go(""); }
function open(view) { go("#view=" + (views.push(view) - 1)); }
function go(hash) {
  if (location.hash !== hash) history.pushState(null, "", hash || location.pathname);
  follow();
}
window.addEventListener("popstate", () => follow());

export async function follow() {
  const mine = ++turn, view = /^#view=(\d{1,9})$/.exec(location.hash);
  if (view && views[view[1]]) { await views[view[1]](); return; }
  const found = /^#photo=(\d{1,9})$/.exec(location.hash), photo = found ? Number(found[1]) : -1;
  if (photo < 0 || photo >= shelf.names.length) { panel.hidden = true; show(-1); resize(); return; }
  show(photo);
  if (!isVisible(photo)) goTo(photo);
  title(shelf.names[photo]);
  panel.append(make("img", "", { className: "large", src: "photo/" + photo, alt: shelf.names[photo] }));
  panel.append(make("p", legend.describe(photo)), make("h3", "Nearest photos, and how close among all neighbors"));
  try {
    const near = await (await ask(`api/neighbors/${shelf.version}/${photo}?k=24`)).json();
    if (mine !== turn) return;
    panel.append(tiles(near));
    show(photo, near.map((one) => one.photo));
    panel.dataset.photo = photo;
  } catch (error) { say(error.message); }
}
function show(photo, near = [], selected = null) {
  map.current = photo; map.near = near; shelf.selected = selected;
  shelf.report();
  draw();
}
function title(text) {
  const button = make("button", "✕", { className: "close", type: "button", title: "Close (Escape)", onclick: close });
  button.setAttribute("aria-label", "Close");
  delete panel.dataset.photo;
  panel.replaceChildren(button, make("h2", text));
  panel.hidden = false;
  panel.scrollTop = 0;
  resize();
}
function tiles(list) {
  const grid = make("div", "", { className: "tiles" });
  for (const { photo, distance, closer_than: closer } of list) {
    const name = shelf.names[photo], button = make("button", "", { type: "button", title: name });
    button.append(make("img", "", { src: "thumbnail/" + photo, alt: name, loading: "lazy" }));
    const rating = closer === null ? "" : ` · closer than ${Math.min(99, Math.floor(100 * closer))}%`;
    button.append(distance === undefined ? name.split("/").pop() : distance.toFixed(3) + rating);
    button.onclick = () => openPhoto(photo);
    grid.append(button);
  }
  return grid;
}

export function select(photos) {
  if (photos.length) open(() => showSelection(photos)); else say("No photo is inside.");
}
function showSelection(photos) {
  title(`${photos.length} photos selected`);
  const save = make("button", "Save as CSV", { type: "button", id: "csv", onclick: () => saveTable(photos) });
  const form = make("form", "", { className: "row" }), result = make("p", "", { id: "made" });
  const name = make("input", "", { placeholder: "Name of a folder", required: true, maxLength: 64, id: "folder" });
  name.setAttribute("aria-label", "Name of a folder of links");
  form.append(name, make("button", "Make folder of links", { type: "submit", id: "links" }));
  form.onsubmit = async (event) => {
    event.preventDefault();
    try {
      const body = JSON.stringify({ name: name.value, photos });
      result.textContent = "Made " + (await (await ask("api/links", { method: "POST", body })).json()).folder;
    } catch (error) { result.textContent = error.message; }
  };
  panel.append(save, form, result, make("h3", photos.length > MOST ? `The first ${MOST}` : "All of them"));
  panel.append(tiles(photos.slice(0, MOST).map((photo) => ({ photo }))));
  show(-1, [], new Set(photos));
}
function saveTable(photos) {
  const rows = photos.map((photo) => `"${shelf.names[photo].replaceAll('"', '""')}"`);
  const content = new Blob(["path\n" + rows.join("\n") + "\n"], { type: "text/csv" });
  const link = make("a", "", { href: URL.createObjectURL(content), download: "selected.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export async function searchBy(file) {
  if (!file) return;
  say("Searching …");
  const answers = {};  // each model has its own
  const near = () => answers[shelf.version] ??= askFor(file, shelf.version);
  try {
    const [first] = await near();
    open(() => showSearch(file, near));
    if (first) goTo(first.photo);
  } catch (error) { say(error.message); }
}
async function askFor(file, version) {
  return (await ask(`api/search/${version}?k=24`, { method: "POST", body: file })).json();
}
async function showSearch(file, near) {
  const mine = turn;
  let list = [], said = "Photos nearest to yours";
  try { list = await near(); } catch (error) { said = error.message; }
  if (mine !== turn) return;
  title(file.name || "Your photo");
  const image = make("img", "", { className: "large", alt: "Your photo", src: URL.createObjectURL(file) });
  image.onload = () => URL.revokeObjectURL(image.src);
  panel.append(image, make("h3", said), tiles(list));
  show(-1, list.map((one) => one.photo));
}
