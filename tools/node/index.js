// tools/node/index.js
// A verb and its arguments -> the JSON that `python -m torchbolt VERB --json` answers with.
//
// Python does the work, in a process of its own; which Python is asked is said by TORCHBOLT_PYTHON, else by an activated
// virtual environment, else it is python3. Exit code 1 is an answer (results differ, a check failed), so it gives the
// JSON with `ok: false`; exit code 2 and whatever else ends the process is an error with Python's own words.

import { spawn } from "node:child_process";
import { join } from "node:path";

export const VERBS = ["probe", "benchmark", "explain", "diagnose", "estimate", "cache", "bisect"];

/** The Python that torchbolt is installed for. */
export function python(environment = process.env) {
  if (environment.TORCHBOLT_PYTHON) return environment.TORCHBOLT_PYTHON;
  if (environment.VIRTUAL_ENV) return join(environment.VIRTUAL_ENV, "bin", "python");
  return "python3";
}

export class TorchboltError extends Error {
  /** What Python wrote to its standard error, and its exit code (null: it was killed). */
  constructor(message, code, stderr) {
    super(message);
    this.name = "TorchboltError";
    this.code = code;
    this.stderr = stderr;
  }
}

/** {inputs: ["2x8"], seconds: 1, fullSize: true} -> --input 2x8 --seconds 1 --full-size */
export function flags(options = {}) {
  const out = [];
  for (const [name, value] of Object.entries(options)) {
    const flag = "--" + name.replace(/[A-Z]/g, (letter) => "-" + letter.toLowerCase());
    if (value === true) out.push(flag);
    else if (Array.isArray(value)) for (const one of value) out.push(flag, String(one));
    else if (value !== false && value !== undefined && value !== null) out.push(flag, String(value));
  }
  return out;
}

function execute(command, args, { cwd, env, stdio = ["ignore", "pipe", "pipe"] } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio });
    let stdout = "";
    let stderr = "";
    child.stdout?.setEncoding("utf8").on("data", (text) => (stdout += text));
    child.stderr?.setEncoding("utf8").on("data", (text) => (stderr += text));
    child.on("error", (error) =>
      reject(new TorchboltError(`cannot start ${command} (${error.message}); TORCHBOLT_PYTHON names another Python`, null, "")),
    );
    child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}

/** Any verb: its answer, with `ok`. `where` may have cwd and env. */
export async function call(verb, args = [], options = {}, where = {}) {
  const asked = ["-m", "torchbolt", verb, ...args, ...flags(options), "--json"];
  const { code, signal, stdout, stderr } = await execute(python({ ...process.env, ...where.env }), asked, where);
  if (code !== 0 && code !== 1) {
    const said = stderr.trim().split("\n").pop() || `ended by ${signal ?? "code " + code}`;
    throw new TorchboltError(said, code, stderr);
  }
  try {
    return { ...JSON.parse(stdout), ok: code === 0 };
  } catch {
    throw new TorchboltError(stderr.trim().split("\n").pop() || "no JSON came back", code, stderr);
  }
}

export const probe = (options, where) => call("probe", [], options, where);
export const benchmark = (target, options, where) => call("benchmark", [target], options, where);
export const explain = (target, options, where) => call("explain", [target], options, where);
export const diagnose = (target, options, where) => call("diagnose", [target], options, where);
export const estimate = (target, options, where) => call("estimate", [target], options, where);
export const bisect = (target, options, where) => call("bisect", [target], options, where);
export const cache = (action = "where", file, where) => call("cache", file ? [action, file] : [action], {}, where);

/** A program under torchbolt: {ok, code, stdout, stderr}. Its exit code is its own affair, so none is an error. */
export async function run(script, args = [], where = {}) {
  const { code, stdout, stderr } = await execute(python(where.env), ["-m", "torchbolt", "run", script, ...args], where);
  return { ok: code === 0, code, stdout, stderr };
}
