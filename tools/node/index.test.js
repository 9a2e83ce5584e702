// tools/node/index.test.js
// Node --test, with a Python in place of torchbolt's that answers as asked, and with the real one
// where TORCHBOLT_PYTHON names it.

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { TorchboltError, benchmark, cache, explain, flags, probe, python, run } from "./index.js";

const folder = mkdtempSync(join(tmpdir(), "torchbolt-"));

/** A program in Python's place. */
function standIn(name, script) {
  const file = join(folder, name);
  writeFileSync(file, "#!/bin/sh\n" + script);
  chmodSync(file, 0o755);
  return { env: { TORCHBOLT_PYTHON: file } };
}

test("options become flags", () => {
  assert.deepEqual(flags({ input: ["2x8", "n=3"], fullSize: true, seconds: 0.5, dynamic: false, mode: null }), [
    "--input", "2x8", "--input", "n=3", "--full-size", "--seconds", "0.5",
  ]);
  assert.deepEqual(flags(), []);
});

test("which Python", () => {
  assert.equal(python({}), "python3");
  assert.equal(python({ VIRTUAL_ENV: "/v" }), "/v/bin/python");
  assert.equal(python({ VIRTUAL_ENV: "/v", TORCHBOLT_PYTHON: "/p" }), "/p");
});

test("arguments arrive, and JSON comes back", async () => {
  const echo = standIn("echo", `printf '{"arguments": "%s"}' "$*"\n`);
  const seen = await benchmark("net.py", { threads: 1 }, echo);
  assert.deepEqual(seen, { arguments: "-m torchbolt benchmark net.py --threads 1 --json", ok: true });
  assert.equal((await cache("export", "f", echo)).arguments, "-m torchbolt cache export f --json");
});

test("exit code 1 is an answer, 2 an error", async () => {
  assert.deepEqual(await probe({}, standIn("one", `echo '{"checks": {}}'; exit 1\n`)), { checks: {}, ok: false });
  const two = standIn("two", "echo 'torchbolt: no file' >&2; exit 2\n");
  await assert.rejects(explain("x.py", {}, two), (e) => e instanceof TorchboltError && e.code === 2 && e.message === "torchbolt: no file");
  await assert.rejects(probe({}, standIn("none", "echo 'No module named torchbolt' >&2; exit 1\n")), /No module named torchbolt/);
  await assert.rejects(probe({}, { env: { TORCHBOLT_PYTHON: "/absent" } }), /cannot start \/absent/);
});

test("a program's output and exit code", async () => {
  const seen = await run("train.py", ["--steps"], standIn("program", `echo "$*"; exit 3\n`));
  assert.deepEqual(seen, { ok: false, code: 3, stdout: "-m torchbolt run train.py --steps\n", stderr: "" });
});

test("torchbolt itself", { skip: !process.env.TORCHBOLT_PYTHON }, async () => {
  const seen = await probe({ noChecks: true });
  assert.ok(seen.ok && seen.torch.version === seen.torch.built_for);
});
