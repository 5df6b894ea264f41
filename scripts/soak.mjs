/** `npm run soak -- --minutes N [--seed S]`: set-up, then random work and random deaths on a real service. */
import { join } from 'node:path';
import { runMain } from './setup/entry.mjs';
import { REPOSITORY } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { runLive } from './test/live-command.mjs';

const TIMEOUT_MS = 7 * 24 * 60 * 60_000;

await runMain(async (args) => {
  const { node } = await setUp({ tests: true });
  sayDone();
  return (await runLive(node, [join(REPOSITORY, 'e2e', 'soak.ts'), ...args], { timeoutMs: TIMEOUT_MS }))
    .exitCode;
});
