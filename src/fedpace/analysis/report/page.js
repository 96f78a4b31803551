// Draws every figure of the page when it comes near the screen, in the colours of the reader's screen.
(() => {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const config = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtons: [["toImage", "resetScale2d"]] };
  const figures = new Map(plots.map((plot) => [plot, JSON.parse(plot.querySelector("script").textContent)]));
  const drawn = new Set();
  let printing = false;

  // The palette's black line and dark texts would vanish on a dark screen.
  function lightened(data) {
    return JSON.stringify(data).replaceAll("#000000", "#ffffff").replaceAll("#333333", "#dde2e8");
  }

  function coloured(figure, plot) {
    const dark = prefersDark.matches && !printing;
    const layout = { ...figure.layout, font: { ...figure.layout.font, color: dark ? "#dde2e8" : "#333333" } };
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: dark ? "#262c34" : "#ffffff", bordercolor: "#999999" };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "#999999", activecolor: layout.font.color };
    if (layout.legend && plot.clientWidth < 720 && layout.legend.orientation !== "h") {
      layout.legend = { ...layout.legend, orientation: "h", x: 0, y: 1.01, yanchor: "bottom" };
    }
    return { data: dark ? JSON.parse(lightened(figure.data)) : figure.data, layout };
  }

  function draw(plot) {
    const { data, layout } = coloured(figures.get(plot), plot);
    if (!drawn.has(plot)) plot.replaceChildren();
    drawn.add(plot);
    return Plotly.react(plot, data, layout, config);
  }

  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        observer.unobserve(entry.target);
        if (!drawn.has(entry.target)) draw(entry.target);
      }
    },
    { rootMargin: "800px" },
  );
  plots.forEach((plot) => observer.observe(plot));

  const redraw = () => [...drawn].forEach(draw);
  prefersDark.addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    printing = true;
    document.documentElement.classList.add("printing");
    plots.forEach(draw);
    plots.forEach((plot) => Plotly.Plots.resize(plot));
  });
  addEventListener("afterprint", () => {
    printing = false;
    document.documentElement.classList.remove("printing");
    redraw();
    drawn.forEach((plot) => Plotly.Plots.resize(plot));
  });

  // One slider moves all matrices of its section to the same round.
  for (const slider of document.querySelectorAll(".slider")) {
    const [input, output, button] = ["input", "output", "button"].map((name) => slider.querySelector(name));
    const steps = [...slider.querySelectorAll("option")].map((option) => option.textContent);
    const matrices = [...slider.parentElement.querySelectorAll(".plot")];
    const show = () => {
      const step = steps[input.value];
      output.textContent = input.value === "0" ? step : `round ${step}`;
      for (const plot of matrices) {
        const figure = figures.get(plot);
        const frame = figure.frames.find(({ name }) => name === step);
        const { x, y } = figure.data[0];
        const nothing = { z: y.map(() => x.map(() => null)) };
        figure.data = [{ ...figure.data[0], ...(frame ? frame.data[0] : nothing) }];
        if (drawn.has(plot)) draw(plot);
      }
    };
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶";
    };
    input.addEventListener("input", () => {
      stop();
      show();
    });
    button.addEventListener("click", () => {
      if (timer) return stop();
      button.textContent = "❚❚";
      if (input.value === input.max) input.value = 0;
      timer = setInterval(() => {
        input.value = Number(input.value) + 1;
        show();
        if (input.value === input.max) stop();
      }, 350);
    });
  }
})();
