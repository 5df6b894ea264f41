/**
 * Renders the chart with Helm's engine and decodes the manifests as types of the Kubernetes API (deploy/helm/check). The
 * result is stored, and the tests compare it with the chart: they need neither Helm nor these types, whose compilation
 * takes minutes.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CASES } from './deployment/cases.mjs';
import { CHART, CHECKER, describeSources, renderedPath } from './deployment/chart-files.mjs';
import { runMain } from './setup/entry.mjs';
import { findExecutable } from './setup/paths.mjs';
import { run } from './setup/run-command.mjs';

const TIMEOUT_MS = 30 * 60_000;

await runMain(async () => {
  const go = findExecutable('go') ?? '/usr/local/go/bin/go';
  const sources = await describeSources();
  for (const [name, values] of Object.entries(CASES)) {
    const { stdout } = await run(go, ['-C', CHECKER, 'run', '.', CHART, ...values], {
      step: `rendering the chart (${name})`,
      timeoutMs: TIMEOUT_MS,
    });
    const content = { sources, manifests: JSON.parse(stdout) };
    await mkdir(dirname(renderedPath(name)), { recursive: true });
    await writeFile(renderedPath(name), `${JSON.stringify(content, undefined, 1)}\n`);
    process.stdout.write(`rendered ${name}: ${content.manifests.length} manifests\n`);
  }
  return 0;
});
