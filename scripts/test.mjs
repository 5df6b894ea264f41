/**
 * `npm test`: set-up with what the tests need, then every suite, and at the end one line with the sum.
 *   npm test -- --only unit|postgres|e2e…   one suite (may be repeated)
 *   npm test -- --check              `npm run check` as well, each of its parts counted
 */
import { parseArgs } from 'node:util';
import { runChecks } from './check/checks.mjs';
import { runMain } from './setup/entry.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';
import { formatTotal, runSuites } from './test/run-suites.mjs';
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
  const parts = options.suites.map(({ name, title, run }) => ({ name, title, run: () => run(tools) }));
  if (options.check) parts.unshift({ name: 'check', title: 'format, lint, types', run: runChecks });
  const total = await runSuites(parts);
  process.stdout.write(`\n${formatTotal(total)}`);
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
});
