/** `npm test`: runs set-up for the tests, then every suite, and prints the totals in the last line. */
import { parseArgs } from 'node:util';
import { runChecks } from './check/checks.mjs';
import { runMain } from './setup/entry.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';
import { findTestFile, runChosen } from './test/chosen-files.mjs';
import { compileService } from './test/jobs/compile-cache.mjs';
import { addCounts, NOTHING } from './test/results/counts.mjs';
import { keepTimes, readRecordedTimes, readTimes, writeLastTimes } from './test/results/file-times.mjs';
import { withRunDirectory } from './test/jobs/run-directory.mjs';
import { BUDGET_FILE, formatTotal, readBudget, runSuites } from './test/run-suites.mjs';
import { stress } from './test/stress.mjs';
import { SUITES } from './test/suites.mjs';
import { chooseTurn, describeTurn, takeTurn } from './test/turns.mjs';

const USAGE = `npm test -- [options] [FILE…]

Runs set-up for the tests, then every suite, or only the given test files. The last line has the totals.

  --only SUITE      one of ${SUITES.map((suite) => suite.name).join(', ')}; may be repeated
  --check           also runs the checks of npm run check, and counts each of them
  --budget          fails if the suites, without set-up and checks, take longer than ${BUDGET_FILE} allows
  --turns           leaves out the slow files whose turn is on another day, and lists them
  --stress FILE     runs this test file alone, 10 times or --rounds N, while all processors are busy
  --record-times    saves how long each file took, for the order of later runs
`;

/** @param {string[]} args */
function parseOptions(args) {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      only: { type: 'string', multiple: true, default: [] },
      check: { type: 'boolean', default: false },
      budget: { type: 'boolean', default: false },
      turns: { type: 'boolean', default: false },
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
    throw new SetupError(`--rounds ${values.rounds}: this is not a number of rounds`, {
      remedy: 'use a whole number of 1 or more',
    });
  return {
    files: positionals.map((given) => findTestFile(given)),
    stressed: values.stress === undefined ? undefined : findTestFile(values.stress),
    rounds,
    check: values.check,
    budget: values.budget ? readBudget() : undefined,
    turn: values.turns ? readTurn() : undefined,
    recordTimes: values['record-times'],
    suites: SUITES.filter((suite) => values.only.length === 0 || values.only.includes(suite.name)),
  };
}

function readTurn() {
  return takeTurn(readRecordedTimes(), chooseTurn(process.env['COPPICE_TEST_TURN'], Date.now()));
}

await runMain(async (args) => {
  const options = parseOptions(args);
  const tools = await setUp({ tests: true });
  sayDone();
  const { files, stressed, rounds } = options;
  const total = await withRunDirectory(() => {
    if (stressed !== undefined) return stress({ file: stressed, rounds, tools });
    return files.length > 0 ? runChosen(files, tools) : runAll(options, tools);
  });
  process.stdout.write(`\n${formatTotal(total)}`);
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
}, USAGE);

/**
 * @param {ReturnType<typeof parseOptions>} options
 * @param {import('./setup/setup.mjs').SetupResult} tools
 */
async function runAll({ suites, check, budget, turn, recordTimes }, tools) {
  const checked = check ? await runChecks() : NOTHING;
  await compileService(tools);
  const times = readTimes();
  if (turn !== undefined) process.stdout.write(describeTurn(turn));
  const isLeftOut = (/** @type {string} */ file) => turn?.leftOut.has(file) ?? false;
  const jobs = (await Promise.all(suites.map(({ plan }) => plan(tools, times, isLeftOut)))).flat();
  const keep = recordTimes ? keepTimes : writeLastTimes;
  const counts = await runSuites(jobs, { keepTimes: keep, ...(budget === undefined ? {} : { budget }) });
  return addCounts(checked, counts);
}
