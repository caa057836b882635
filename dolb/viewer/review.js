// Review, on the page of `dolb view`: select points, mark them to be kept or dropped, save the decisions as a file.
// A mark stands above the controls; what is not marked follows them. dolb/filtering/decisions.py reads the file.
(function (root) {
  "use strict";

  const NONE = 0,
    KEEP = 1,
    DROP = 2;
  const COLOURS = {
    light: { keep: "#0067a8", drop: "#8a1f8f" },
    dark: { keep: "#5cb8f5", drop: "#e58be8" },
  };
  const FADED = 0.6; // how far what is not selected goes over to the background
  const count = (n) => n.toLocaleString("en");

  // A colour such as #ff8000, partly another.
  function mixed(colour, other, part) {
    const at = (text, k) => parseInt(text.slice(k, k + 2), 16);
    const blend = (k) => Math.round(at(colour, k) * (1 - part) + at(other, k) * part);
    return "#" + [1, 3, 5].map((k) => blend(k).toString(16).padStart(2, "0")).join("");
  }

  // Whether a place is inside a polygon: a ray from it crosses the border an odd number of times.
  function inside(polygon, [x, y]) {
    let odd = false;
    for (let k = 0, before = polygon.length - 1; k < polygon.length; before = k++) {
      const [x1, y1] = polygon[k],
        [x2, y2] = polygon[before];
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) odd = !odd;
    }
    return odd;
  }

  // Calls ended(polygon, event) for each line drawn on the map while wanted(event); the map does not move meanwhile.
  function drawLasso(frame, surface, wanted, ended) {
    const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg"),
      line = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
    picture.classList.add("dv-lasso");
    picture.append(line);
    frame.append(picture);
    let polygon = null;
    const show = () => line.setAttribute("points", (polygon ?? []).map((place) => place.join()).join(" "));
    const end = (event) => {
      if (!polygon) return;
      const drawn = polygon;
      polygon = null;
      show();
      if (event.type === "pointerup") ended(drawn, event);
    };
    // In the capturing phase and no further: the maps know of a drag by pointerdown, or by mousedown.
    const take = (event) => {
      if (event.target !== surface || event.button !== 0 || !wanted(event)) return;
      event.stopPropagation();
      event.preventDefault();
      if (event.type !== "pointerdown") return;
      surface.focus({ preventScroll: true });
      surface.setPointerCapture(event.pointerId);
      polygon = [[event.offsetX, event.offsetY]];
    };
    frame.addEventListener("pointerdown", take, true);
    frame.addEventListener("mousedown", take, true);
    frame.addEventListener(
      "pointermove",
      (event) => {
        if (!polygon) return;
        event.stopPropagation();
        polygon.push([event.offsetX, event.offsetY]);
        show();
      },
      true,
    );
    frame.addEventListener("pointerup", end, true);
    frame.addEventListener("pointercancel", end, true);
  }

  // `page` is what viewer.js tells: the figure and its parts, its data, the map, and
  //   order            all examples, as the gallery has them
  //   isRemoved(i)     whether the controls remove an example
  //   isVisible(i)     whether its class is on the map
  //   rule()           what the controls say, for the file
  //   selected()       to be called when other examples are selected
  //   marked()         to be called when examples are marked otherwise
  class Review {
    constructor(page) {
      Object.assign(this, { page, selection: [], lassoing: false, before: [], saved: true, looked: null });
      this.mark = new Uint8Array(page.data.n);
      this.isSelected = new Uint8Array(page.data.n);
      const { figure, frame, surface } = page;
      this.button = Object.fromEntries(
        [...figure.querySelectorAll("[data-review]")].map((button) => [button.dataset.review, button]),
      );
      const keys = "K keeps and D drops what is selected, Escape selects none.";
      surface.setAttribute("aria-label", `${surface.getAttribute("aria-label")} ${keys}`);
      drawLasso(
        frame,
        surface,
        (event) => this.lassoing || event.shiftKey,
        (polygon, event) => this.select((place) => inside(polygon, place), event.ctrlKey || event.metaKey),
      );
      const acts = {
        lasso: () => {
          this.lassoing = !this.lassoing;
          frame.classList.toggle("dv-lassoing", this.lassoing);
          this.button.lasso.setAttribute("aria-pressed", this.lassoing);
        },
        view: () => {
          const { clientWidth: width, clientHeight: height } = frame;
          this.select(([x, y]) => x >= 0 && y >= 0 && x <= width && y <= height);
        },
        none: () => this.select(() => false),
        keep: () => this.decide(this.selection, KEEP),
        drop: () => this.decide(this.selection, DROP),
        undo: () => this.undo(),
        clear: () => this.decide(this.marked(), NONE),
        save: () => this.save(),
      };
      for (const [name, button] of Object.entries(this.button)) button.addEventListener("click", acts[name]);
      figure.addEventListener("keydown", (event) => {
        const tile = event.target.closest(".dv-tiles button");
        if (event.ctrlKey || event.metaKey || event.altKey || !(tile || event.target === surface)) return;
        const key = event.key.toLowerCase();
        if (key === "escape") acts.none();
        else if (key === "k" || key === "d")
          this.decide(tile ? [Number(tile.dataset.example)] : this.selection, key === "k" ? KEEP : DROP);
      });
      window.addEventListener("beforeunload", (event) => {
        if (!this.saved) event.preventDefault();
      });
    }

    isDropped(i) {
      return this.mark[i] ? this.mark[i] === DROP : this.page.isRemoved(i);
    }
    marked() {
      return this.page.order.filter((i) => this.mark[i]);
    }

    // --- Select

    select(accepted, further = false) {
      const { order, map, isVisible } = this.page;
      this.choose(
        order.filter((i) => {
          if (!isVisible(i)) return false;
          if (further && this.isSelected[i]) return true;
          const place = map.at(i);
          return place && accepted(place);
        }),
      );
    }
    // What is not on the map any more is not marked unseen.
    narrow() {
      const left = this.selection.filter(this.page.isVisible);
      if (left.length < this.selection.length) this.choose(left);
      else this.say();
    }
    choose(examples) {
      this.isSelected.fill(0);
      for (const i of examples) this.isSelected[i] = 1;
      this.selection = examples;
      this.looked = null;
      this.say();
      this.page.selected();
    }

    // --- Decide

    decide(examples, mark) {
      const changed = examples.filter((i) => this.mark[i] !== mark);
      if (!changed.length) return;
      this.before.push({ changed, marks: changed.map((i) => this.mark[i]) });
      for (const i of changed) this.mark[i] = mark;
      this.after();
    }
    undo() {
      const { changed, marks } = this.before.pop();
      changed.forEach((i, k) => {
        this.mark[i] = marks[k];
      });
      this.after();
    }
    after() {
      this.saved = !this.marked().length;
      this.looked = null;
      this.say();
      this.page.marked();
    }
    // The word for an example that is marked.
    word(i) {
      return [null, "marked: keep", "marked: drop"][this.mark[i]];
    }

    // --- Show

    // A scene of the map in which what is selected stands out, and what is marked has colours of its own.
    looks(scene, byClass, theme) {
      const marks = this.marked(),
        any = this.selection.length > 0;
      for (const name of ["keep", "drop"]) this.page.figure.style.setProperty(`--dv-${name}`, COLOURS[theme][name]);
      if (!any && (byClass || !marks.length)) return scene;
      const { group, groups, order, background } = scene,
        own = groups.length;
      if (this.looked?.group !== group || this.looked.order !== order) {
        const further = Uint16Array.from(group);
        if (!byClass) for (const i of marks) further[i] = own + this.mark[i] - 1;
        for (const i of this.selection) further[i] += own + 2;
        const last = (i) => (this.isSelected[i] ? 2 : !byClass && this.mark[i] ? 1 : 0);
        const sorted = [0, 1, 2].flatMap((place) => order.filter((i) => last(i) === place));
        this.looked = { group, order, further, sorted };
      }
      const size = Math.max(...groups.map((each) => each.size)),
        all = [...groups, ...["keep", "drop"].map((name) => ({ colour: COLOURS[theme][name], size }))];
      const faded = any ? all.map((each) => ({ ...each, colour: mixed(each.colour, background, FADED) })) : all,
        larger = all.map((each) => ({ ...each, size: each.size * 1.5 }));
      return { ...scene, group: this.looked.further, order: this.looked.sorted, groups: [...faded, ...larger] };
    }
    legend(theme) {
      return this.marked().length ? ["keep", "drop"].map((name) => [`marked: ${name}`, COLOURS[theme][name]]) : [];
    }
    dress(tile, i) {
      tile.dataset.decided = this.isDropped(i) ? "dropped" : "kept";
      tile.dataset.mark = ["", "keep", "drop"][this.mark[i]];
    }

    dropped() {
      return Array.from(this.mark.keys()).filter((i) => this.isDropped(i));
    }
    say(first = "") {
      const n = this.page.data.n,
        dropped = this.dropped().length,
        keep = this.mark.reduce((sum, mark) => sum + (mark === KEEP), 0),
        drop = this.mark.reduce((sum, mark) => sum + (mark === DROP), 0);
      this.button.keep.disabled = this.button.drop.disabled = this.button.none.disabled = !this.selection.length;
      this.button.undo.disabled = !this.before.length;
      this.button.clear.disabled = !(keep + drop);
      this.page.figure.querySelector(".dv-decided").textContent =
        `${first}${count(this.selection.length)} selected. Marked: ${count(keep)} to keep, ${count(drop)} to drop. ` +
        `In all ${count(dropped)} of ${count(n)} (${((100 * dropped) / n).toFixed(2)}%) are dropped.`;
    }

    // --- Save

    save() {
      const { data, label, rule } = this.page,
        dropped = this.dropped(),
        left = data.classes.map(() => [0, 0]);
      for (let i = 0; i < data.n; i++) left[label[i]][0] += 1;
      for (const i of dropped) left[label[i]][1] += 1;
      const gone = data.classes.filter((_, k) => left[k][0] && left[k][0] === left[k][1]);
      if (gone.length) return this.say(`Not saved: every example of ${gone.join(", ")} is dropped; keep one or more. `);
      const lists = { keep: [], drop: [] };
      this.mark.forEach((mark, i) => mark && lists[mark === KEEP ? "keep" : "drop"].push(i));
      const text = JSON.stringify({ ...data.review, dropped, marked: lists, not_marked: rule() });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "application/json" }));
      link.download = `${data.review.data.replace(/[^\w.-]+/g, "-")}-decisions.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // when the browser has long read it
      this.saved = true;
      this.say(`Saved ${link.download}. `);
    }
  }

  root.dolbReview = { Review };
})(window);
