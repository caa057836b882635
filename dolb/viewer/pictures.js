// Images of examples, from sheets that load when they are first looked at. From disk too: they are drawn, never read.
(function (root) {
  "use strict";

  // Returns a function that gives the image of an example as a canvas, drawn on once its sheet is there, or null.
  function pictures({ sheets, perSheet, columns, width, height, examples }) {
    const tileOf = examples && new Map(examples.map((example, tile) => [example, tile]));
    const loaded = new Map();
    function load(number) {
      if (!loaded.has(number)) {
        const sheet = new Image();
        sheet.src = sheets[number];
        loaded.set(
          number,
          sheet.decode().then(
            () => sheet,
            () => null,
          ),
        );
      }
      return loaded.get(number);
    }
    return (example) => {
      const tile = tileOf ? tileOf.get(example) : example;
      if (!(tile >= 0)) return null;
      const image = document.createElement("canvas"),
        place = tile % perSheet;
      Object.assign(image, { className: "dv-image", width, height });
      load(Math.floor(tile / perSheet)).then((sheet) => {
        const left = (place % columns) * width,
          top = Math.floor(place / columns) * height;
        if (sheet) image.getContext("2d").drawImage(sheet, left, top, width, height, 0, 0, width, height);
      });
      return image;
    };
  }

  // Puts the image into the tooltip of a chart that names it: a field `example`.
  function inTooltips(data) {
    const picture = pictures(data);
    new MutationObserver(() => {
      const tooltip = document.getElementById("vg-tooltip-element");
      if (!tooltip || tooltip.querySelector("canvas")) return;
      const key = [...tooltip.querySelectorAll(".key")].find((cell) => cell.textContent.trim() === "example");
      const image = key && picture(Number(key.nextElementSibling.textContent.replace(/\D/g, "")));
      if (!image) return;
      Object.assign(image.style, { display: "block", width: "96px", height: "96px", imageRendering: "pixelated" });
      tooltip.prepend(image);
    }).observe(document.body, { childList: true, subtree: true });
  }

  root.dolbPictures = { pictures, inTooltips };
})(window);
