"use strict";

/* Pictures on a canvas: an area with axes, and on it heat maps, lines, contours and points. Colours come from the style sheet. */
const ksosDrawing = (() => {
  const MARGIN = { left: 52, right: 12, top: 12, bottom: 40 };

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function channels(hex) {
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  }

  /** About n round numbers between low and high. */
  function ticks(low, high, n) {
    const raw = (high - low) / n;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= raw);
    const found = [];
    for (let t = Math.ceil(low / step); t * step <= high; t++) found.push(t * step);
    return found;
  }

  function shortNumber(value) {
    return String(Number(value.toPrecision(4)));
  }

  /** A rectangle of a canvas with a range per axis, in its own coordinates. */
  class Area {
    constructor(context, place, xRange, yRange) {
      Object.assign(this, { context, place, xRange, yRange });
    }

    x(value) {
      return this.place.x + ((value - this.xRange[0]) / (this.xRange[1] - this.xRange[0])) * this.place.width;
    }

    y(value) {
      return this.place.y + this.place.height - ((value - this.yRange[0]) / (this.yRange[1] - this.yRange[0])) * this.place.height;
    }

    /** The values at a pixel. */
    at(px, py) {
      const u = (px - this.place.x) / this.place.width;
      const v = (this.place.y + this.place.height - py) / this.place.height;
      return [this.xRange[0] + u * (this.xRange[1] - this.xRange[0]), this.yRange[0] + v * (this.yRange[1] - this.yRange[0])];
    }

    holds(px, py) {
      const p = this.place;
      return px >= p.x && px <= p.x + p.width && py >= p.y && py <= p.y + p.height;
    }

    clipped(draw) {
      const { context, place } = this;
      context.save();
      context.beginPath();
      context.rect(place.x, place.y, place.width, place.height);
      context.clip();
      draw(context);
      context.restore();
    }

    frame(xLabel, yLabel, withTicks = true) {
      const { context, place } = this;
      context.strokeStyle = color("--line");
      context.lineWidth = 1;
      context.strokeRect(place.x + 0.5, place.y + 0.5, place.width - 1, place.height - 1);
      context.fillStyle = color("--text");
      context.font = "12px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "top";
      const below = place.y + place.height;
      const [xLevels, yLevels] = this.levels || [];
      const marked = (range, n, levels) => (levels ? levels.map((text, k) => [k, text]) : ticks(...range, n).map((t) => [t, shortNumber(t)]));
      if (withTicks) {
        const wide = xLevels ? place.width / xLevels.length : place.width;
        for (const [t, text] of marked(this.xRange, Math.max(2, place.width / 80), xLevels)) context.fillText(text, this.x(t), below + 5, wide);
        context.textAlign = "right";
        context.textBaseline = "middle";
        for (const [t, text] of marked(this.yRange, Math.max(2, place.height / 60), yLevels)) context.fillText(text, place.x - 5, this.y(t), 34);
      }
      context.textAlign = "center";
      context.textBaseline = "bottom";
      context.fillText(xLabel, place.x + place.width / 2, below + (withTicks ? 37 : 17), place.width);
      if (!yLabel) return;
      context.save();
      context.translate(place.x - (withTicks ? 40 : 5), place.y + place.height / 2);
      context.rotate(-Math.PI / 2);
      context.fillText(yLabel, 0, 0, place.height);
      context.restore();
    }

    heat(values, nx, ny) {
      const low = channels(color("--ramp-low"));
      const high = channels(color("--ramp-high"));
      const most = values.reduce((a, b) => Math.max(a, b), 0) || 1;
      const image = new ImageData(nx, ny);
      for (let j = 0; j < ny; j++) {
        for (let i = 0; i < nx; i++) {
          const t = values[j * nx + i] / most;
          const at = 4 * ((ny - 1 - j) * nx + i);
          for (let k = 0; k < 3; k++) image.data[at + k] = low[k] + t * (high[k] - low[k]);
          image.data[at + 3] = 255;
        }
      }
      const small = document.createElement("canvas");
      small.width = nx;
      small.height = ny;
      small.getContext("2d").putImageData(image, 0, 0);
      // values belong to the middles of the pixels of the small picture, which reach half a step beyond the area
      const [dx, dy] = [this.place.width / (nx - 1), this.place.height / (ny - 1)];
      this.clipped((c) => c.drawImage(small, this.place.x - dx / 2, this.place.y - dy / 2, this.place.width + dx, this.place.height + dy));
    }

    line(xs, ys, name, width = 2) {
      this.clipped((c) => {
        c.strokeStyle = color(name);
        c.lineWidth = width;
        c.beginPath();
        for (let i = 0; i < xs.length; i++) c.lineTo(this.x(xs[i]), this.y(ys[i]));
        c.stroke();
      });
    }

    /** The lines {p = level}, cell by cell of the grid. */
    contour(values, xs, ys, level, name, dash) {
      const cut = (a, b, va, vb) => a + ((b - a) * (level - va)) / (vb - va);
      this.clipped((c) => {
        c.strokeStyle = color(name);
        c.lineWidth = 1.5;
        c.setLineDash(dash);
        c.beginPath();
        for (let j = 0; j + 1 < ys.length; j++) {
          for (let i = 0; i + 1 < xs.length; i++) {
            const at = j * xs.length + i;
            const [a, b, d, e] = [values[at], values[at + 1], values[at + xs.length], values[at + xs.length + 1]];
            const ends = [];
            if (a >= level !== b >= level) ends.push([cut(xs[i], xs[i + 1], a, b), ys[j]]);
            if (b >= level !== e >= level) ends.push([xs[i + 1], cut(ys[j], ys[j + 1], b, e)]);
            if (d >= level !== e >= level) ends.push([cut(xs[i], xs[i + 1], d, e), ys[j + 1]]);
            if (a >= level !== d >= level) ends.push([xs[i], cut(ys[j], ys[j + 1], a, d)]);
            for (let k = 0; k + 1 < ends.length; k += 2) {
              c.moveTo(this.x(ends[k][0]), this.y(ends[k][1]));
              c.lineTo(this.x(ends[k + 1][0]), this.y(ends[k + 1][1]));
            }
          }
        }
        c.stroke();
      });
    }

    /** Dots, rings or crosses: shapes differ as well as colors. */
    marks(points, name, shape) {
      this.clipped((c) => {
        c.fillStyle = c.strokeStyle = color(name);
        c.lineWidth = 1.2;
        for (const [vx, vy] of points) {
          const [x, y] = [this.x(vx), this.y(vy)];
          c.beginPath();
          if (shape === "cross") {
            c.moveTo(x - 3, y - 3);
            c.lineTo(x + 3, y + 3);
            c.moveTo(x + 3, y - 3);
            c.lineTo(x - 3, y + 3);
          } else c.arc(x, y, shape === "ring" ? 3.5 : 1.7, 0, 2 * Math.PI);
          if (shape === "dot") c.fill();
          else c.stroke();
        }
      });
    }

    /** Points of one feature, as strokes on the lower or upper edge. */
    rug(xs, name, up) {
      this.clipped((c) => {
        c.strokeStyle = color(name);
        c.lineWidth = 1;
        const from = up ? this.place.y : this.place.y + this.place.height;
        c.beginPath();
        for (const x of xs) {
          c.moveTo(this.x(x), from);
          c.lineTo(this.x(x), from + (up ? 9 : -9));
        }
        c.stroke();
      });
    }

    box([x0, x1], [y0, y1]) {
      this.clipped((c) => {
        c.strokeStyle = color("--box");
        c.lineWidth = 2;
        c.strokeRect(this.x(x0), this.y(y1), this.x(x1) - this.x(x0), this.y(y0) - this.y(y1));
      });
    }

    rule(value, vertical, name) {
      const p = this.place;
      this.clipped((c) => {
        c.strokeStyle = color(name);
        c.lineWidth = 1;
        c.setLineDash([4, 4]);
        c.beginPath();
        c.moveTo(vertical ? this.x(value) : p.x, vertical ? p.y : this.y(value));
        c.lineTo(vertical ? this.x(value) : p.x + p.width, vertical ? p.y + p.height : this.y(value));
        c.stroke();
      });
    }
  }

  /** The context of a canvas, cleared, sharp on every screen, with its size in CSS pixels. */
  function cleared(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = color("--ramp-low");
    context.fillRect(0, 0, width, height);
    return { context, width, height };
  }

  /** One area that fills a canvas but for its labels. */
  function whole(canvas, xRange, yRange) {
    const { context, width, height } = cleared(canvas);
    const place = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    return new Area(context, place, xRange, yRange);
  }

  /** The areas of a matrix of panels, the diagonal included: [[row, column, area], …] with column ≤ row. */
  function panels(canvas, ranges) {
    const { context, width, height } = cleared(canvas);
    const [n, edge] = [ranges.length, 22];
    const side = { width: (width - edge) / n, height: (height - edge) / n };
    const found = [];
    for (let row = 0; row < n; row++) {
      for (let column = 0; column <= row; column++) {
        const place = { x: edge + column * side.width + 2, y: row * side.height + 4, width: side.width - 6, height: side.height - 8 };
        found.push([row, column, new Area(context, place, ranges[column], ranges[row])]);
      }
    }
    return found;
  }

  return { whole, panels, shortNumber };
})();
