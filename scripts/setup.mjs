/** `npm run setup`: prepares this machine. It asks no questions and may be run again at any time. */
import { parseArgs } from 'node:util';
import { runMain } from './setup/entry.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';

await runMain(async (args) => {
  const { values } = parseArgs({
    args,
    options: {
      tests: { type: 'boolean', default: false },
      bench: { type: 'boolean', default: false },
      refresh: { type: 'boolean', default: false },
    },
  });
  await setUp({ ...values, registries: true });
  sayDone();
  return 0;
});
