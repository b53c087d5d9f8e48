// Small things that all of the page uses.

export const $ = (id) => document.getElementById(id);

export function make(tag, text = "", properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  if (text) element.textContent = text;
  return element;
}
export function say(text) {
  $("status").textContent = text;
}
export async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  let why = answer.statusText;
  try { why = (await answer.json()).error || why; } catch { /* no sentence came */ }
  throw new Error(why);
}
