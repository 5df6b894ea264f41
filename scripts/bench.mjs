/**
 * `npm run bench [name] [-- options]`: runs set-up, including the programs that the benchmarks compare with, then every
 * measurement, or `bench/<name>.ts` alone. Results are in bench/results.
 */
import { join } from 'node:path';
import { runMain } from './setup/entry.mjs';
import { REPOSITORY } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { runLive } from './test/jobs/live-command.mjs';
import { toolsEnvironment, unitEnvironment } from './test/jobs/tools-environment.mjs';

const TIMEOUT_MS = 2 * 60 * 60_000;

await runMain(async (args) => {
  const tools = await setUp({ tests: true, bench: true });
  sayDone();
  const name = args.find((arg) => !arg.startsWith('-')) ?? 'all';
  const options = args.filter((arg) => arg !== name);
  const script = join(REPOSITORY, 'bench', `${name}.ts`);
  const env = { ...toolsEnvironment(tools), ...unitEnvironment(tools) };
  return (await runLive(tools.node, [script, ...options], { timeoutMs: TIMEOUT_MS, env })).exitCode;
});
