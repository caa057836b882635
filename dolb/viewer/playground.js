// The schedule of dolb/training/schedule.py, and a figure that draws it while its controls are moved. No request.
// Tests compare `learningRates` with Python's, and run what `lines` writes.
(function (root) {
  "use strict";

  const roundHalfToEven = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)); // as Python rounds

  // As a run deals its batches: a rest of one example joins the last of them.
  const updatesPerEpoch = (examples, size) => Math.floor(examples / size) + (examples % size > 1 ? 1 : 0);

  // The rate of an update, how many there are, and those between which the rate only rises or only falls.
  function schedule({ lr, lr_scaling, batch_size, base_batch_size, warmup_epochs, decay, epochs, steps_per_epoch }) {
    const [kind, argument] = decay.split(":");
    const total = epochs * steps_per_epoch, warmup = roundHalfToEven(warmup_epochs * steps_per_epoch);
    const ratio = batch_size / base_batch_size;
    const peak = lr * { none: 1, linear: ratio, sqrt: Math.sqrt(ratio) }[lr_scaling];
    const falls = kind === "step" ? argument.split(",").map((epoch) => epoch * steps_per_epoch) : [];
    const progress = (step) => Math.min(1, Math.max(0, step - warmup) / Math.max(1, total - warmup));
    const factor = {
      constant: () => 1,
      step: (step) => 0.1 ** falls.filter((fall) => step >= fall).length,
      cosine: (step) => 0.5 * (1 + Math.cos(Math.PI * progress(step))),
      polynomial: (step) => (1 - progress(step)) ** Number(argument || 1),
    }[kind];
    const rate = (step) => peak * (warmup > 0 ? Math.min(1, (step + 1) / warmup) : 1) * factor(step);
    return { total, rate, turns: [warmup, ...falls.map(Math.ceil), total].flatMap((step) => [step - 1, step]) };
  }

  function learningRates(options) {
    const { total, rate } = schedule(options);
    return Array.from({ length: total }, (_, step) => rate(step));
  }

  // The run that is chosen, and how to start it: by the command where it has options for all of it, else in Python.
  function lines(data, chosen) {
    const { start, defaults, command } = data, stretch = chosen.epochs / start.epochs;
    // The recipe stretches decay and warmup with the epochs, and gives a worker the same share of any batch.
    const stretched = start.decay.startsWith("step:")
      ? start.decay.replace(/[\d.]+/g, (epoch) => Number((epoch * stretch).toPrecision(6))) : start.decay;
    const beyond = ["lr_scaling", "base_batch_size"].filter((name) => chosen[name] !== start[name]);
    if (chosen.decay !== stretched) beyond.push(`decay other than ${stretched}`);
    if (chosen.examples !== data.examples) beyond.push("training examples");
    const share = Math.floor(start.batch_size / start.bn_workers);
    const run = { ...start, ...chosen, bn_workers: Math.max(1, Math.floor(chosen.batch_size / share)) };
    if (beyond.length) run.experiment = defaults.experiment;
    if (chosen.examples !== data.examples) run.data = "imagefolder:PATH";
    const told = Object.keys(defaults).filter((name) => run[name] !== defaults[name]);
    const python = `RunConfig(${told.map((name) => `${name}=${JSON.stringify(run[name])}`).join(", ")})`;
    const options = `--archs ${run.arch} --batch-sizes ${run.batch_size} --lrs ${run.lr} --warmups `
      + `${run.warmup_epochs / stretch} --seeds ${run.seed}${stretch === 1 ? "" : ` --epochs ${run.epochs}`}`;
    if (!beyond.length) return { run: python, how: "The same run as a command:", command: `${command} ${options}` };
    const how = `No option of ${command.split(" ", 3).join(" ")}: ${beyond.join("; ")}. In Python:`;
    const imports = "from dolb.training.config import RunConfig\nfrom dolb.training.sweep import sweep\n\n";
    return { run: python, how, command: `${imports}sweep([${python}], store="store")` };
  }

  const written = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });

  function draw(picture, { total, rate, turns }, epochs) {
    const width = picture.clientWidth || 640, height = picture.clientHeight || 272;
    const left = 56, right = width - 12, top = 26, bottom = height - 42;
    const even = Array.from({ length: 800 }, (_, index) => Math.floor((index * total) / 800));
    const steps = [...new Set([0, ...even, ...turns])].filter((step) => step >= 0 && step < total).sort((a, b) => a - b);
    const rates = steps.map(rate), most = Math.max(...rates);
    const x = (epoch) => left + ((right - left) * epoch) / epochs, y = (value) => bottom - ((bottom - top) * value) / most;
    const ticks = (end) => {
      const unit = 10 ** Math.floor(Math.log10(end / 4)), gap = unit * [1, 2, 5, 10].find((k) => 4.5 * k * unit >= end);
      return Array.from({ length: Math.floor(end / gap + 1e-9) + 1 }, (_, index) => index * gap);
    };
    const text = (at, label, anchor) => `<text x="${at[0]}" y="${at[1]}" text-anchor="${anchor}">${label}</text>`;
    const held = steps.map((step, i) => `V${y(rates[i]).toFixed(1)}H${x(((steps[i + 1] ?? total) * epochs) / total).toFixed(1)}`);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.innerHTML = ticks(most).map((tick) => `<line x1="${left}" x2="${right}" y1="${y(tick)}" y2="${y(tick)}"/>`
      + text([left - 6, y(tick) + 4], written(tick), "end")).join("")
      + ticks(epochs).map((tick) => text([x(tick), bottom + 17], written(tick), "middle")).join("")
      + text([0, 12], "learning rate of an update", "start") + text([right, height - 6], "training time, epochs", "end")
      + `<path d="M${left} ${y(rates[0]).toFixed(1)}${held.join("")}"/>`;
    const said = `First ${written(rates[0])}, peak ${written(most)}, last ${written(rates.at(-1))}`;
    picture.setAttribute("aria-label", `The learning rate over ${epochs} epochs. ${said}.`);
    return most;
  }

  // A line breaks between words alone, not after the hyphens of an option.
  const words = (text) => text.split(/(\s+)/).map((word) => (
    /\s/.test(word) ? word : Object.assign(document.createElement("span"), { textContent: word })));

  function copy(button) {
    const code = button.parentNode.querySelector("code"), done = () => { button.textContent = "Copied"; };
    const select = () => { getSelection().selectAllChildren(code); if (document.execCommand("copy")) done(); };
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select); else select();
  }

  function build(figure, data) {
    const form = figure.querySelector("form"), { start } = data, part = (name) => figure.querySelector(`.dp-${name}`);
    const control = form.elements, [kind, argument] = start.decay.split(":");
    for (const name of ["lr_scaling", "base_batch_size", "epochs"]) control[name].value = start[name];
    for (const name of ["batch_size", "lr"]) {
      Object.assign(control[name], { min: 0, max: data[name].length - 1, value: data[name].indexOf(start[name]) });
    }
    Object.assign(control.warmup_epochs, { max: start.epochs, value: start.warmup_epochs });
    control.examples.value = data.examples;
    control.decay.value = kind;
    if (argument) control[kind === "step" ? "milestones" : "power"].value = argument;

    // What the controls say, in the names of a run; what a choice makes idle is hidden.
    function chosen() {
      for (const [name, used] of [["milestones", "step"], ["power", "polynomial"]]) {
        control[name].disabled = control[name].parentNode.hidden = control.decay.value !== used;
      }
      control.base_batch_size.disabled = control.lr_scaling.value === "none";
      if (control.epochs.validity.valid) control.warmup_epochs.max = control.epochs.value;
      const milestones = control.milestones.value.split(",").map((epoch) => (epoch.trim() ? Number(epoch) : NaN));
      const rising = milestones.every((epoch, index) => epoch >= 0 && epoch < Infinity && !(epoch <= milestones[index - 1]));
      control.milestones.setCustomValidity(rising ? "" : "Accepted: rising epochs with commas, such as 30,60.");
      const decays = { step: `step:${milestones}`, polynomial: `polynomial:${Number(control.power.value)}` };
      const batch_size = data.batch_size[control.batch_size.value], examples = Number(control.examples.value);
      control.examples.setCustomValidity(examples < batch_size ? "A batch is larger than the training set." : "");
      return {
        batch_size, examples, lr: data.lr[control.lr.value], lr_scaling: control.lr_scaling.value,
        base_batch_size: Number(control.base_batch_size.disabled ? data.defaults.base_batch_size : control.base_batch_size.value),
        warmup_epochs: Number(control.warmup_epochs.value), epochs: Number(control.epochs.value),
        decay: decays[control.decay.value] || control.decay.value,
      };
    }

    function update() {
      const now = chosen(), wrong = [...control].find((one) => one.willValidate && !one.validity.valid);
      for (const name of ["batch_size", "lr", "warmup_epochs"]) {
        const value = now[name].toLocaleString("en", { maximumSignificantDigits: 6 });
        figure.querySelector(`[data-of="${name}"]`).textContent = value;
        control[name].setAttribute("aria-valuetext", value);
      }
      part("shown").hidden = Boolean(wrong);
      if (wrong) return void (part("said").textContent = wrong.validationMessage);
      const steps_per_epoch = updatesPerEpoch(now.examples, now.batch_size);
      const peak = draw(figure.querySelector("svg"), schedule({ ...now, steps_per_epoch }), now.epochs);
      part("said").textContent = `Peak rate ${written(peak)}, ${steps_per_epoch.toLocaleString("en")} updates an epoch.`;
      const { run, how, command } = lines(data, now);
      part("how").textContent = how;
      part("run").replaceChildren(...words(run));
      part("command").replaceChildren(...words(command));
    }

    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => copy(button)));
    new ResizeObserver(update).observe(figure.querySelector("svg"));
    update();
  }

  const api = { learningRates, updatesPerEpoch, lines, build };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  else root.dolbPlayground = api;
})(typeof window === "undefined" ? globalThis : window);
