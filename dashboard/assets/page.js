// The page: reads snapshots from an event stream and shows them. Every text goes through textContent.
"use strict";
(() => {
  const KEPT = 900;
  // The places of a second in its list; `Second::write` writes them.
  const AT = 0, MAX = 1, BUSY = 2, OPEN = 4, CONNECTING = 5, FULL = 6, WAIT_CONNECT = 7, WAIT_PAUSE = 8,
    WAIT_WRITERS = 9, CHECKOUTS = 12, STATEMENTS = 13, FAILED = 14, P95 = 17;
  const SVG = "http://www.w3.org/2000/svg";
  const $ = (id) => document.getElementById(id);

  let seconds = [];
  let range = 60;
  // Until somebody chooses, the range grows with the history.
  let chosen = false;
  let paused = false;
  let latest = null;
  let lastMessage = 0;
  let level = "";

  // ---- texts

  const setText = (node, value) => {
    if (node.textContent !== value) node.textContent = value;
  };
  const setAttribute = (node, name, value) => {
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  };
  const make = (tag, className) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    return node;
  };
  const thousands = (n) => Math.round(n).toLocaleString("en");
  const rate = (n) => (n > 0 && n < 9.95 ? n.toFixed(1) : thousands(n));
  const duration = (ms) => {
    if (ms <= 0) return "0 ms";
    if (ms < 1) return `${Math.max(1, Math.round(ms * 1000))} µs`;
    if (ms < 10) return `${ms.toFixed(1)} ms`;
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
    if (ms < 60000) return `${Math.round(ms / 1000)} s`;
    const s = Math.floor(ms / 1000);
    if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
    return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  };
  const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

  // Makes `parent` have one child for each item. Children are reused, so that a selection survives and memory stays.
  const fill = (parent, items, create, update) => {
    while (parent.children.length > items.length) parent.lastElementChild.remove();
    items.forEach((item, at) => {
      let child = parent.children[at];
      if (!child) {
        child = create();
        parent.append(child);
      }
      update(child, item);
    });
  };

  // ---- the first screen

  const showDiagnosis = (now) => {
    const { diagnosis, status } = now;
    setAttribute($("diagnosis"), "data-level", diagnosis.level);
    setText($("sentence"), diagnosis.text);
    if (level !== diagnosis.level) {
      level = diagnosis.level;
      setText($("announcer"), `${level === "ok" ? "Healthy" : level === "bad" ? "Problem" : "Warning"}: ${diagnosis.text}`);
    }
    const mark = level === "bad" ? "✕ " : level === "warning" ? "! " : "";
    setText(document.querySelector("title"), `${mark}${now.name} · Cenote`);
    const shown = Math.min(status.max, 60);
    const scale = shown / Math.max(1, status.max);
    const states = [];
    for (const [state, count] of [["active", status.active], ["creating", status.creating], ["idle", status.idle]]) {
      const blocks = count > 0 ? Math.max(1, Math.round(count * scale)) : 0;
      for (let at = 0; at < blocks && states.length < shown; at++) states.push(state);
    }
    while (states.length < shown) states.push("free");
    fill($("slots"), states, () => make("i"), (node, state) => setAttribute(node, "data-s", state));
    setAttribute($("slots"), "aria-label",
      `${status.active} of ${status.max} connections in use, ${status.idle} idle, ${status.creating} being opened`);
    setText($("f-active"), `${status.active} of ${status.max}`);
    setText($("f-waiting"), thousands(status.waiting));
    setText($("f-oldest"), status.waiting ? duration(status.oldest) : "–");
    const last = seconds[seconds.length - 1];
    setText($("f-checkouts"), last ? `${rate(last[CHECKOUTS])} /s` : "–");
    setText($("f-statements"), last ? `${rate(last[STATEMENTS])} /s` : "–");
    setText($("f-p95"), last && last[P95] > 0 ? duration(last[P95]) : "–");
  };

  const lineCell = () => {
    const cell = make("td", "code"), both = make("div", "line");
    both.append(make("span"), make("span", "times"));
    cell.append(both);
    return cell;
  };
  // A path may break after a slash.
  const setPath = (node, path) => {
    if (node.textContent === path) return;
    const parts = path.split("/");
    node.replaceChildren(...parts.flatMap((part, at) => (at < parts.length - 1 ? [`${part}/`, make("wbr")] : [part])));
  };
  const updateLine = (cell, line, count, urgent) => {
    const [name, times] = cell.firstElementChild.children;
    setPath(name, line);
    times.hidden = count < 2;
    times.className = urgent ? "times" : "times calm";
    setText(times, `× ${thousands(count)}`);
  };

  const showHolders = (now) => {
    fill($("holders").tBodies[0], now.holders, () => {
      const row = make("tr");
      const statement = make("td");
      statement.append(make("span", "code"), make("span", "under code"), make("span", "under"));
      row.append(lineCell(), make("td"), statement, make("td", "right"));
      return row;
    }, (row, holder) => {
      const [line, pin, statement, held] = row.children;
      updateLine(line, holder.line, holder.count, holder.stuck || now.status.waiting > 0);
      setText(pin, holder.purpose);
      const [summary, text, state] = statement.children;
      setText(summary, holder.statement || "–");
      text.hidden = !holder.text || holder.text === holder.statement;
      setText(text, holder.text || "");
      state.hidden = !holder.statement;
      setText(state, holder.running ? `running for ${duration(holder.age)}` : `idle, sent ${duration(holder.age || 0)} ago`);
      setText(held, duration(holder.oldest));
      held.className = holder.stuck ? "right long" : "right";
    });
    $("holders").hidden = !now.holders.length;
    $("no-holders").hidden = now.holders.length > 0;
    $("more-holders").hidden = !now.moreHolders;
    setText($("more-holders"), `and ${thousands(now.moreHolders)} more connections at other lines`);
    const { shared } = now;
    $("shared").hidden = !shared;
    if (shared) {
      setText($("shared"), `Shared connections: ${thousands(shared.connections)}, reads in flight: ${thousands(shared.inFlight)}, ` +
        `so far: ${thousands(shared.reads)}`);
    }
  };

  // Each server has a name, a state with a mark, and figures with the names of their columns.
  const showTable = (id, servers, state, figures) => {
    $(id).hidden = !servers.length;
    fill($(id).tBodies[0], servers, () => {
      const row = make("tr"), cell = make("td");
      cell.append(make("span", "state"));
      row.append(make("td", "code"), cell, ...figures.map(([name]) => {
        const figure = make("td", "right");
        figure.dataset.name = name;
        return figure;
      }));
      return row;
    }, (row, server) => {
      const [name, cell, ...cells] = row.children;
      setText(name, server.name);
      setText(cell.firstElementChild, server[state]);
      setAttribute(cell.firstElementChild, "data-mark", server.mark);
      cells.forEach((figure, at) => setText(figure, figures[at][1](server)));
    });
  };
  const orDash = (ms) => (ms === null ? "–" : duration(ms));
  const since = ["For", (server) => orDash(server.since)];
  const connections = ["Connections", (server) => thousands(server.connections)];
  const HOST = [since, connections, ["Used", (host) => (host.usable ? "yes" : "no")], ["Retired", (host) => thousands(host.retired)]];
  const REPLICA = [since, connections, ["Reads", (replica) => thousands(replica.reads)],
    ["Lag", (replica) => orDash(replica.lag)]];
  const showServers = ({ hosts = [], replicas = [], primaryReads }) => {
    $("servers").hidden = !hosts.length && !replicas.length;
    showTable("hosts", hosts, "role", HOST);
    showTable("replicas", replicas, "state", REPLICA);
    $("primary-reads").hidden = !primaryReads;
    setText($("primary-reads"), primaryReads || "");
  };

  const showQueue = (now) => {
    fill($("queue").tBodies[0], now.queue, () => {
      const row = make("tr");
      row.append(lineCell(), make("td"), make("td", "right"));
      return row;
    }, (row, call) => {
      const [line, reason, oldest] = row.children;
      updateLine(line, call.line, call.count, true);
      setText(reason, call.reason);
      setText(oldest, duration(call.oldest));
    });
    const refused = now.status.breaker === "open";
    $("queue").hidden = !now.queue.length;
    $("no-queue").hidden = now.queue.length > 0;
    setText($("no-queue"), refused ? "Nobody waits: the open breaker refuses every call." : "Nobody waits.");
    $("more-queue").hidden = !now.moreQueued;
    setText($("more-queue"), `and ${thousands(now.moreQueued)} more calls at other lines`);
  };

  // ---- charts

  const HEIGHT = 132, WIDTH = 600;
  const svg = (tag, className) => {
    const node = document.createElementNS(SVG, tag);
    if (className) node.setAttribute("class", className);
    return node;
  };

  // A chart of series: `areas` are stacked, `lines` are not.
  class Chart {
    constructor(id, label, { areas = [], lines = [], format, least = 1 }) {
      Object.assign(this, { areas, lines, format, least, hovered: null });
      const root = $(id);
      this.svg = svg("svg");
      this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
      this.svg.setAttribute("preserveAspectRatio", "none");
      this.svg.setAttribute("role", "img");
      this.svg.setAttribute("aria-label", label);
      for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) {
        const grid = svg("line", "grid");
        for (const [name, value] of [["x1", 0], ["x2", WIDTH], ["y1", y], ["y2", y]]) grid.setAttribute(name, value);
        this.svg.append(grid);
      }
      const paths = (series, kind) => series.map((one) => {
        const path = svg("path", `${one.style} ${kind}${one.dashed ? " dashed" : ""}`);
        this.svg.append(path);
        return path;
      });
      this.areaPaths = paths(areas, "area");
      this.linePaths = paths(lines, "stroke");
      this.cross = svg("line", "cross");
      this.cross.setAttribute("y1", 0);
      this.cross.setAttribute("y2", HEIGHT);
      this.cross.setAttribute("visibility", "hidden");
      this.svg.append(this.cross);
      this.top = make("span", "top-label");
      this.middle = make("span", "mid-label");
      const axis = make("div", "axis");
      this.from = make("span");
      this.to = make("span");
      axis.append(this.from, this.to);
      this.legend = make("div", "legend");
      this.values = [...areas, ...lines].map((one) => {
        const entry = make("span"), swatch = make("i", one.style), value = make("b");
        const name = make("span");
        name.textContent = `${one.name} `;
        entry.append(swatch, name, value);
        this.legend.append(entry);
        return value;
      });
      root.append(this.svg, this.top, this.middle, axis, this.legend);
      this.svg.addEventListener("pointermove", (event) => {
        const box = this.svg.getBoundingClientRect();
        this.hovered = (event.clientX - box.left) / Math.max(1, box.width);
        this.draw();
      });
      this.svg.addEventListener("pointerleave", () => {
        this.hovered = null;
        this.draw();
      });
    }

    draw() {
      const end = seconds.length ? seconds[seconds.length - 1][AT] : 0;
      const shown = seconds.filter((second) => second[AT] > end - range);
      const x = (second) => (1 - (end - second[AT]) / range) * WIDTH;
      const stack = shown.map((second) => {
        let sum = 0;
        return this.areas.map((one) => (sum += one.value(second)));
      });
      let most = this.least;
      shown.forEach((second, at) => {
        if (stack[at].length) most = Math.max(most, stack[at][stack[at].length - 1]);
        for (const one of this.lines) most = Math.max(most, one.value(second) || 0);
      });
      const top = nice(most);
      const y = (value) => HEIGHT - (value / top) * (HEIGHT - 2);
      const point = (second, value) => `${x(second).toFixed(1)} ${y(value).toFixed(1)}`;
      this.areaPaths.forEach((path, at) => {
        const upper = shown.map((second, n) => point(second, stack[n][at]));
        const lower = shown.map((second, n) => point(second, at ? stack[n][at - 1] : 0)).reverse();
        const empty = !stack.some((values) => values[at] > (at ? values[at - 1] : 0));
        path.setAttribute("d", empty || upper.length < 2 ? "" : `M${upper.join("L")}L${lower.join("L")}Z`);
      });
      this.linePaths.forEach((path, at) => {
        // A second without a value is a gap.
        let d = "", pen = "M";
        for (const second of shown) {
          const value = this.lines[at].value(second);
          if (value === null) {
            pen = "M";
            continue;
          }
          d += `${pen}${point(second, value)}${pen === "M" ? `h0.01` : ""}`;
          pen = "L";
        }
        path.setAttribute("d", d);
      });
      setText(this.top, this.format(top));
      setText(this.middle, this.format(top / 2));
      let told = shown[shown.length - 1];
      if (this.hovered !== null && shown.length) {
        const time = end - range + this.hovered * range;
        told = shown.reduce((a, b) => (Math.abs(b[AT] - time) < Math.abs(a[AT] - time) ? b : a));
        for (const name of ["x1", "x2"]) this.cross.setAttribute(name, x(told).toFixed(1));
      }
      this.cross.setAttribute("visibility", this.hovered !== null && told ? "visible" : "hidden");
      setText(this.from, `${range / 60} min ago`);
      setText(this.to, this.hovered !== null && told ? clock(told[AT] * 1000) : "now");
      [...this.areas, ...this.lines].forEach((one, at) => {
        const value = told ? one.value(told) : null;
        setText(this.values[at], value === null ? "–" : this.format(value));
      });
    }
  }

  // The next round number.
  const nice = (value) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)));
    return [1, 2, 4, 5, 10].map((n) => n * power).find((n) => n >= value - 1e-9) || 10 * power;
  };
  const few = (value) => (value >= 10 || Number.isInteger(value) ? thousands(value) : value.toFixed(1));

  const charts = [
    new Chart("c-connections", "Connections over time", {
      areas: [
        { name: "in use", style: "s-busy", value: (s) => s[BUSY] },
        { name: "connecting", style: "s-connecting", value: (s) => s[CONNECTING] },
        { name: "idle", style: "s-open", value: (s) => Math.max(0, s[OPEN] - s[BUSY]) },
      ],
      lines: [{ name: "max", style: "s-max", dashed: true, value: (s) => s[MAX] }],
      format: few,
    }),
    new Chart("c-waits", "Waiting calls by cause over time", {
      areas: [
        { name: "all in use", style: "s-full", value: (s) => s[FULL] },
        { name: "connecting", style: "s-connecting", value: (s) => s[WAIT_CONNECT] },
        { name: "pause after failure", style: "s-pause", value: (s) => s[WAIT_PAUSE] },
        { name: "writer queue", style: "s-writers", value: (s) => s[WAIT_WRITERS] },
      ],
      format: few,
      least: 2,
    }),
    new Chart("c-throughput", "Statements a second over time", {
      areas: [
        { name: "succeeded", style: "s-busy", value: (s) => s[STATEMENTS] },
        { name: "failed", style: "s-full", value: (s) => s[FAILED] },
      ],
      format: rate,
    }),
    new Chart("c-latency", "Statement time over time", {
      lines: [{ name: "95 % within", style: "s-latency", value: (s) => (s[P95] > 0 ? s[P95] : null) }],
      format: duration,
      least: 0.1,
    }),
  ];

  const setRange = (wanted) => {
    range = wanted;
    for (const button of document.querySelectorAll("[data-range]")) {
      setAttribute(button, "aria-pressed", String(Number(button.dataset.range) === wanted));
    }
  };

  // ---- below

  const showBars = (list, items, other, name) => {
    const total = items.reduce((sum, item) => sum + item.ms, other) || 1;
    const shown = other > 0 ? [...items, { [name]: "all others", ms: other }] : items;
    const most = shown.reduce((max, item) => Math.max(max, item.ms), 1);
    fill($(list), shown, () => {
      const row = make("li"), track = make("div", "track");
      const title = make("div");
      title.append(make("span", "code"), make("span", "under code"));
      track.append(make("i"));
      row.append(title, make("span", "share"), track);
      return row;
    }, (row, item) => {
      const [title, share, track] = row.children;
      setText(title.children[0], item[name]);
      title.children[1].hidden = !item.text || item.text === item[name];
      setText(title.children[1], item.text || "");
      setText(share, `${duration(item.ms)} · ${Math.round((100 * item.ms) / total)} %`);
      track.children[0].style.width = `${(100 * item.ms) / most}%`;
    });
    $(`no-${list}`).hidden = shown.length > 0;
  };

  const cells = (row, values) => fill(row, values, () => make("td", row.children.length ? "right" : ""), setText);
  const showTables = (now) => {
    fill($("errors").tBodies[0], now.errors, () => make("tr"), (row, error) =>
      cells(row, [error.what, thousands(error.recent), thousands(error.total)]));
    const names = [["statements", "Statements"], ["failed", "Failed ones"], ["waitQueue", "Wait: queue"],
      ["waitConnect", "Wait: connect"], ["waitCheck", "Wait: check"], ["connect", "Connects"], ["hold", "Holds"]];
    fill($("timings").tBodies[0], names, () => make("tr"), (row, [key, name]) => {
      const times = now.timings[key];
      const show = (ms) => (times.count ? duration(ms) : "–");
      cells(row, [name, thousands(times.count), show(times.p50), show(times.p99), show(times.max)]);
    });
  };

  const showRest = (now) => {
    setText($("sizing"), now.sizing.text);
    setText($("arithmetic"), now.sizing.arithmetic);
    const breaker = now.status.breaker;
    setText($("breaker"), `Breaker ${breaker}`);
    setAttribute($("breaker"), "data-level", breaker === "open" ? "bad" : breaker === "closed" ? "ok" : "warning");
    $("connect-error").hidden = !now.connectError;
    setText($("connect-error"), now.connectError ? `Last connect failed: ${now.connectError}` : "");
    fill($("events"), now.events, () => {
      const row = make("li");
      row.append(make("time"), make("span", "what"), make("span", "note"));
      return row;
    }, (row, event) => {
      const [time, what, count] = row.children;
      setAttribute(row, "data-level", event.level);
      setText(time, clock(event.at));
      setText(what, event.text);
      setText(count, event.count > 1 ? `× ${thousands(event.count)}` : "");
    });
    $("no-events").hidden = now.events.length > 0;
  };

  const show = () => {
    const now = latest;
    if (!now || paused) return;
    setText($("name"), now.name);
    $("driver").hidden = now.driver === now.name;
    setText($("driver"), now.driver);
    showDiagnosis(now);
    showHolders(now);
    showQueue(now);
    showServers(now);
    if (!chosen) setRange(seconds.length <= 60 ? 60 : 300);
    for (const chart of charts) chart.draw();
    showBars("lines", now.lines, now.otherLines, "line");
    showBars("statements", now.statements, now.otherStatements, "summary");
    showTables(now);
    showRest(now);
    document.documentElement.dataset.seconds = String(seconds.length);
  };

  // ---- the stream

  let stream = null;
  const open = () => {
    stream = new EventSource("?events");
    stream.onmessage = (message) => {
      const now = JSON.parse(message.data);
      seconds = (now.full ? now.seconds : seconds.concat(now.seconds)).slice(-KEPT);
      now.seconds = null;
      latest = now;
      lastMessage = Date.now();
      showLive();
      show();
    };
    stream.onerror = () => {
      showLive();
      // A browser does not repeat a request that was refused.
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => stream.readyState === EventSource.CLOSED && open(), 2000);
    };
  };
  const showLive = () => {
    const age = Date.now() - lastMessage;
    const lost = lastMessage > 0 && age > 4000;
    const state = paused ? "Paused" : lost ? `No answer for ${duration(age)}` : lastMessage ? "Live" : "Connecting";
    setText($("live"), state);
    setAttribute($("dot"), "data-on", paused ? "" : lost ? "lost" : "yes");
    if (paused || !lastMessage) $("dot").removeAttribute("data-on");
  };
  // A page that nobody sees costs the program nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream.close();
    else if (stream.readyState === EventSource.CLOSED) open();
  });
  setInterval(showLive, 1000);

  // ---- buttons

  $("pause").addEventListener("click", () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", String(paused));
    setText($("pause"), paused ? "Resume" : "Pause");
    showLive();
    show();
  });
  for (const button of document.querySelectorAll("[data-range]")) {
    button.addEventListener("click", () => {
      chosen = true;
      setRange(Number(button.dataset.range));
      for (const chart of charts) chart.draw();
    });
  }
  $("incident").addEventListener("click", async () => {
    const area = $("incident-text");
    area.hidden = false;
    try {
      const answer = await fetch("?incident.txt");
      area.value = answer.ok ? await answer.text() : `no text: the program answered ${answer.status}`;
    } catch {
      area.value = "no text: the program does not answer";
    }
    $("copy").hidden = false;
    setText($("incident"), "Write again");
  });
  $("copy").addEventListener("click", async () => {
    const area = $("incident-text");
    area.select();
    try {
      await navigator.clipboard.writeText(area.value);
      setText($("copy"), "Copied");
    } catch {
      // Without a secure context: the text is selected, and the keyboard copies it.
      setText($("copy"), "Selected: press Ctrl-C");
    }
    setTimeout(() => setText($("copy"), "Copy"), 3000);
  });

  open();
})();
