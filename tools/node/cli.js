#!/usr/bin/env node
// tools/node/cli.js
// `npx torchbolt VERB ...`: the command line of Python's torchbolt, as it is; answers are JSON, since programs ask here.

import { spawnSync } from "node:child_process";

import { VERBS, python } from "./index.js";

const given = process.argv.slice(2);
const wantsHelp = given.some((word) => word === "--help" || word === "-h");
const asked = VERBS.includes(given[0]) && !wantsHelp && !given.includes("--json") ? [...given, "--json"] : given;
const done = spawnSync(python(), ["-m", "torchbolt", ...asked], { stdio: "inherit" });
if (done.error) {
  console.error(`torchbolt: cannot start ${python()} (${done.error.message}); TORCHBOLT_PYTHON names another Python`);
  process.exit(2);
}
process.exit(done.status ?? 1);
