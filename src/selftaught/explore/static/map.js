// A map of photos on a canvas: points are written pixel by pixel, which needs no graphics card and draws 200,000 in a
// few milliseconds; thumbnails lie over them as soon as there is room.

const canvas = document.getElementById("map"), pen = canvas.getContext("2d"), legend = document.getElementById("legend");
const CELL = 84;   // pixels that a thumbnail has to itself
const CROWD = 5;   // points for each thumbnail in view, at which thumbnails appear
const KEPT = 800;  // thumbnails that are kept
const EDGE = 1.1;  // few photos lie further out than 1: the map is not made small for those beyond this

export const map = {
  shown: new Float32Array(0),  // x and y of each photo, as it is drawn now
  colors: null,                // a pixel for each photo
  chosen: null,                // a set of photos; the others are faint
  current: -1,                 // the photo that is open
  near: [],                    // its neighbors
  drawing: false,              // whether the pointer draws a lasso
  onOpen: (_photo) => {},
  onLasso: (_photos) => {},
  nameOf: (_photo) => "",
};
let view = { x: 0, y: 0, scale: 1 };  // what is in the middle of the canvas, and pixels for a unit of the map
let whole = true;                     // whether all photos stay in view, however they and the canvas change
let lasso = null, moving = null, pinch = null, queued = false, rectangles = [];
const thumbnails = new Map(), fingers = new Map();

export const ratio = () => Math.min(2, window.devicePixelRatio || 1);
export const toPixel = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
const toStyle = (pixel) => `rgb(${pixel & 255}, ${(pixel >> 8) & 255}, ${(pixel >> 16) & 255})`;

export function themeColor(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
  const full = text.length === 3 ? [...text].map((digit) => digit + digit).join("") : text;
  return [0, 2, 4].map((start) => parseInt(full.slice(start, start + 2), 16));
}

// ---- drawing -------------------------------------------------------------------------------------------------------
export function draw() {
  if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; paint(); }); }
}
export function resize() {
  const box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * ratio())), height = Math.max(1, Math.round(box.height * ratio()));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
}
function screen(photo) {
  const x = (map.shown[2 * photo] - view.x) * view.scale + canvas.width / 2;
  return [x, (view.y - map.shown[2 * photo + 1]) * view.scale + canvas.height / 2];
}
function paint() {
  resize();  // what the panel holds may have changed the canvas since the last frame
  if (whole) showAll();
  const { width, height } = canvas;
  const count = map.shown.length / 2, room = view.scale * Math.sqrt(1 / Math.max(1, count));
  const radius = Math.max(1, Math.min(6, Math.round(0.35 * room))) * (ratio() > 1 ? 2 : 1);
  const picture = pen.createImageData(width, height), pixels = new Uint32Array(picture.data.buffer);
  pixels.fill(toPixel(themeColor("--paper")));
  const inside = paintPoints(pixels, width, height, radius);
  pen.putImageData(picture, 0, 0);
  const cell = CELL * ratio();
  rectangles = [];
  if (inside.length <= (CROWD * width * height) / (cell * cell)) paintThumbnails(inside, cell);
  const mark = toStyle(toPixel(themeColor("--mark")));
  for (const photo of map.near) ring(photo, radius + 4 * ratio(), 2, mark);
  if (map.current >= 0) ring(map.current, radius + 8 * ratio(), 3, toStyle(toPixel(themeColor("--ink"))));
  if (lasso) {
    pen.beginPath();
    for (const [x, y] of lasso) pen.lineTo(x, y);
    pen.strokeStyle = mark; pen.lineWidth = 2 * ratio();
    pen.setLineDash([6, 4]); pen.stroke(); pen.setLineDash([]);
  }
  canvas.dataset.thumbnails = rectangles.length;
}
function paintPoints(pixels, width, height, radius) {
  const plain = toPixel(themeColor("--mark")), faint = toPixel(themeColor("--line")), inside = [], disk = [];
  for (let y = -radius; y <= radius; y++)
    for (let x = -radius; x <= radius; x++) if (x * x + y * y <= radius * radius + 0.5) disk.push(y * width + x);
  const { shown, colors, chosen } = map, count = shown.length / 2, scale = view.scale;
  const left = width / 2 - view.x * scale, top = height / 2 + view.y * scale;
  for (const late of chosen ? [false, true] : [true]) {  // the chosen ones over the others
    for (let photo = 0; photo < count; photo++) {
      if (chosen && chosen.has(photo) !== late) continue;
      const x = Math.round(shown[2 * photo] * scale + left), y = Math.round(top - shown[2 * photo + 1] * scale);
      if (x < radius || y < radius || x >= width - radius || y >= height - radius) continue;
      if (late) inside.push(photo);
      const pixel = late ? (colors ? colors[photo] : plain) : faint, base = y * width + x;
      for (let part = 0; part < disk.length; part++) pixels[base + disk[part]] = pixel;
    }
  }
  return inside;
}
function paintThumbnails(inside, cell) {
  // Cells belong to the map and not to the screen, so that photos stay while one moves.
  const unit = 2 ** Math.ceil(Math.log2(cell / view.scale)), taken = new Map();
  const first = [map.current, ...map.near].filter((photo) => photo >= 0 && isVisible(photo));
  for (const photo of new Set([...first, ...inside])) {
    const x = Math.floor(map.shown[2 * photo] / unit), y = Math.floor(map.shown[2 * photo + 1] / unit);
    const around = [-1, 0, 1].flatMap((dx) => [-1, 0, 1].flatMap((dy) => taken.get(`${x + dx},${y + dy}`) || []));
    const [px, py] = screen(photo), key = `${x},${y}`;
    if (around.some((other) => Math.abs(other[0] - px) < cell && Math.abs(other[1] - py) < cell)) continue;
    taken.set(key, [...(taken.get(key) || []), [px, py]]);
    const image = thumbnailOf(photo);
    if (!image.complete || !image.naturalWidth) continue;
    const scale = (0.9 * cell) / Math.max(image.naturalWidth, image.naturalHeight);
    const w = image.naturalWidth * scale, h = image.naturalHeight * scale, left = px - w / 2, top = py - h / 2;
    if (map.colors) { pen.fillStyle = toStyle(map.colors[photo]); pen.fillRect(left - 3, top - 3, w + 6, h + 6); }
    pen.drawImage(image, left, top, w, h);
    rectangles.push({ photo, left, top, right: left + w, bottom: top + h });
  }
}
function thumbnailOf(photo) {
  const image = thumbnails.get(photo) || Object.assign(new Image(), { onload: draw, src: "thumbnail/" + photo });
  thumbnails.delete(photo);  // and in again, as the newest
  thumbnails.set(photo, image);
  if (thumbnails.size > KEPT) thumbnails.delete(thumbnails.keys().next().value);
  return image;
}
function ring(photo, radius, line, color) {
  pen.beginPath(); pen.arc(...screen(photo), radius, 0, 2 * Math.PI);
  pen.strokeStyle = color; pen.lineWidth = line * ratio(); pen.stroke();
}

// ---- moving and finding --------------------------------------------------------------------------------------------
export function fit() { whole = true; draw(); }
function showAll() {
  const low = [-0.2, -0.2], high = [0.2, 0.2];  // so that a single photo is not infinitely large
  for (let n = 0; n < map.shown.length; n++) {
    const place = Math.max(-EDGE, Math.min(EDGE, map.shown[n])), side = n % 2;
    if (place < low[side]) low[side] = place; else if (place > high[side]) high[side] = place;
  }
  const beside = legend.open && 3 * legend.offsetWidth < canvas.clientWidth ? legend.offsetWidth * ratio() : 0;
  const scale = 0.9 * Math.min((canvas.width - beside) / (high[0] - low[0]), canvas.height / (high[1] - low[1]));
  view = { x: (low[0] + high[0] - beside / scale) / 2, y: (low[1] + high[1]) / 2, scale };
}
export function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
  whole = false;
  const dx = x - canvas.width / 2, dy = y - canvas.height / 2, before = view.scale;
  view.scale = Math.min(1e6, Math.max(20, before * factor));
  view.x += dx / before - dx / view.scale;
  view.y -= dy / before - dy / view.scale;
  draw();
}
export function pan(dx, dy) { whole = false; view.x -= dx / view.scale; view.y += dy / view.scale; draw(); }
export function goTo(photo) {
  whole = false;
  [view.x, view.y] = [map.shown[2 * photo], map.shown[2 * photo + 1]];
  view.scale = Math.max(view.scale, 20 * Math.sqrt(map.shown.length));
  draw();
}
export function isVisible(photo) {
  const [x, y] = screen(photo);
  return x >= 0 && y >= 0 && x < canvas.width && y < canvas.height;
}
export function photoAt(x, y, reach) {
  const over = rectangles.findLast((one) => x >= one.left && x <= one.right && y >= one.top && y <= one.bottom);
  if (over) return over.photo;
  let best = -1, least = reach * reach;
  for (let photo = 0; photo < map.shown.length / 2; photo++) {
    const dx = (map.shown[2 * photo] - view.x) * view.scale + canvas.width / 2 - x;
    const dy = (view.y - map.shown[2 * photo + 1]) * view.scale + canvas.height / 2 - y;
    if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = photo; }
  }
  return best;
}
export const middlePhoto = () => photoAt(canvas.width / 2, canvas.height / 2, Infinity);
export function visiblePhotos() {
  return within([[0, 0], [canvas.width, 0], [canvas.width, canvas.height], [0, canvas.height]]);
}
function within(polygon) {
  const found = [];
  for (let photo = 0; photo < map.shown.length / 2; photo++) {
    const [x, y] = screen(photo);
    let inside = false;
    for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a++) {
      const [xa, ya] = polygon[a], [xb, yb] = polygon[b];
      if (ya > y !== yb > y && x < ((xb - xa) * (y - ya)) / (yb - ya) + xa) inside = !inside;
    }
    if (inside) found.push(photo);
  }
  return found;
}

// ---- pointers ------------------------------------------------------------------------------------------------------
function at(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * ratio(), (event.clientY - box.top) * ratio()];
}
function span() {
  const [a, b] = [...fingers.values()];
  return { distance: Math.hypot(a[0] - b[0], a[1] - b[1]), x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 };
}
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, at(event));
  if (fingers.size === 2) { pinch = span(); lasso = moving = null; }
  else if (map.drawing) lasso = [at(event)];
  else moving = { from: at(event), last: at(event), moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  const place = at(event);
  if (fingers.has(event.pointerId)) fingers.set(event.pointerId, place);
  if (pinch && fingers.size === 2) {
    const now = span();
    pan(now.x - pinch.x, now.y - pinch.y);
    zoom(now.distance / pinch.distance, now.x, now.y);
    pinch = now;
  } else if (lasso) { lasso.push(place); draw(); }
  else if (moving) {
    moving.moved ||= Math.hypot(place[0] - moving.from[0], place[1] - moving.from[1]) > 5 * ratio();
    if (!moving.moved) return;  // a click
    pan(place[0] - moving.last[0], place[1] - moving.last[1]);
    moving.last = place;
  } else if (event.pointerType === "mouse") {
    const photo = photoAt(...place, 14 * ratio());
    canvas.title = photo >= 0 ? map.nameOf(photo) : "";
  }
});
function lift(event) {
  fingers.delete(event.pointerId);
  if (pinch) { if (!fingers.size) pinch = null; return; }
  const [drawn, moved] = [lasso, moving];
  lasso = moving = null;
  if (drawn) map.onLasso(drawn.length > 2 ? within(drawn) : []);
  else if (moved && !moved.moved && event.type === "pointerup") {
    const photo = photoAt(...at(event), 24 * ratio());
    if (photo >= 0) map.onOpen(photo);
  }
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), ...at(event));
}, { passive: false });
new ResizeObserver(paint).observe(canvas);
legend.addEventListener("toggle", draw);
