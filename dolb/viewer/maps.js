// Two maps of points with one interface: by WebGL (scatterplot.js), and on a plain canvas where that would be faster.
//   draw(scene), highlight(point), at(point), zoom(factor, point?), move(right, up), showAll(), resize(width, height)
// A scene says for each point its group, for each group colour and size, the order of drawing, and which are visible.
(function (root) {
  "use strict";

  class WebGLMap {
    // WebGL without a graphics card draws 50,000 points a few times a second, a plain canvas 20 times. Browsers have an
    // attribute that asks, and not all of them heed it.
    static create(canvas, x, y, onHover, evenIfSlow) {
      const probe = document.createElement("canvas").getContext("webgl", { failIfMajorPerformanceCaveat: !evenIfSlow });
      if (!probe) return null;
      const name = probe.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL;
      const slow = /swiftshader|llvmpipe|softpipe|software|basic render/i.test(name ? probe.getParameter(name) : "");
      probe.getExtension("WEBGL_lose_context")?.loseContext();
      if (slow && !evenIfSlow) return null;
      try {
        const map = new WebGLMap(canvas, x, y, onHover);
        return map.plot.isSupported ? map : null;
      } catch (error) {
        return null; // WebGL is there, but not the float textures that the library draws to
      }
    }

    constructor(canvas, x, y, onHover) {
      Object.assign(this, { x, y, kind: "webgl", busy: false, waiting: null });
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
      this.plot.subscribe("pointOver", onHover);
      this.plot.subscribe("pointOut", () => onHover(-1));
      // By itself the renderer draws as much as the window holds, and no more than the screen: too much, or too little.
      this.renderer.resize(...(this.size = size));
      window.addEventListener("resize", () => this.renderer.resize(...this.size));
    }

    // While one drawing is under way, only the newest of those asked for waits.
    async draw(scene) {
      this.waiting = scene;
      if (this.busy) return;
      this.busy = true;
      while (this.waiting) {
        const { group, groups, order, visible, background, ring } = this.waiting;
        this.waiting = null;
        await this.plot.set({
          pointColor: groups.map((each) => each.colour),
          pointColorHover: ring,
          pointColorActive: ring,
          pointSize: groups.map((each) => each.size),
          pointOrder: order,
          backgroundColor: background,
        });
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
    zoom(factor, point) {
      const target = point === undefined ? [...this.plot.get("cameraTarget")] : [this.x[point], this.y[point]];
      const distance = Math.max(0.02, Math.min(2, this.plot.get("cameraDistance") / factor));
      this.plot.set({ cameraDistance: distance }).then(() => this.plot.set({ cameraTarget: target }));
    }
    move(right, up) {
      const step = this.plot.get("cameraDistance") * 0.2;
      const [x, y] = this.plot.get("cameraTarget");
      this.plot.set({ cameraTarget: [x + right * step, y + up * step] });
    }
  }

  class CanvasMap {
    constructor(canvas, x, y, onHover) {
      Object.assign(this, { canvas, x, y, kind: "canvas", centre: [0, 0], scale: 1, scene: null, ringed: -1 });
      this.context = canvas.getContext("2d");
      let from = null;
      canvas.addEventListener("pointerdown", (event) => {
        from = [event.offsetX, event.offsetY];
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener("pointerup", () => {
        from = null;
      });
      canvas.addEventListener("pointerleave", () => onHover(-1));
      canvas.addEventListener("pointermove", (event) => {
        if (!from) return onHover(this.nearest(event.offsetX, event.offsetY));
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
          const right = event.offsetX - canvas.clientWidth / 2,
            up = canvas.clientHeight / 2 - event.offsetY,
            before = this.unit();
          this.zoom(Math.exp(-event.deltaY / 400));
          const moved = 1 / before - 1 / this.unit(); // what is under the pointer stays there
          this.centre = [this.centre[0] + right * moved, this.centre[1] + up * moved];
        },
        { passive: false },
      );
    }

    unit() {
      return (this.canvas.clientHeight / 2) * this.scale;
    }
    at(point) {
      const { canvas, centre } = this,
        unit = this.unit();
      return [
        canvas.clientWidth / 2 + (this.x[point] - centre[0]) * unit,
        canvas.clientHeight / 2 - (this.y[point] - centre[1]) * unit,
      ];
    }
    nearest(left, top) {
      const [x0, y0] = this.at(0),
        unit = this.unit(),
        reach = 8;
      let best = -1,
        least = reach ** 2;
      for (const point of this.scene.visible ?? this.scene.order) {
        const right = x0 + (this.x[point] - this.x[0]) * unit - left,
          down = y0 - (this.y[point] - this.y[0]) * unit - top;
        if (right * right + down * down < least) [best, least] = [point, right * right + down * down];
      }
      return best;
    }
    draw(scene) {
      this.scene = scene;
      this.paint();
    }
    paint() {
      if (!this.pending)
        this.pending = requestAnimationFrame(() => {
          this.pending = null;
          this.paintNow();
        });
    }
    paintNow() {
      const { canvas, context, scene, x, y } = this,
        ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth,
        height = canvas.clientHeight,
        [x0, y0] = this.at(0),
        unit = this.unit();
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      context.scale(ratio, ratio);
      context.fillStyle = scene.background;
      context.fillRect(0, 0, width, height);
      context.globalAlpha = 0.75;
      const shown = scene.visible && new Set(scene.visible);
      // One path for all points of a colour: a hundred times fewer calls that the canvas has to remember.
      scene.groups.forEach(({ colour, size }, group) => {
        context.fillStyle = colour;
        context.beginPath();
        for (const point of scene.order) {
          if (scene.group[point] !== group || (shown && !shown.has(point))) continue;
          const left = x0 + (x[point] - x[0]) * unit - size / 2,
            top = y0 - (y[point] - y[0]) * unit - size / 2;
          if (left > -size && left < width && top > -size && top < height) context.rect(left, top, size, size);
        }
        context.fill();
      });
      if (this.ringed >= 0) {
        context.globalAlpha = 1;
        context.strokeStyle = scene.ring;
        context.lineWidth = 2;
        context.beginPath();
        context.arc(...this.at(this.ringed), 7, 0, 7);
        context.stroke();
      }
    }
    highlight(point) {
      this.ringed = point;
      this.paint();
    }
    resize() {
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

  root.dolbMaps = { WebGLMap, CanvasMap };
})(window);
