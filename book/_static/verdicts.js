// The filter of the page of verdicts: by document, verdict and text. The choice stands in the address, to be shared.
document.addEventListener("DOMContentLoaded", function () {
  var form = document.querySelector("form.dolb-filter");
  var rows = Array.from(document.querySelectorAll("table.dolb-verdicts tbody tr"));
  if (!form) return;
  var fields = ["document", "verdict", "text"];

  function filter() {
    var wanted = {};
    fields.forEach(function (name) { wanted[name] = form.elements[name].value.trim(); });
    var words = wanted.text.toLowerCase().split(/\s+/);
    var shown = rows.filter(function (row) {
      var text = row.textContent.toLowerCase();
      row.hidden = (wanted.document && row.dataset.document !== wanted.document)
        || (wanted.verdict && row.dataset.verdict !== wanted.verdict)
        || !words.every(function (word) { return text.includes(word); });
      return !row.hidden;
    });
    form.querySelector("output").textContent = shown.length + " of " + rows.length;
    return wanted;
  }

  function remember() {
    var wanted = filter();
    var query = new URLSearchParams(Object.entries(wanted).filter(function (pair) { return pair[1]; })).toString();
    history.replaceState(null, "", location.pathname + (query ? "?" + query : "") + location.hash);
  }

  var asked = new URLSearchParams(location.search);
  fields.forEach(function (name) { form.elements[name].value = asked.get(name) || ""; });
  ["input", "change"].forEach(function (event) { form.addEventListener(event, remember); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.hidden = false;
  filter();
});
