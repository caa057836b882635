// A map of examples (maps.js) with their images, a slider for eps, and a gallery of what is removed. No request.
// page.py writes the data. A point is noise at the slider's step s if s < removedUntil, which is what Python says at that eps.
(function (root) {
  "use strict";

  const { WebGLMap, CanvasMap } = root.dolbMaps;
  const PER_PAGE = 48;
  const CLASS_COLOURS = [
    "#4e79d6",
    "#f08a24",
    "#2ca06b",
    "#d9483b",
    "#9467bd",
    "#a9714b",
    "#e377c2",
    "#8a8f98",
    "#b8b02c",
    "#17a9c4",
  ];
  const COLOURS = {
    light: { kept: "#9aa3ad", removed: "#c44300", ring: "#111111" },
    dark: { kept: "#66707c", removed: "#ff8a4c", ring: "#ffffff" },
  };
  const SIZES = { class: 2.5, kept: 2, removed: 3.5 };
  const FEW = 0.2; // up to this share, what is removed lies on top and is drawn larger; more would hide what is kept

  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const decode = (text, Type) => new Type(bytes(text).buffer);
  const count = (n) => n.toLocaleString("en");
  const percent = (part, whole) => (whole ? ((100 * part) / whole).toFixed(2) + "%" : "none");
  const share = (part, whole) => `${count(part)} of ${count(whole)} (${percent(part, whole)})`;
  const classColour = (k) => CLASS_COLOURS[k] ?? hex(k * 137.508);

  // More classes than colours: turn the hue by the golden angle.
  function hex(hue) {
    const part = (n) =>
      Math.round(255 * (0.5 - 0.28 * Math.max(-1, Math.min(((n + hue / 30) % 12) - 3, 9 - ((n + hue / 30) % 12), 1))));
    return "#" + [0, 8, 4].map((n) => part(n).toString(16).padStart(2, "0")).join("");
  }

  // For each class, how many of its points have a value above each of the steps: those that are gone at it.
  function countsByStep(label, value, classes, steps) {
    const counts = Array.from({ length: classes }, () => new Uint32Array(steps + 1));
    for (let i = 0; i < label.length; i++) if (value[i] > 0) counts[label[i]][value[i] - 1] += 1;
    for (const row of counts) for (let step = steps - 1; step >= 0; step--) row[step] += row[step + 1];
    return counts;
  }

  function theme() {
    const named = document.documentElement.dataset.theme;
    if (named === "dark" || named === "light") return named;
    if (document.body.dataset.jpThemeLight) return document.body.dataset.jpThemeLight === "false" ? "dark" : "light";
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function build(figure, data) {
    const find = (selector) => figure.querySelector(selector);
    const form = find("form"),
      frame = find(".dv-map"),
      canvas = find(".dv-map > canvas"),
      card = find(".dv-card");
    const n = data.n,
      names = data.classes;
    const xy = decode(data.xy, Uint16Array),
      label = decode(data.label, Uint16Array),
      keep = bytes(data.keep);
    const removedUntil = decode(data.removedUntil, Uint16Array);
    const noiseUntil = data.noiseUntil ? decode(data.noiseUntil, Float32Array) : null;
    const onMap = (value) => (value / 65535) * 1.9 - 0.95; // a margin of 5% around the square
    const x = Float32Array.from({ length: n }, (_, i) => onMap(xy[2 * i]));
    const y = Float32Array.from({ length: n }, (_, i) => onMap(xy[2 * i + 1]));
    // Sorted once, the noisiest first: what is removed at a step is then the first so many, of all and of each class.
    const radius = (i) => (noiseUntil ? noiseUntil[i] : 0);
    const byNoise = Array.from(
      Uint32Array.from({ length: n }, (_, i) => i).sort(
        (a, b) => removedUntil[b] - removedUntil[a] || radius(b) - radius(a) || a - b,
      ),
    );
    const members = names.map(() => []);
    for (const i of byNoise) members[label[i]].push(i);
    const goneBy = countsByStep(label, removedUntil, names.length, data.eps.length);
    // The groups in which points are drawn, and their order: what is removed lies on top, unless it is much; by class, and
    // then too, they come as in the data, which knows nothing of noise, so that as much is seen of each as there is.
    const groups = { class: label, eps: removedUntil, mask: keep.map((kept) => 1 - kept) };
    const goneByMask = countsByStep(label, groups.mask, names.length, 1);
    const noisiestLast = [...byNoise].reverse();
    const orders = {
      class: [...byNoise].sort((a, b) => a - b),
      eps: noisiestLast,
      mask: [...noisiestLast.filter((i) => keep[i]), ...noisiestLast.filter((i) => !keep[i])],
    };

    const picture = root.dolbPictures.pictures(data.images);

    // What the controls say, read once for each change of them.
    const state = { page: 0, shown: [], removed: [], pointed: -1 };
    function read() {
      const { class: chosen, rule, step, colour } = form.elements;
      Object.assign(state, {
        chosen: Number(chosen.value),
        byEps: rule.value === "eps",
        step: Number(step.value),
        byClass: colour.value === "class",
      });
    }
    const isRemoved = (i) => (state.byEps ? state.step < removedUntil[i] : !keep[i]);

    function lines(i) {
      const until =
        noiseUntil &&
        (Number.isFinite(noiseUntil[i]) ? `noise below eps ${noiseUntil[i].toPrecision(3)}` : "noise at every eps");
      const decided = review?.word(i) ?? (isRemoved(i) ? "removed" : "kept");
      return [names[label[i]], `example ${i}`, decided, ...(until ? [until] : [])];
    }

    // --- Map

    function hover(i) {
      state.pointed = i;
      card.hidden = i < 0;
      for (const tile of find(".dv-tiles").querySelectorAll("button"))
        tile.classList.toggle("dv-on", Number(tile.dataset.example) === i);
      if (i < 0) return;
      const image = picture(i);
      card.replaceChildren(
        ...(image ? [image] : []),
        ...lines(i).map((line) => {
          const row = document.createElement("p");
          row.textContent = line;
          return row;
        }),
      );
      placeCard();
    }

    function placeCard() {
      if (state.pointed < 0) return;
      const [left, top] = map.at(state.pointed) ?? [0, 0];
      card.style.left =
        Math.max(4, left + 14 + card.offsetWidth > frame.clientWidth ? left - 14 - card.offsetWidth : left + 14) + "px";
      card.style.top = Math.max(4, Math.min(top - 20, frame.clientHeight - card.offsetHeight - 4)) + "px";
    }

    function size() {
      const width = frame.clientWidth;
      frame.style.height = Math.round(Math.min(width, Math.max(360, width * 0.6))) + "px";
      return [width, frame.clientHeight];
    }
    size();
    const asked = new URLSearchParams(location.search).get("renderer"); // "webgl" or "canvas", for tests and for comparison
    const told = { over: hover, moved: placeCard };
    let map = asked === "canvas" ? null : WebGLMap.create(canvas, x, y, told, asked === "webgl");
    if (!map) {
      const plain = canvas.cloneNode(); // a canvas keeps the first kind of context that it was asked for
      canvas.replaceWith(plain);
      map = new CanvasMap(plain, x, y, told);
    }
    const surface = find(".dv-map > canvas");
    const toReview = {
      ...{ figure, frame, surface, data, map, label, isRemoved, order: byNoise },
      isVisible: (i) => state.chosen < 0 || label[i] === state.chosen,
      rule: () => (state.byEps ? { by: "eps", eps: data.eps[state.step] } : { by: "mask", mask: data.mask }),
      selected: () => {
        hover(-1);
        list();
        draw();
      },
      marked: () => {
        find(".dv-tiles").querySelectorAll("button").forEach(dress);
        hover(state.pointed);
        draw();
      },
    };
    const review = data.review && new root.dolbReview.Review(toReview);

    function draw() {
      const colours = COLOURS[theme()],
        { byClass, byEps, chosen, step } = state,
        by = byClass ? "class" : byEps ? "eps" : "mask";
      const gone = (byEps ? goneBy : goneByMask).map((counts) => counts[byEps ? step : 0]),
        few =
          chosen < 0
            ? gone.reduce((sum, part) => sum + part, 0) <= FEW * n
            : gone[chosen] <= FEW * members[chosen].length;
      figure.dataset.theme = theme();
      figure.style.setProperty("--dv-removed", colours.removed);
      // Few points would be lost as dots, many would cover each other on a small screen.
      const larger = (n > 20000 ? 1 : n > 5000 ? 1.4 : 2) * Math.max(0.5, Math.min(1, frame.clientWidth / 800));
      // A group of points for each step of the slider: moving it changes the looks of groups, and no point.
      const kept = { colour: colours.kept, size: SIZES.kept * larger },
        removed = { colour: colours.removed, size: (few ? SIZES.removed : SIZES.kept) * larger };
      const scene = {
        group: groups[by],
        groups: byClass
          ? names.map((_, each) => ({ colour: classColour(each), size: SIZES.class * larger }))
          : Array.from({ length: byEps ? data.eps.length + 1 : 2 }, (_, each) =>
              each > (byEps ? step : 0) ? removed : kept,
            ),
        order: orders[few ? by : "class"],
        visible: chosen < 0 ? null : members[chosen],
        background: toHex(getComputedStyle(frame).backgroundColor),
        ring: colours.ring,
      };
      map.draw(review ? review.looks(scene, byClass, theme()) : scene);
      const entries = byClass
        ? names.map((name, each) => [name, classColour(each)])
        : [["kept", colours.kept], ["removed", colours.removed], ...(review?.legend(theme()) ?? [])];
      find(".dv-legend").replaceChildren(
        ...entries.map(([name, colour]) => {
          const item = document.createElement("li"),
            dot = document.createElement("span");
          dot.style.background = colour;
          item.append(dot, name);
          return item;
        }),
      );
    }

    function toHex(colour) {
      const parts = colour.match(/[\d.]+/g)?.map(Number) ?? [255, 255, 255];
      return (
        "#" +
        parts
          .slice(0, 3)
          .map((part) => Math.round(part).toString(16).padStart(2, "0"))
          .join("")
      );
    }

    // --- Numbers and gallery

    function answer() {
      const k = state.chosen,
        gone = state.byEps ? goneBy.map((counts) => counts[state.step]) : goneByMask.map((counts) => counts[0]),
        all = gone.reduce((sum, part) => sum + part, 0),
        inClass = k < 0 ? byNoise : members[k];
      state.removed = state.byEps ? inClass.slice(0, k < 0 ? all : gone[k]) : inClass.filter((i) => !keep[i]);
      const eps = data.eps.length ? String(data.eps[state.step]) : "";
      form.elements.eps.value = eps;
      form.elements.step.setAttribute("aria-valuetext", `eps ${eps}`);
      const by = state.byEps ? `At eps ${eps}` : `By the mask ${data.mask}`;
      const ofClass = k < 0 ? "" : `; of ${names[k]}, ${share(gone[k], members[k].length)}`;
      find(".dv-share").textContent = `${by}, ${share(all, n)} examples are removed${ofClass}.`;
      find(".dv-words").textContent =
        `${data.title}: ${count(n)} examples in ${names.length} classes. ${by}, ${share(all, n)} are removed.`;
      figure.querySelectorAll("tbody td").forEach((cell, each) => {
        cell.textContent = members[each].length ? share(gone[each], members[each].length) : "none";
      });
      list();
    }

    // The gallery has what is selected, or what is removed where nothing is.
    function list() {
      state.shown = review?.selection.length ? review.selection : state.removed;
      state.page = 0;
      fillGallery();
    }

    function dress(tile) {
      const i = Number(tile.dataset.example);
      tile.title = lines(i).join("\n");
      tile.setAttribute("aria-label", lines(i).join(", ") + ": show on the map");
      review?.dress(tile, i);
    }

    function fillGallery() {
      const first = state.page * PER_PAGE,
        here = state.shown.slice(first, first + PER_PAGE);
      const range = here.length ? `${count(first + 1)} to ${count(first + here.length)} of ` : "";
      const what = state.shown === state.removed ? "Removed" : "Selected";
      find(".dv-tiles").setAttribute("aria-label", `${what} examples`);
      find(".dv-shown").textContent = `${what}: ${range}${count(state.shown.length)}`;
      find("[data-page='-1']").disabled = first === 0;
      find("[data-page='1']").disabled = first + PER_PAGE >= state.shown.length;
      find(".dv-tiles").replaceChildren(
        ...here.map((i) => {
          const item = document.createElement("li"),
            tile = document.createElement("button");
          tile.type = "button";
          tile.dataset.example = i;
          dress(tile);
          tile.append(picture(i) ?? `${i}`);
          item.append(tile);
          return item;
        }),
      );
    }

    // --- What moves it

    form.addEventListener("submit", (event) => event.preventDefault());
    let before = "";
    function changed(event) {
      // by a mouse, a key or an assistive tool, which send one of two events, or both
      if (event?.target.name === "step") form.elements.rule.value = "eps";
      const now = [...new FormData(form).values()].join();
      if (now === before) return;
      before = now;
      hover(-1);
      read();
      answer();
      review?.narrow();
      draw();
    }
    form.addEventListener("input", changed);
    form.addEventListener("change", changed);
    figure.addEventListener("click", (event) => {
      const { page, zoom, example } = event.target.closest("button")?.dataset ?? {};
      if (page) {
        state.page += Number(page);
        fillGallery();
      }
      if (zoom === "all") map.showAll();
      else if (zoom) map.zoom(zoom === "in" ? 1.5 : 1 / 1.5);
      if (example) {
        map.zoom(2, Number(example));
        map.highlight(Number(example));
      }
    });
    const pointAt = (event) => {
      const example = event.target.closest?.(".dv-tiles button")?.dataset.example;
      if (example !== undefined) map.highlight(Number(example));
    };
    figure.addEventListener("mouseover", pointAt);
    figure.addEventListener("focusin", pointAt);
    const keys = {
      ArrowLeft: () => map.move(-1, 0),
      ArrowRight: () => map.move(1, 0),
      ArrowUp: () => map.move(0, 1),
      ArrowDown: () => map.move(0, -1),
      "+": () => map.zoom(1.5),
      "=": () => map.zoom(1.5),
      "-": () => map.zoom(1 / 1.5),
      0: () => map.showAll(),
    };
    surface.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    new ResizeObserver(() => map.resize(...size())).observe(frame);
    new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

    changed();
    figure.viewer = { map, state, review };
  }

  root.dolbViewer = { build };
})(window);
