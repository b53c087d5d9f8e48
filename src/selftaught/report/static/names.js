// Names for groups: typed on the page, saved as groups.csv.
const table = JSON.parse(document.getElementById("table").textContent);
const fields = [...document.querySelectorAll("input[data-row]")];
const told = document.getElementById("told");
const column = table[0].indexOf("name");
let saved = true;
function count() {
  told.textContent = `${fields.filter(field => field.value.trim()).length} of ${fields.length} groups have a name`;
}
for (const field of fields) field.addEventListener("input", () => { saved = false; count(); });
document.getElementById("save").addEventListener("click", () => {
  for (const field of fields) table[field.dataset.row][column] = field.value.trim();
  const cell = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const csv = table.map(row => row.map(cell).join(",")).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  link.download = "groups.csv";
  link.click();
  URL.revokeObjectURL(link.href);
  saved = true;
});
addEventListener("beforeunload", event => { if (!saved) event.preventDefault(); });
count();
