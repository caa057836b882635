// The step simulator of dolb.profiling in plain JavaScript, and a panel that answers while its controls are moved.
// No dependency, no request. Tests compare `simulate` and `scenario` with Python's; every constant comes from Python's data.
(function (root) {
  "use strict";

  // --- The model: dolb/profiling/simulator/network.py, libraries.py, step.py ------------------------------------------

  const levels = (ranks) => 32 - Math.clz32(ranks - 1);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;

  function allreduceSeconds(network, ranks, size) {
    const nodes = Math.ceil(ranks / network.ranks_per_node);
    const local = Math.min(ranks, network.ranks_per_node);
    const share = network.shared_bandwidth === null ? Infinity : network.shared_bandwidth / local;
    const within = network.achieved * Math.min(network.intra.bandwidth, share);
    const between = network.inter.bandwidth * network.achieved;
    const slowest = nodes > 1 ? Math.min(within, between) : within;
    const { launch, intra, inter } = network;
    const cost = {
      ring: (by) => by.latency * (launch + 2 * (ranks - nodes) * intra.latency + 2 * (nodes - 1) * inter.latency)
        + (2 * (ranks - 1) * size) / ranks / (by.bandwidth * slowest),
      tree: (by) => {
        const chunk = Math.min(network.chunk_bytes, size) / by.bandwidth;
        return by.latency * (launch + 2 * ((local - 1) * intra.latency + levels(nodes) * inter.latency))
          + 2 * (((local - 1) * chunk) / within + (levels(nodes) * chunk) / slowest)
          + (2 * size) / (by.bandwidth * slowest);
      },
      auto: (by) => Math.min(cost.ring(by), cost.tree(by)),
    };
    return Math.min(...network.protocols.map(cost[network.algorithm]));
  }

  // The clock of a backward pass, which loses a share of its speed while an all-reduce runs beside it.
  function passClock(interference) {
    const moments = [0], done = [0];
    const along = (xs, ys, x) => {
      let after = xs.length;
      while (after > 1 && xs[after - 1] > x) after -= 1;
      const x0 = xs[after - 1], y0 = ys[after - 1];
      return after === xs.length ? y0 + x - x0 : y0 + ((x - x0) * (ys[after] - y0)) / (xs[after] - x0);
    };
    return {
      beside(start, end) {
        const last = moments.length - 1, begin = Math.max(start, moments[last]);
        if (interference > 0 && end > begin) {
          const so = done[last] + begin - moments[last];
          moments.push(begin, end);
          done.push(so, so + (1 - interference) * (end - begin));
        }
      },
      when: (seconds) => along(done, moments, seconds),
      until: (moment) => along(moments, done, moment),
    };
  }

  // When DDP has reduced everything: each bucket goes when its last gradient is ready and the one before is through.
  function ddpEnd(policy, ready, sizes, allreduce, ranks, phase, interference) {
    const clock = passClock(interference);
    let free = 0, size = 0, limit = policy.first_bucket_bytes, held = 0;
    sizes.forEach((bytes, index) => {
      size += bytes;
      held += policy.tensor_seconds;
      if (size >= limit || index === sizes.length - 1) {
        held += policy.collective_seconds;
        const start = Math.max(free, clock.when(ready[index] + held));
        free = start + allreduce(size);
        clock.beside(start, free);
        size = 0;
        limit = policy.bucket_bytes;
      }
    });
    return Math.max(free, clock.when(ready[ready.length - 1] + held));
  }

  function negotiationSeconds(policy, ranks, tensors) {
    const tree = levels(ranks) * policy.latency;
    if (policy.response_cache) return policy.agreement === "ring" ? 2 * (ranks - 1) * policy.latency : tree;
    return 4 * tree + (ranks - 1) * (policy.message_seconds + tensors * policy.request_seconds);
  }

  // When Horovod has reduced everything: every cycle ranks agree on what is ready, fuse it, and reduce it.
  function horovodEnd(policy, ready, sizes, allreduce, ranks, phase, interference) {
    const agreeing = negotiationSeconds(policy, ranks, 0);
    const idle = policy.on_time ? Math.max(policy.cycle_seconds, agreeing) : policy.cycle_seconds + agreeing;
    const work = ready.map((seconds, index) => seconds + (index + 1) * policy.tensor_seconds);
    const clock = passClock(interference);
    let now = phase * idle, free = 0, first = 0;
    while (first < sizes.length) {
      const begin = clock.when(work[first]);
      if (begin > now) {
        const wait = idle > 0 ? Math.ceil((begin - now) / idle) * idle : 0;
        now = Math.max(now + wait, begin);
      }
      let end = first + 1;
      const computed = clock.until(now);
      while (end < sizes.length && work[end] <= computed) end += 1;
      const agreed = now + negotiationSeconds(policy, ranks, end - first);
      for (let index = first; index < end;) {
        let size = sizes[index++];
        while (index < end && size + sizes[index] <= policy.fusion_bytes) size += sizes[index++];
        const start = Math.max(free, agreed);
        free = start + policy.collective_seconds + allreduce(size);
        clock.beside(start, free);
      }
      const worked = policy.blocking ? free : agreed;
      now = policy.on_time ? Math.max(now + policy.cycle_seconds, worked) : worked + policy.cycle_seconds;
      first = end;
    }
    return Math.max(free, clock.when(work[work.length - 1]));
  }

  // The expected maximum of logistic draws, as a multiple of their mean.
  function slowestOf(ranks, jitter, euler) {
    const n = ranks - 1;
    let harmonic = 0;
    if (n < 32) for (let k = 1; k <= n; k += 1) harmonic += 1 / k;
    else harmonic = Math.log(n) + euler + 1 / (2 * n) - 1 / (12 * n ** 2) + 1 / (120 * n ** 4);
    return 1 + ((jitter * Math.sqrt(3)) / Math.PI) * harmonic;
  }

  // settings: model {bytes, forward_share, backward: in proportion to time}, images_per_second of one GPU,
  // batch_per_rank, network, policy, ranks, and constants, all as Python's whatif_data() writes them.
  function simulate(settings) {
    const { model, network, policy, ranks, batch_per_rank: batch, constants } = settings;
    const alone = batch / settings.images_per_second;
    if (ranks === 1) return { step_seconds: alone, images_per_second: batch / alone, efficiency: 1 };
    const unit = (alone * (1 - model.forward_share)) / sum(model.backward);
    const neighbours = Math.min(ranks, network.ranks_per_node) - 1;
    const slow = (1 + network.contention * neighbours) * slowestOf(ranks, network.jitter, constants.euler);
    let now = alone * model.forward_share;
    const ready = model.backward.slice().reverse().map((part) => (now += part * unit) * slow);
    const sizes = model.bytes.slice().reverse();
    const allreduce = (size) => allreduceSeconds(network, ranks, size);
    const end = policy.kind === "ddp" ? ddpEnd : horovodEnd;
    const phases = policy.kind === "ddp" ? [0] : constants.phases;
    const step = mean(phases.map((phase) => end(policy, ready, sizes, allreduce, ranks, phase, network.interference)));
    return { step_seconds: step, images_per_second: (ranks * batch) / step, efficiency: alone / step };
  }

  // --- The panel ------------------------------------------------------------------------------------------------------

  const STYLE = `
.dolb-whatif { --ddp: #0072b2; --horovod: #c04e00; color: var(--pst-color-text-base, inherit); }
html[data-theme="dark"] .dolb-whatif { --ddp: #56b4e9; --horovod: #e69f00; }
.dolb-whatif form { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 0.5rem 1.2rem; }
.dolb-whatif label { display: flex; flex-direction: column; font-size: 0.9em; gap: 0.1rem; }
.dolb-whatif label.check { flex-direction: row; align-items: center; gap: 0.4rem; }
.dolb-whatif select, .dolb-whatif input { color: inherit; accent-color: var(--ddp); }
.dolb-whatif select { background: var(--pst-color-background, Canvas); border: 1px solid currentColor; padding: 0.15rem; }
.dolb-whatif :focus-visible { outline: 3px solid var(--ddp); outline-offset: 2px; }
.dolb-whatif svg { width: 100%; height: auto; margin-top: 0.6rem; font: 12px sans-serif; fill: currentColor; }
.dolb-whatif path { fill: none; stroke-width: 2.5; }
.dolb-whatif .axis { stroke: currentColor; stroke-opacity: 0.25; stroke-width: 1; }
.dolb-whatif .cursor { stroke: currentColor; stroke-dasharray: 3 3; }
.dolb-whatif .ddp { stroke: var(--ddp); } .dolb-whatif text.ddp { fill: var(--ddp); stroke: none; }
.dolb-whatif .horovod { stroke: var(--horovod); stroke-dasharray: 7 4; }
.dolb-whatif text.horovod { fill: var(--horovod); stroke: none; }`;

  const MIB = 1024 * 1024, GBIT = 1e9 / 8;
  const LEFT = 48, RIGHT = 624, TOP = 14, BOTTOM = 270, POINTS = 60;

  // name, label, least, most, step, unit, where its first number comes from; those in TYPED are typed, others slid
  const TYPED = ["speed", "gbit", "latency"];
  const OF_MACHINE = ["gpus", "gbit", "latency", "bandwidth", "jitter", "contention", "interference"];
  const CONTROLS = [
    ["speed", "images/s of one GPU", 1, 100000, "any", "", (d, s) => s.speed],
    ["batch_per_rank", "images per GPU", 8, 512, 8, "", (d) => d.batch_per_rank],
    ["gpus", "GPUs per node", 1, 16, 1, "", (d, s) => s.network.ranks_per_node],
    ["gbit", "Gbit/s between nodes", 0.1, 10000, "any", "", (d, s) => s.network.inter.bandwidth / GBIT],
    ["latency", "latency between nodes, µs", 0, 10000, "any", "", (d, s) => 1e6 * s.network.inter.latency],
    ["bandwidth", "share of peak bandwidth achieved", 5, 100, 5, "%", (d, s) => 100 * s.network.achieved],
    ["contention", "each neighbour slows computing by", 0, 5, 0.01, "%", (d, s) => 100 * s.network.contention],
    ["interference", "communication slows computing by", 0, 100, 0.1, "%", (d, s) => 100 * s.network.interference],
    ["jitter", "spread of compute times", 0, 15, 0.01, "%", (d, s) => 100 * s.network.jitter],
    ["bucket", "DDP: bucket size", 1, 100, 1, " MiB", (d, s) => s.ddp.bucket_bytes / MIB],
    ["cycle", "Horovod: cycle time", 0, 20, 0.5, " ms", (d, s) => 1000 * s.horovod.cycle_seconds],
    ["fusion", "Horovod: fusion threshold", 0, 256, 1, " MiB", (d, s) => s.horovod.fusion_bytes / MIB],
    ["request", "Horovod: coordinator's time per tensor and rank", 0, 1, 0.05, " µs",
      (d, s) => 1e6 * s.horovod.request_seconds],
  ];

  function element(name, attributes, ...children) {
    const svg = ["svg", "g", "path", "line", "text", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    Object.entries(attributes || {}).forEach(([key, value]) => node.setAttribute(key, value));
    node.append(...children);
    return node;
  }

  function select(name, label, options, chosen) {
    const box = element("select", { name }, ...options.map((option) => {
      const item = element("option", { value: option }, String(option));
      item.selected = option === chosen;
      return item;
    }));
    return element("label", {}, label, box);
  }

  // The settings of `simulate`, but for ranks, of what is chosen: names of presets, and the controls' numbers.
  function scenario(data, chosen, kind) {
    const preset = data.networks[chosen.network];
    const network = { ...preset, ranks_per_node: chosen.gpus, achieved: chosen.bandwidth / 100,
      inter: { latency: chosen.latency * 1e-6, bandwidth: chosen.gbit * GBIT }, jitter: chosen.jitter / 100,
      contention: chosen.contention / 100, interference: chosen.interference / 100 };
    const policy = kind === "ddp" ? ddpOf(data, chosen.bucket * MIB) : horovodOf(data, chosen);
    return { model: data.models[chosen.model], images_per_second: chosen.speed, network, policy,
      batch_per_rank: chosen.batch_per_rank, constants: data.constants };
  }

  // Given a size of its own, torch makes all buckets alike; its default has a small first one.
  function ddpOf(data, bytes) {
    const usual = data.policies[data.defaults.ddp];
    return bytes === usual.bucket_bytes ? usual : { ...usual, bucket_bytes: bytes, first_bucket_bytes: bytes };
  }

  function horovodOf(data, chosen) {
    const usual = data.policies[chosen.library];
    return { ...usual, response_cache: chosen.response_cache, cycle_seconds: chosen.cycle / 1000,
      fusion_bytes: chosen.fusion * MIB, request_seconds: chosen.request * 1e-6 };
  }

  // Build the panel in `host` from the data that Python wrote, and draw it.
  function build(host, data) {
    const start = data.defaults;
    const form = element("form", {});
    const libraries = Object.keys(data.policies).filter((name) => data.policies[name].kind === "horovod");
    // A GPU whose speed on this network nobody published gives way to one that has it.
    const knowing = () => {
      const { gpu, model } = form.elements;
      const knows = (name) => model.value in data.gpus[name];
      if (!knows(gpu.value)) gpu.value = Object.keys(data.gpus).find(knows);
      return data.gpus[gpu.value][model.value];
    };
    const preset = () => ({
      speed: knowing(),
      network: data.networks[form.elements.network.value],
      ddp: data.policies[start.ddp],
      horovod: data.policies[form.elements.library.value],
    });
    const check = element("input", { type: "checkbox", name: "response_cache" });
    form.append(
      select("model", "network", Object.keys(data.models), start.model),
      select("gpu", "GPU", Object.keys(data.gpus), start.gpu),
      select("network", "machine", Object.keys(data.networks), start.network),
      select("library", "Horovod's version", libraries, start.horovod),
      element("label", { class: "check" }, check, "Horovod: response cache"),
      select("most", "up to how many GPUs", data.most_ranks, start.most_ranks),
    );
    CONTROLS.forEach(([name, label, min, max, step]) => {
      const typed = TYPED.includes(name);
      const input = element("input", { type: typed ? "number" : "range", name, min, max, step });
      const said = typed ? label : element("span", {}, `${label}: `, element("span", { "data-of": name }));
      form.append(element("label", {}, said, input));
    });
    const cursor = element("input", { type: "range", name: "cursor", min: 0, max: 1, step: 0.01 });
    cursor.value = 0.8;
    form.append(element("label", {}, "read the curves at", cursor));
    const picture = element("svg", { viewBox: "0 0 720 310", role: "img" });
    const reading = element("p", { "aria-live": "polite" });
    if (!document.getElementById("dolb-whatif-style")) {
      document.head.append(element("style", { id: "dolb-whatif-style" }, STYLE));
    }
    host.replaceChildren(element("p", {}, element("strong", {}, "Simulated"),
      ", not measured: both lines come from the model. Horovod's is dashed."), form, picture, reading);

    // A new preset brings its own numbers, which may then be moved.
    function adopt(names) {
      const presets = preset();
      CONTROLS.filter(([name]) => names.includes(name)).forEach(([name, , , , , , first]) => {
        form.elements[name].value = Number(first(start, presets).toPrecision(6));
      });
      if (names.includes("cycle")) check.checked = presets.horovod.response_cache;
    }

    // What the controls say, as `scenario` takes it.
    function chosen() {
      const values = Object.fromEntries(CONTROLS.map(([name]) => [name, Number(form.elements[name].value)]));
      const { model, network, library } = form.elements;
      return { model: model.value, network: network.value, library: library.value, response_cache: check.checked,
        ...values };
    }

    function draw() {
      const most = Number(form.elements.most.value);
      const x = (ranks) => LEFT + ((RIGHT - LEFT) * Math.log(ranks)) / Math.log(most);
      const y = (share) => BOTTOM - (BOTTOM - TOP) * share;
      const counts = [...new Set(Array.from({ length: POINTS }, (_, i) => Math.round(most ** (i / (POINTS - 1)))))];
      const here = Math.max(2, Math.round(most ** Number(cursor.value)));
      const parts = [element("title", {}, "Simulated efficiency against the number of GPUs, for DDP and Horovod")];
      [0, 0.25, 0.5, 0.75, 1].forEach((share) => parts.push(
        element("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: y(share), y2: y(share) }),
        element("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`)));
      for (let ranks = 1; ranks <= most; ranks *= 4) {
        parts.push(element("text", { x: x(ranks), y: BOTTOM + 16, "text-anchor": "middle" }, String(ranks)));
      }
      parts.push(element("text", { x: (LEFT + RIGHT) / 2, y: BOTTOM + 34, "text-anchor": "middle" },
        "GPUs (logarithmic); efficiency, simulated"));
      parts.push(element("line", { class: "cursor", x1: x(here), x2: x(here), y1: TOP, y2: BOTTOM }));
      const said = [], ends = [];
      [["ddp", "DDP"], ["horovod", "Horovod"]].forEach(([kind, label]) => {
        const settings = scenario(data, chosen(), kind);
        const at = (ranks) => simulate({ ...settings, ranks });
        const curve = counts.map((ranks) => [x(ranks), y(at(ranks).efficiency)].map((v) => v.toFixed(1)).join(" "));
        parts.push(element("path", { class: kind, d: `M${curve.join("L")}` }));
        ends.push([y(at(most).efficiency), kind, label]);
        const read = at(here);
        said.push(`${label} ${(100 * read.efficiency).toFixed(1)}%, ${(1000 * read.step_seconds).toFixed(1)} ms a step, `
          + `${Math.round(read.images_per_second).toLocaleString("en")} images/s`);
      });
      // Labels at the ends of the curves, kept apart where the curves meet.
      const apart = Math.max(0, 16 - Math.abs(ends[0][0] - ends[1][0])) / 2;
      const upper = ends[0][0] <= ends[1][0] ? 0 : 1;
      ends.forEach(([height, kind, label], index) => parts.push(element("text",
        { class: kind, x: RIGHT + 8, y: height + 4 + (index === upper ? -apart : apart) }, label)));
      picture.replaceChildren(...parts);
      cursor.setAttribute("aria-valuetext", `${here} GPUs`);
      reading.textContent = `Simulated, ${here.toLocaleString("en")} GPUs: ${said.join("; ")}.`;
      CONTROLS.filter(([name]) => !TYPED.includes(name)).forEach(([name, , , , , unit]) => {
        form.querySelector(`[data-of="${name}"]`).textContent = `${Number(form.elements[name].value)}${unit}`;
      });
    }

    const moved = (event) => {
      if (["model", "gpu"].includes(event.target.name)) adopt(["speed"]);
      if (event.target.name === "network") adopt(OF_MACHINE);
      if (event.target.name === "library") adopt(["cycle", "fusion", "request"]);
      if (form.checkValidity()) draw(); // an empty or impossible number waits for its end
    };
    ["input", "change"].forEach((name) => form.addEventListener(name, moved)); // some browsers send one of a select
    form.addEventListener("submit", (event) => event.preventDefault());
    adopt(CONTROLS.map(([name]) => name));
    draw();
  }

  const api = { simulate, scenario, build };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else root.dolbWhatif = api;
})(typeof window === "undefined" ? globalThis : window);
