// Two maps of points with one interface: by WebGL (scatterplot.js), and on a plain canvas where that would be faster.
//   draw(scene), highlight(point), at(point), zoom(factor, point?), move(right, up), showAll(), resize(width, height)
// A scene says for each point its group, for each group colour and size, the order of drawing, and which are visible.
// `told` has two functions: over(point), by the mouse, -1 for none; and moved(), when points have moved on the screen.
(function (root) {
  "use strict";

  class WebGLMap {
    // Without a graphics card WebGL draws 50,000 points some ten times a second, a plain canvas at every frame. Browsers
    // have an attribute that asks, and not all of them heed it.
    static create(canvas, x, y, told, evenIfSlow) {
      if (!root.dolbScatterplot) return null; // a file beside the page that is not there
      const probe = document.createElement("canvas").getContext("webgl", { failIfMajorPerformanceCaveat: !evenIfSlow });
      if (!probe) return null;
      const name = probe.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL;
      const slow = /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name ? probe.getParameter(name) : "");
      probe.getExtension("WEBGL_lose_context")?.loseContext();
      if (slow && !evenIfSlow) return null;
      try {
        const map = new WebGLMap(canvas, x, y, told);
        return map.plot.isSupported ? map : null;
      } catch (error) {
        return null; // WebGL is there, but not the float textures that the library draws to
      }
    }

    constructor(canvas, x, y, told) {
      Object.assign(this, { x, y, kind: "webgl", busy: false, waiting: null, drawn: null });
      const size = [canvas.clientWidth || 300, canvas.clientHeight || 300];
      this.renderer = dolbScatterplot.createRenderer();
      this.plot = dolbScatterplot.create({
        renderer: this.renderer,
        canvas,
        width: size[0],
        height: size[1],
        colorBy: "valueA",
        sizeBy: "valueA",
        opacity: 0.75,
        pointSizeSelected: 0,
        deselectOnDblClick: false,
        deselectOnEscape: false,
        lassoOnLongPress: false,
        actionKeyMap: {},
        showReticle: false,
      });
      this.plot.subscribe("pointOver", told.over);
      this.plot.subscribe("pointOut", () => told.over(-1));
      this.plot.subscribe("view", told.moved);
      // By itself the renderer draws as much as the window holds, and no more than the screen: too much, or too little.
      this.renderer.resize(...(this.size = size));
      window.addEventListener("resize", () => this.renderer.resize(...this.size));
    }

    // While one drawing is under way, only the newest of those asked for waits. Points go to the device anew only where
    // their groups, order or visibility have changed.
    async draw(scene) {
      this.waiting = scene;
      if (this.busy) return;
      this.busy = true;
      while (this.waiting) {
        const { group, groups, order, visible, background, ring } = this.waiting,
          before = this.drawn;
        this.drawn = this.waiting;
        this.waiting = null;
        await this.plot.set({
          pointColor: groups.map((each) => each.colour),
          pointColorHover: ring,
          pointColorActive: ring,
          pointSize: groups.map((each) => each.size),
          ...(before?.order === order ? {} : { pointOrder: order }),
          backgroundColor: background,
        });
        if (before?.group === group && before.visible === visible) continue;
        const options = { zDataType: "categorical", spatialIndex: this.plot.get("spatialIndex") };
        if (visible) options.filter = visible;
        await this.plot.draw({ x: this.x, y: this.y, valueA: group }, options);
      }
      this.busy = false;
    }

    highlight(point) {
      this.plot.hover(point, { preventEvent: true, showReticleOnce: true });
    }
    at(point) {
      return this.plot.getScreenPosition(point);
    }
    resize(width, height) {
      this.renderer.resize(...(this.size = [width, height]));
      this.plot.set({ width, height });
    }
    showAll() {
      this.plot.reset();
    }
    // A change of the view takes a frame; the next, by a key held down say, starts from where it has led.
    next(change) {
      this.view = (this.view ?? Promise.resolve()).then(change);
    }
    zoom(factor, point) {
      this.next(async () => {
        const target = point === undefined ? [...this.plot.get("cameraTarget")] : [this.x[point], this.y[point]];
        await this.plot.set({ cameraDistance: Math.max(0.02, Math.min(2, this.plot.get("cameraDistance") / factor)) });
        await this.plot.set({ cameraTarget: target });
      });
    }
    move(right, up) {
      this.next(() => {
        const step = this.plot.get("cameraDistance") * 0.2,
          [x, y] = this.plot.get("cameraTarget");
        return this.plot.set({ cameraTarget: [x + right * step, y + up * step] });
      });
    }
  }

  // Points by the cell of a grid over the map, so that those near a place are found without a look at all others.
  class Cells {
    static SIDE = 128;
    constructor(x, y) {
      Object.assign(this, { x, y, starts: new Uint32Array(Cells.SIDE ** 2 + 1), points: new Uint32Array(x.length) });
      const cells = Uint32Array.from(x, (_, i) => this.along(y[i]) * Cells.SIDE + this.along(x[i]));
      for (const cell of cells) this.starts[cell + 1] += 1;
      for (let k = 1; k < this.starts.length; k++) this.starts[k] += this.starts[k - 1];
      const next = this.starts.slice();
      cells.forEach((cell, i) => {
        this.points[next[cell]++] = i;
      });
    }
    along(value) {
      return Math.max(0, Math.min(Cells.SIDE - 1, Math.floor(((value + 1) / 2) * Cells.SIDE)));
    }
    nearest(x, y, reach, accepted) {
      let best = -1,
        least = reach ** 2;
      for (let row = this.along(y - reach); row <= this.along(y + reach); row++) {
        const first = this.starts[row * Cells.SIDE + this.along(x - reach)],
          last = this.starts[row * Cells.SIDE + this.along(x + reach) + 1];
        for (const point of this.points.subarray(first, last)) {
          const distance = (this.x[point] - x) ** 2 + (this.y[point] - y) ** 2;
          if (distance < least && accepted(point)) [best, least] = [point, distance];
        }
      }
      return best;
    }
  }

  class CanvasMap {
    constructor(canvas, x, y, told) {
      Object.assign(this, { canvas, x, y, told, kind: "canvas", centre: [0, 0], scale: 1, scene: null, ringed: -1 });
      Object.assign(this, { context: canvas.getContext("2d"), cells: new Cells(x, y), pointed: -1 });
      this.size = [canvas.clientWidth, canvas.clientHeight]; // asked of the page for each point, it would take a second
      let from = null;
      canvas.addEventListener("pointerdown", (event) => {
        from = [event.offsetX, event.offsetY];
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointerup", () => {
        from = null;
      });
      canvas.addEventListener("pointerleave", () => this.point(-1));
      canvas.addEventListener("pointermove", (event) => {
        if (!from) return this.point(this.nearest(event.offsetX, event.offsetY));
        const unit = this.unit();
        this.centre = [
          this.centre[0] - (event.offsetX - from[0]) / unit,
          this.centre[1] + (event.offsetY - from[1]) / unit,
        ];
        from = [event.offsetX, event.offsetY];
        this.paint();
      });
      canvas.addEventListener(
        "wheel",
        (event) => {
          event.preventDefault();
          const right = event.offsetX - this.size[0] / 2,
            up = this.size[1] / 2 - event.offsetY,
            before = this.unit();
          this.zoom(Math.exp(-event.deltaY / 400));
          const moved = 1 / before - 1 / this.unit(); // what is under the pointer stays there
          this.centre = [this.centre[0] + right * moved, this.centre[1] + up * moved];
        },
        { passive: false },
      );
    }

    unit() {
      return (this.size[1] / 2) * this.scale;
    }
    at(point) {
      const { centre, size } = this,
        unit = this.unit();
      return [size[0] / 2 + (this.x[point] - centre[0]) * unit, size[1] / 2 - (this.y[point] - centre[1]) * unit];
    }
    point(which) {
      if (which === this.pointed) return;
      this.pointed = which;
      this.told.over(which);
    }
    nearest(left, top) {
      const { centre, shown, size } = this,
        unit = this.unit(),
        x = centre[0] + (left - size[0] / 2) / unit,
        y = centre[1] - (top - size[1] / 2) / unit;
      return this.cells.nearest(x, y, 8 / unit, (point) => !shown || shown[point]);
    }
    draw(scene) {
      if (scene.visible !== this.scene?.visible) {
        this.shown = scene.visible && new Uint8Array(this.x.length);
        for (const point of scene.visible ?? []) this.shown[point] = 1;
      }
      this.scene = scene;
      this.paint();
    }
    paint() {
      if (!this.pending)
        this.pending = requestAnimationFrame(() => {
          this.pending = null;
          this.paintNow();
          this.told.moved();
        });
    }
    // Points are squares of whole pixels, written straight into the picture: as paths of the canvas, 50,000 would take
    // several frames.
    paintNow() {
      const { canvas, context, scene, shown, x, y } = this,
        ratio = window.devicePixelRatio || 1,
        [width, height] = this.size.map((length) => Math.max(1, Math.round(length * ratio)));
      if (canvas.width !== width || canvas.height !== height || !this.picture) {
        Object.assign(canvas, { width, height });
        this.picture = context.createImageData(width, height);
      }
      const pixels = new Uint32Array(this.picture.data.buffer),
        colours = scene.groups.map((each) => pixel(each.colour)),
        sizes = scene.groups.map((each) => Math.max(1, Math.round(each.size * ratio))),
        unit = this.unit() * ratio,
        x0 = width / 2 - this.centre[0] * unit,
        y0 = height / 2 + this.centre[1] * unit;
      pixels.fill(pixel(scene.background));
      for (const point of scene.order) {
        if (shown && !shown[point]) continue;
        const size = sizes[scene.group[point]],
          colour = colours[scene.group[point]],
          left = Math.round(x0 + x[point] * unit - size / 2),
          top = Math.round(y0 - y[point] * unit - size / 2);
        if (left < 0 || top < 0 || left + size > width || top + size > height) continue;
        for (let row = top * width + left, last = row + size * width; row < last; row += width)
          for (let at = row; at < row + size; at++) pixels[at] = colour;
      }
      context.putImageData(this.picture, 0, 0);
      if (this.ringed < 0) return;
      const [left, top] = this.at(this.ringed);
      context.strokeStyle = scene.ring;
      context.lineWidth = 2 * ratio;
      context.beginPath();
      context.arc(left * ratio, top * ratio, 7 * ratio, 0, 7);
      context.stroke();
    }
    highlight(point) {
      this.ringed = point;
      this.paint();
    }
    resize(width, height) {
      this.size = [width, height];
      if (this.scene) this.paint();
    }
    showAll() {
      this.centre = [0, 0];
      this.scale = 1;
      this.paint();
    }
    zoom(factor, point) {
      this.scale = Math.max(0.5, Math.min(50, this.scale * factor));
      if (point !== undefined) this.centre = [this.x[point], this.y[point]];
      this.paint();
    }
    move(right, up) {
      this.centre = [this.centre[0] + (right * 0.2) / this.scale, this.centre[1] + (up * 0.2) / this.scale];
      this.paint();
    }
  }

  // A colour such as #ff8000 as one pixel of a picture, in the order of bytes that this machine has.
  function pixel(colour) {
    const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return new Uint32Array(Uint8Array.from([...parts, 255]).buffer)[0];
  }

  root.dolbMaps = { WebGLMap, CanvasMap };
})(window);
