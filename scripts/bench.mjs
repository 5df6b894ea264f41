/** `npm run bench`: set-up with what the benchmark compares with, then every measurement; results in bench/results. */
import { join } from 'node:path';
import { runMain } from './setup/entry.mjs';
import { REPOSITORY } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { runLive } from './test/live-command.mjs';

const TIMEOUT_MS = 2 * 60 * 60_000;

await runMain(async (args) => {
  const { node } = await setUp({ tests: true, bench: true });
  sayDone();
  const bench = [join(REPOSITORY, 'bench', 'all.ts'), ...args];
  return (await runLive(node, bench, { timeoutMs: TIMEOUT_MS })).exitCode;
});
