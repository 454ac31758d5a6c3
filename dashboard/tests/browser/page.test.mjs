// The page in Chromium. `../browser.rs` starts the program and this test; PAGE_URL is the program's address.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { after, afterEach, before, test } from "node:test";
import { chromium } from "playwright-core";

const BASE = process.env.PAGE_URL;
const SHOTS = process.env.PAGE_SHOTS;
const SECONDS = Number(process.env.PAGE_SECONDS || 10);
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SECRETS = ["hush-literal", "hush-param"];

mkdirSync(SHOTS, { recursive: true });
let browser;
const ask = async (what) => {
  const answer = await fetch(`${BASE}/do/${what}`);
  assert.equal(answer.status, 200, what);
  return answer.text();
};
const figures = async () => (await ask("figures")).split(" ").map(Number);

before(async () => {
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--js-flags=--expose-gc"] });
});
after(() => browser.close());
// Also after a failed test the next one finds an idle program.
afterEach(async () => {
  await ask("free");
  await ask("rearm");
});

// Opens a page that must report no error and load nothing from elsewhere.
const openPage = async (path, options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => request.url().startsWith(BASE) || wrong.push(`request to ${request.url()}`));
  await page.goto(`${BASE}/${path}`);
  await page.waitForFunction(() => Number(document.documentElement.dataset.seconds) > 0, null, { timeout: 15000 });
  return { page, done: async () => {
    assert.deepEqual(wrong, []);
    await context.close();
  } };
};
const textOf = (page, id) => page.locator(`#${id}`).textContent();
const until = (page, id, pattern) =>
  page.waitForFunction(([id, source]) => new RegExp(source).test(document.getElementById(id).textContent),
    [id, pattern.source], { timeout: 15000 });

test("an idle program is called healthy", async () => {
  const { page, done } = await openPage("main");
  await until(page, "sentence", /^Healthy: 0 of 4 connections in use/);
  assert.equal(await page.title(), "main · Cenote");
  assert.equal(await page.locator("#slots i").count(), 4);
  assert.ok(await page.locator("#no-holders").isVisible());
  assert.ok(await page.locator("#no-queue").isVisible());
  await until(page, "live", /^Live$/);
  await done();
});

test("the page works with and without a slash at the end", async () => {
  const { page, done } = await openPage("main/");
  await until(page, "sentence", /^Healthy/);
  await done();
});

test("held connections show their line, pin, age and statement", async () => {
  const { page, done } = await openPage("main");
  const line = await ask("hold?n=3");
  await until(page, "sentence", /Healthy: 3 of 4/);
  const row = page.locator("#holders tbody tr");
  assert.equal(await row.count(), 1, "three connections of one line are one row");
  const text = await row.textContent();
  for (const part of [line, "× 3", "transaction", "SELECT customer", "idle"]) assert.ok(text.includes(part), `${part} in ${text}`);
  assert.match(await row.locator("td").nth(3).textContent(), /^\d/);
  assert.equal(await page.locator('#slots i[data-s="active"]').count(), 3);
  await until(page, "lines", new RegExp(line));
  await done();
});

test("the queue grows and drains with its reason", async () => {
  const { page, done } = await openPage("main");
  const line = await ask("hold?n=4");
  await ask("wait?n=20");
  await until(page, "sentence", new RegExp(`^4 of 4 held by ${line}, 20 waiting, oldest `));
  await page.waitForFunction(() => document.getElementById("diagnosis").dataset.level === "bad");
  const row = page.locator("#queue tbody tr");
  assert.equal(await row.count(), 1);
  const text = await row.textContent();
  assert.ok(text.includes("× 20") && text.includes("all in use"), text);
  assert.match(text, /tests\/browser\.rs:\d+/);
  await until(page, "c-waits", /all in use 20/);
  await page.screenshot({ path: `${SHOTS}/queue.png`, fullPage: true });
  await ask("free");
  await until(page, "sentence", /^Healthy: 0 of 4/);
  assert.ok(await page.locator("#no-queue").isVisible());
  assert.match(await textOf(page, "f-waiting"), /^0$/);
  await done();
});

test("the breaker opens on a database that cannot be opened", async () => {
  const { page, done } = await openPage("broken");
  await until(page, "breaker", /^Breaker closed$/);
  await ask("fail?n=5");
  await until(page, "breaker", /^Breaker open$/);
  await until(page, "sentence", /^The circuit breaker is open: calls fail at once. The last connect failed: /);
  await until(page, "events", /Circuit breaker: closed → open/);
  await until(page, "connect-error", /Last connect failed/);
  assert.match(await textOf(page, "errors"), /Connects failed3/);
  await page.screenshot({ path: `${SHOTS}/breaker.png`, fullPage: true });
  await done();
});

test("statement texts are shown only where allowed, and masked", async () => {
  const line = await ask("hold?n=1");
  const hidden = await openPage("main"), shown = await openPage("texts");
  await until(hidden.page, "holders", /SELECT customer/);
  assert.ok(!(await textOf(hidden.page, "holders")).includes("WHERE"));
  await until(shown.page, "holders", /SELECT name FROM customer WHERE secret = \*\*\* AND id = \?/);
  await hidden.page.getByRole("button", { name: "Write" }).click();
  await hidden.page.waitForFunction(() => document.getElementById("incident-text").value.includes("Held"));
  const incident = await hidden.page.locator("#incident-text").inputValue();
  assert.ok(incident.includes(`1 × ${line}: transaction, oldest `), incident);
  assert.ok(!incident.includes("WHERE"), incident);
  for (const { page } of [hidden, shown]) {
    const all = (await page.content()) + incident;
    for (const secret of SECRETS) assert.ok(!all.includes(secret), secret);
  }
  await hidden.done();
  await shown.done();
});

test("nothing that the program sends contains a secret", async () => {
  const controller = new AbortController();
  const answer = await fetch(`${BASE}/texts?events`, { signal: controller.signal });
  const reader = answer.body.getReader();
  const { value } = await reader.read();
  controller.abort();
  const sent = Buffer.from(value).toString();
  assert.ok(sent.includes("data: {"), sent);
  for (const secret of SECRETS) assert.ok(!sent.includes(secret), secret);
});

test("SQL with HTML is text", async () => {
  await ask("hostile");
  for (const path of ["main", "texts"]) {
    const { page, done } = await openPage(path);
    await until(page, "holders", /SELECT/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("main img, main script").count(), 0);
    assert.match(await textOf(page, "holders"), /<img src=x onerror=/);
    await done();
  }
});

test("10,000 different statements leave page and program as they were", async () => {
  const { page, done } = await openPage("main");
  await ask("flood?n=500");
  const [, , before] = await figures();
  await ask("flood?n=10000");
  await page.waitForFunction(() => /Statements failed[\d,]*[1-9]/.test(document.getElementById("errors").textContent));
  const [, , after] = await figures();
  assert.ok(after - before < 8 * 1024, `${before} KiB, then ${after} KiB`);
  assert.ok((await page.locator("#statements li").count()) <= 11);
  assert.ok((await page.locator("*").count()) < 900);
  await done();
});

test("10,000 lines and 10,000 statements leave page and program as they were", async () => {
  await ask("crowd?n=1"); // makes the connections
  const { page, done } = await openPage("crowd");
  const [, , before] = await figures();
  await ask("crowd?n=20");
  await page.waitForFunction(() => /all others/.test(document.getElementById("lines").textContent));
  const [, , after] = await figures();
  assert.ok(after - before < 16 * 1024, `${before} KiB, then ${after} KiB`);
  for (const list of ["lines", "statements", "holders"]) {
    const shown = await page.locator(`#${list} li, #${list} tbody tr`).count();
    assert.ok(shown > 9 && shown <= 13, `${shown} in ${list}`);
  }
  assert.ok((await page.locator("*").count()) < 900);
  assert.equal(await page.locator("#lines b, #statements b, #holders b").count(), 0);
  await done();
});

test("viewers that never read do not disturb the others", async () => {
  const { host } = new URL(BASE);
  const [name, port] = host.split(":");
  const sockets = [];
  const [, , before] = await figures();
  for (let at = 0; at < 40; at++) {
    const socket = net.connect(Number(port), name);
    socket.on("error", () => {});
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.pause();
    socket.write(`GET /main?events HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    sockets.push(socket);
  }
  const { page, done } = await openPage("main");
  const start = Number(await page.evaluate(() => document.documentElement.dataset.seconds));
  await page.waitForFunction((start) => Number(document.documentElement.dataset.seconds) >= start + 3, start);
  const [, pages, after] = await figures();
  assert.ok(pages <= 16, `${pages} open pages`);
  assert.ok(after - before < 16 * 1024, `${before} KiB, then ${after} KiB`);
  sockets.forEach((socket) => socket.destroy());
  await done();
});

const LOOKS = [
  ["wide", { viewport: { width: 1280, height: 900 } }],
  ["wide-dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }],
  ["narrow", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true }],
  ["narrow-dark", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, colorScheme: "dark" }],
];
// Fails if axe finds something, or if the page scrolls sideways.
const looksGood = async (page, name) => {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] }));
  const violations = found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" | ")}`);
  assert.deepEqual(violations, [], name);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wider <= 0, `${name} scrolls sideways by ${wider} px`);
  await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true });
};

test("a handle with one host has no servers on its page", async () => {
  const { page, done } = await openPage("main");
  await until(page, "sentence", /^Healthy/);
  for (const id of ["servers", "hosts", "replicas", "primary-reads", "shared"]) {
    assert.ok(await page.locator(`#${id}`).isHidden(), id);
  }
  await done();
});

test("a shared connection is held by its reads", async () => {
  const { page, done } = await openPage("sharing");
  await until(page, "shared", /^Shared connections: 0, reads in flight: 0, so far: 0$/);
  await ask("share?n=1");
  await until(page, "holders", /shared by 6 reads/);
  await until(page, "shared", /^Shared connections: 1, reads in flight: 6, /);
  await page.screenshot({ path: `${SHOTS}/sharing.png`, fullPage: true });
  await ask("share?n=0");
  await until(page, "shared", /^Shared connections: 0, reads in flight: 0, so far: [1-9]/);
  await done();
});

test("servers show their roles, and a failover is an event", async () => {
  await ask("serve");
  const { page, done } = await openPage("cluster");
  const roles = (id) => page.locator(`#${id} tbody tr .state`).allTextContents();
  await until(page, "hosts", /primary/);
  assert.deepEqual(await roles("hosts"), ["primary", "standby", "standby"]);
  await until(page, "replicas", /gets reads.*gets reads/);
  assert.deepEqual(await roles("replicas"), ["no reads: a primary", "gets reads", "gets reads"]);
  await page.screenshot({ path: `${SHOTS}/servers.png`, fullPage: true });
  await ask("fail-over");
  await until(page, "events", /Failover: 127\.0\.0\.1:\d+ → 127\.0\.0\.1:\d+/);
  await until(page, "events", /Host 127\.0\.0\.1:\d+: primary → no answer/);
  await until(page, "hosts", /no answer/);
  await until(page, "replicas", /no reads: no answer/);
  const marks = page.locator("#hosts tbody tr .state").evaluateAll((all) => all.map((one) => one.dataset.mark).sort());
  assert.deepEqual(await marks, ["idle", "ok", "warning"]);
  await done();
  for (const [name, options] of LOOKS) {
    const { page, done } = await openPage("cluster", options);
    await until(page, "replicas", /no reads: no answer/);
    await looksGood(page, `servers-${name}`);
    await done();
  }
});

test("keyboard and contrast: axe finds nothing, wide, narrow and dark", async () => {
  await ask("hold?n=4");
  await ask("wait?n=7");
  for (const [name, options] of LOOKS) {
    const { page, done } = await openPage("texts", options);
    await until(page, "sentence", /7 waiting/);
    await looksGood(page, name);
    await done();
  }
  const { page, done } = await openPage("main");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "pause");
  await page.keyboard.press("Enter");
  await until(page, "live", /^Paused$/);
  await page.keyboard.press("Enter");
  await until(page, "live", /^Live$/);
  const reached = [];
  for (let at = 0; at < 12; at++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.textContent.trim()));
  }
  for (const button of ["1 min", "15 min", "Write"]) assert.ok(reached.includes(button), `${button} in ${reached}`);
  await done();
});

test(`1,000 checkouts a second for ${SECONDS} s: page and program stay as small`, { timeout: (SECONDS + 60) * 1000 }, async () => {
  const { page, done } = await openPage("main");
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const measure = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const of = (name) => metrics.find((metric) => metric.name === name).value;
    const [checkouts, , memory] = await figures();
    return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), memory, checkouts };
  };
  // Warm: caches, the stack of the load, the first events.
  await ask(`load?n=3`);
  const start = await measure();
  await ask(`load?n=${SECONDS}`);
  const end = await measure();
  const made = (end.checkouts - start.checkouts) / SECONDS;
  console.log(`checkouts a second ${made.toFixed(0)}, page heap ${(start.heap / 1024).toFixed(0)} → ${(end.heap / 1024).toFixed(0)} KiB, ` +
    `nodes ${start.nodes} → ${end.nodes}, program ${start.memory} → ${end.memory} KiB`);
  assert.ok(made > 700, `${made} checkouts a second`);
  // A second of the chart is a list of 18 numbers.
  assert.ok(end.heap - start.heap < 512 * 1024 + SECONDS * 600, "the page grew");
  assert.ok(end.nodes - start.nodes < 200, "the document grew");
  assert.ok(end.memory - start.memory < 4 * 1024, "the program grew");
  const last = await textOf(page, "f-checkouts");
  assert.match(last, /\/s$/);
  await done();
});

test("a page that gets no answer says so", async () => {
  const { page, done } = await openPage("texts");
  await until(page, "live", /^Live$/);
  await ask("close");
  await until(page, "live", /^No answer for \d/);
  await done();
});
