/** A control in its own process that serves a site as set-up builds it. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { ControlConfig } from '../control-config.ts';
import { prepareHarness, waitFor, type ControlHarness } from './control-harness.ts';
import { makeOncePerRun } from './once-per-run.ts';
import { spawnControl, type SpawnedControl } from './controls/spawn-control.ts';

const BUILD_TIMEOUT_MS = 120_000;

export interface SiteHarness extends AsyncDisposable {
  harness: ControlHarness;
  spawned: SpawnedControl;
  /** Where the files of the site are. */
  directory: string;
}

export interface BuiltSite {
  name: string;
  /** Path of the program that builds it. */
  builder: string;
  setting: 'documentationDir' | 'dashboardDir';
}

/** Builds a site, as set-up does, and starts a control with it. */
export async function startSiteHarness({ name, builder, setting }: BuiltSite): Promise<SiteHarness> {
  await using stack = new AsyncDisposableStack();
  const build = async (directory: string): Promise<void> => {
    await promisify(execFile)(process.execPath, [builder, directory], { timeout: BUILD_TIMEOUT_MS });
  };
  const shared = await makeOncePerRun(name, build);
  const directory = shared ?? (await mkdtemp(join(tmpdir(), 'cop-site-')));
  if (shared === undefined) {
    stack.defer(() => rm(directory, { recursive: true, force: true }));
    await build(directory);
  }
  const harness = stack.use(await prepareHarness());
  await harness.runner.start();
  const config: ControlConfig = { ...harness.config, [setting]: directory };
  const spawned = await spawnControl(config, { onLog: (line) => harness.logLines.push(line) });
  harness.spawned = spawned;
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
  const owned = stack.move();
  return { harness, spawned, directory, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
