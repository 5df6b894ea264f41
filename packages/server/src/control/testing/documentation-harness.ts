/** A control in its own process that serves the real documentation. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { prepareHarness, waitFor, type ControlHarness } from './control-harness.ts';
import { makeOncePerRun } from './once-per-run.ts';
import { spawnControl, type SpawnedControl } from './spawn-control.ts';

const BUILDER = fileURLToPath(new URL('../../../../docs-site/src/write-site.ts', import.meta.url));
const BUILD_TIMEOUT_MS = 120_000;

export interface DocumentationHarness extends AsyncDisposable {
  harness: ControlHarness;
  spawned: SpawnedControl;
  /** Where the files of the documentation are. */
  directory: string;
}

/** Builds the documentation, as set-up does, and starts a control with it. */
export async function startDocumentationHarness(): Promise<DocumentationHarness> {
  await using stack = new AsyncDisposableStack();
  const shared = await makeOncePerRun('documentation', build);
  const directory = shared ?? (await mkdtemp(join(tmpdir(), 'cop-docs-')));
  if (shared === undefined) {
    stack.defer(() => rm(directory, { recursive: true, force: true }));
    await build(directory);
  }
  const harness = stack.use(await prepareHarness());
  await harness.runner.start();
  const spawned = await spawnControl(
    { ...harness.config, documentationDir: directory },
    { onLog: (line) => harness.logLines.push(line) },
  );
  harness.spawned = spawned;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  const owned = stack.move();
  return { harness, spawned, directory, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function build(directory: string): Promise<void> {
  await promisify(execFile)(process.execPath, [BUILDER, directory], { timeout: BUILD_TIMEOUT_MS });
}
