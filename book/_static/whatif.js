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
    const { launch, intra, inter, chunk_bytes: chunk } = network;
    const cost = {
      ring: () => launch + 2 * (ranks - nodes) * intra.latency + 2 * (nodes - 1) * inter.latency
        + (2 * (ranks - 1) * size) / ranks / slowest,
      tree: () => launch + 2 * ((local - 1) * (intra.latency + chunk / within)
        + levels(nodes) * (inter.latency + chunk / slowest)) + (2 * size) / slowest,
      auto: () => Math.min(cost.ring(), cost.tree()),
    };
    return cost[network.algorithm]();
  }

  // When the last of DDP's buckets is reduced: each goes when its last gradient is ready and the one before is through.
  function ddpEnd(policy, ready, sizes, allreduce) {
    let free = 0, size = 0, limit = policy.first_bucket_bytes;
    sizes.forEach((bytes, index) => {
      size += bytes;
      if (size >= limit || index === sizes.length - 1) {
        free = Math.max(free, ready[index]) + allreduce(size);
        size = 0;
        limit = policy.bucket_bytes;
      }
    });
    return free;
  }

  function negotiationSeconds(policy, ranks, tensors) {
    const tree = levels(ranks) * policy.latency;
    if (policy.response_cache) return policy.agreement === "ring" ? 2 * (ranks - 1) * policy.latency : tree;
    return 4 * tree + (ranks - 1) * (policy.message_seconds + tensors * policy.request_seconds);
  }

  // When Horovod's last all-reduce ends: every cycle ranks agree on what is ready, fuse it, and reduce it.
  function horovodEnd(policy, ready, sizes, allreduce, ranks, phase) {
    const idle = Math.max(policy.cycle_seconds, negotiationSeconds(policy, ranks, 0));
    let now = phase * idle, free = 0, first = 0;
    while (first < sizes.length) {
      if (ready[first] > now) {
        const wait = idle > 0 ? Math.ceil((ready[first] - now) / idle) * idle : 0;
        now = Math.max(now + wait, ready[first]);
      }
      let end = first;
      while (end < sizes.length && ready[end] <= now) end += 1;
      const agreed = now + negotiationSeconds(policy, ranks, end - first);
      for (let index = first; index < end;) {
        let size = sizes[index++];
        while (index < end && size + sizes[index] <= policy.fusion_bytes) size += sizes[index++];
        free = Math.max(free, agreed) + allreduce(size);
      }
      now = Math.max(now + policy.cycle_seconds, policy.blocking ? free : agreed);
      first = end;
    }
    return free;
  }

  // The expected maximum of logistic draws, as a multiple of their mean.
  function slowestOf(ranks, jitter, euler) {
    const n = ranks - 1;
    let harmonic = 0;
    if (n < 32) for (let k = 1; k <= n; k += 1) harmonic += 1 / k;
    else harmonic = Math.log(n) + euler + 1 / (2 * n) - 1 / (12 * n ** 2) + 1 / (120 * n ** 4);
    return 1 + ((jitter * Math.sqrt(3)) / Math.PI) * harmonic;
  }

  // settings: model {bytes}, gpu {images_per_second, forward_share, backward: in proportion to time}, batch_per_rank,
  // network, policy, ranks, jitter, overlap, and constants, all as Python's whatif_data() writes them.
  function simulate(settings) {
    const { model, gpu, network, policy, ranks, batch_per_rank: batch, constants } = settings;
    const alone = batch / gpu.images_per_second;
    if (ranks === 1) return { step_seconds: alone, images_per_second: batch / alone, efficiency: 1 };
    const unit = (alone * (1 - gpu.forward_share)) / sum(gpu.backward);
    const slow = slowestOf(ranks, settings.jitter, constants.euler);
    let now = alone * gpu.forward_share;
    let ready = gpu.backward.slice().reverse().map((part) => (now += part * unit) * slow);
    const compute = ready[ready.length - 1];
    if (settings.overlap === false) ready = ready.map(() => compute);
    const sizes = model.bytes.slice().reverse();
    const allreduce = (size) => allreduceSeconds(network, ranks, size);
    const ends = policy.kind === "ddp"
      ? [ddpEnd(policy, ready, sizes, allreduce)]
      : constants.phases.map((phase) => horovodEnd(policy, ready, sizes, allreduce, ranks, phase));
    const step = mean(ends.map((end) => Math.max(compute, end)));
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

  const MIB = 1024 * 1024;
  const LEFT = 48, RIGHT = 624, TOP = 14, BOTTOM = 270, POINTS = 60;

  // name, label, least, most, step, how a slider's number is shown, where its first number comes from
  const SLIDERS = [
    ["batch_per_rank", "images per GPU", 8, 256, 8, (x) => x, (d) => d.batch_per_rank],
    ["bandwidth", "share of peak bandwidth achieved", 5, 100, 5, (x) => `${x}%`, (d, s) => 100 * s.network.achieved],
    ["latency", "latency, times the usual", 0, 10, 0.5, (x) => `${x}×`, () => 1],
    ["jitter", "spread of compute times", 0, 15, 0.1, (x) => `${x}%`, (d) => 100 * d.jitter],
    ["bucket", "DDP: bucket size", 1, 100, 1, (x) => `${x} MiB`, (d, s) => s.ddp.bucket_bytes / MIB],
    ["cycle", "Horovod: cycle time", 0, 20, 0.5, (x) => `${x} ms`, (d, s) => 1000 * s.horovod.cycle_seconds],
    ["fusion", "Horovod: fusion threshold", 0, 256, 1, (x) => `${x} MiB`, (d, s) => s.horovod.fusion_bytes / MIB],
    ["request", "Horovod: coordinator's time per tensor and rank", 0, 1, 0.05, (x) => `${x} µs`,
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

  // The settings of `simulate`, but for ranks, of what is chosen: names of presets, and the sliders' numbers.
  function scenario(data, chosen, kind) {
    const preset = data.networks[chosen.network];
    const scaled = (link) => ({ ...link, latency: link.latency * chosen.latency });
    const network = { ...preset, intra: scaled(preset.intra), inter: scaled(preset.inter),
      launch: preset.launch * chosen.latency, achieved: chosen.bandwidth / 100 };
    const policy = kind === "ddp" ? ddpOf(data, chosen.bucket * MIB) : horovodOf(data, chosen);
    return { model: data.models[chosen.model], gpu: data.gpus[chosen.gpu][chosen.model], network, policy,
      batch_per_rank: chosen.batch_per_rank, jitter: chosen.jitter / 100, overlap: true, constants: data.constants };
  }

  // Given a size of its own, torch makes all buckets alike; its default has a small first one.
  function ddpOf(data, bytes) {
    const usual = data.policies[data.defaults.ddp];
    return bytes === usual.bucket_bytes ? usual : { ...usual, bucket_bytes: bytes, first_bucket_bytes: bytes };
  }

  function horovodOf(data, chosen) {
    const usual = data.policies[chosen.library];
    return { ...usual, response_cache: chosen.response_cache, cycle_seconds: chosen.cycle / 1000,
      fusion_bytes: chosen.fusion * MIB, request_seconds: chosen.request * 1e-6, latency: usual.latency * chosen.latency };
  }

  // Build the panel in `host` from the data that Python wrote, and draw it.
  function build(host, data) {
    const start = data.defaults;
    const form = element("form", {});
    const libraries = Object.keys(data.policies).filter((name) => data.policies[name].kind === "horovod");
    const preset = () => ({
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
    SLIDERS.forEach(([name, label, min, max, step]) => {
      const input = element("input", { type: "range", name, min, max, step });
      form.append(element("label", {}, element("span", {}, `${label}: `, element("span", { "data-of": name })), input));
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
      SLIDERS.filter(([name]) => names.includes(name)).forEach(([name, , , , , , first]) => {
        form.elements[name].value = first(start, presets);
      });
      if (names.includes("cycle")) check.checked = presets.horovod.response_cache;
    }

    // What the controls say, as `scenario` takes it.
    function chosen() {
      const values = Object.fromEntries(SLIDERS.map(([name]) => [name, Number(form.elements[name].value)]));
      const { model, gpu, network, library } = form.elements;
      return { model: model.value, gpu: gpu.value, network: network.value, library: library.value,
        response_cache: check.checked, ...values };
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
      SLIDERS.forEach(([name, , , , , show]) => {
        form.querySelector(`[data-of="${name}"]`).textContent = show(Number(form.elements[name].value));
      });
    }

    form.addEventListener("input", (event) => {
      if (event.target.name === "network") adopt(["bandwidth"]);
      if (event.target.name === "library") adopt(["cycle", "fusion", "request"]);
      draw();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    adopt(SLIDERS.map(([name]) => name));
    draw();
  }

  const api = { simulate, scenario, build };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else root.dolbWhatif = api;
})(typeof window === "undefined" ? globalThis : window);
