/**
 * `npm test`: set-up with what the tests need, then every suite, and at the end one line with the sum.
 *   npm test -- --only unit|go|e2e   one suite (may be repeated)
 *   npm test -- --check              `npm run check` as well, each of its parts counted
 */
import { parseArgs } from 'node:util';
import { runChecks } from './check/checks.mjs';
import { runMain } from './setup/entry.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';
import { addCounts, NOTHING } from './test/counts.mjs';
import { SUITES } from './test/suites.mjs';

/** @param {string[]} args */
function parseOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: 'string', multiple: true, default: [] },
      check: { type: 'boolean', default: false },
    },
  });
  const unknown = values.only.find((name) => !SUITES.some((suite) => suite.name === name));
  if (unknown !== undefined) {
    throw new SetupError(`--only ${unknown}: there is no such suite`, {
      remedy: `use one of ${SUITES.map((suite) => suite.name).join(', ')}`,
    });
  }
  return {
    check: values.check,
    suites: SUITES.filter((suite) => values.only.length === 0 || values.only.includes(suite.name)),
  };
}

await runMain(async (args) => {
  const options = parseOptions(args);
  const tools = await setUp({ tests: true });
  sayDone();
  let total = NOTHING;
  if (options.check) total = addCounts(total, await runChecks());
  for (const suite of options.suites) {
    process.stdout.write(`\n=== ${suite.name}: ${suite.title}\n`);
    total = addCounts(total, await suite.run(tools));
  }
  if (total.skipped > 0) process.stdout.write(`\n${total.skipped} skipped`);
  process.stdout.write(`\n${total.passed} passed, ${total.failed} failed\n`);
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
});
