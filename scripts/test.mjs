/** `npm test`: set-up with what the tests need, then every suite, and at the end one line with the sum. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runChecks } from './check/checks.mjs';
import { runMain } from './setup/entry.mjs';
import { REPOSITORY } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';
import { withRunDirectory } from './test/run-directory.mjs';
import { BUDGET_FILE, formatTotal, runSuites } from './test/run-suites.mjs';
import { findStressedFile, stress } from './test/stress.mjs';
import { SUITES } from './test/suites.mjs';

const USAGE = `npm test -- [options]

Set-up with what the tests need, then every suite, and at the end one line with the sum.

  --only SUITE      one of ${SUITES.map((suite) => suite.name).join(', ')}; may be repeated
  --check           what npm run check does as well, each of its parts counted
  --budget          a suite that takes longer than ${BUDGET_FILE} allows is a failure
  --stress FILE     this test file alone, 10 times or --rounds N, while all processors are busy
  --record-times    keeps how long each file took, for the order of later runs
`;

/** @param {string[]} args */
function parseOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: 'string', multiple: true, default: [] },
      check: { type: 'boolean', default: false },
      budget: { type: 'boolean', default: false },
      stress: { type: 'string' },
      rounds: { type: 'string', default: '10' },
      'record-times': { type: 'boolean', default: false },
    },
  });
  const unknown = values.only.find((name) => !SUITES.some((suite) => suite.name === name));
  if (unknown !== undefined) {
    throw new SetupError(`--only ${unknown}: there is no such suite`, {
      remedy: `use one of ${SUITES.map((suite) => suite.name).join(', ')}`,
    });
  }
  const rounds = Number(values.rounds);
  if (!Number.isSafeInteger(rounds) || rounds < 1)
    throw new SetupError(`--rounds ${values.rounds}: that is no number of rounds`, {
      remedy: 'use 1 or more',
    });
  return {
    stressed: values.stress === undefined ? undefined : findStressedFile(values.stress),
    rounds,
    check: values.check,
    /** @type {Record<string, number>} seconds by suite */
    budget: values.budget ? JSON.parse(readFileSync(join(REPOSITORY, BUDGET_FILE), 'utf8')) : {},
    recordTimes: values['record-times'],
    suites: SUITES.filter((suite) => values.only.length === 0 || values.only.includes(suite.name)),
  };
}

await runMain(async (args) => {
  const options = parseOptions(args);
  const tools = await setUp({ tests: true });
  sayDone();
  const { stressed, rounds } = options;
  if (stressed !== undefined) {
    const counts = await withRunDirectory(() => stress({ file: stressed, rounds, tools }));
    process.stdout.write(`\n${formatTotal(counts)}`);
    return counts.failed === 0 ? 0 : 1;
  }
  const parts = options.suites.map(({ name, title, run }) => ({
    name,
    title,
    run: () => run(tools, options),
  }));
  if (options.check) parts.unshift({ name: 'check', title: 'format, lint, types', run: runChecks });
  const total = await withRunDirectory(() => runSuites(parts, options.budget));
  process.stdout.write(`\n${formatTotal(total)}`);
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
}, USAGE);
