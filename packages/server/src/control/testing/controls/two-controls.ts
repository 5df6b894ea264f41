/** Two controls that share a database, each with a runner of its own machine. */
import { copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ControlLimits } from '../../control-config.ts';
import { MASTER_KEY_NAME } from '../../secrets/master-key.ts';
import { prepareOn, waitFor, type ControlHarness } from '../control-harness.ts';
import { makeMigratedDatabase } from '../test-postgres.ts';

const INTERNAL = { internalListen: { host: '127.0.0.1', port: 0 } };

export class TwoControls implements AsyncDisposable {
  readonly one: ControlHarness;
  readonly other: ControlHarness;

  private constructor(one: ControlHarness, other: ControlHarness) {
    this.one = one;
    this.other = other;
  }

  static async start(limits: Partial<ControlLimits> = {}): Promise<TwoControls> {
    const url = await makeMigratedDatabase();
    const both = new TwoControls(await prepareOn(url, limits), await prepareOn(url, limits));
    both.other.runner.id = `runner-${'1'.repeat(32)}`;
    await startShared(both.one);
    const [from, to] = [both.one, both.other].map(({ config }) => config.dataDir);
    await mkdir(to ?? '', { recursive: true });
    // What one seals, the other opens.
    await copyFile(join(from ?? '', MASTER_KEY_NAME), join(to ?? '', MASTER_KEY_NAME));
    await startShared(both.other);
    return both;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.other[Symbol.asyncDispose]();
    await this.one[Symbol.asyncDispose]();
  }
}

async function startShared(harness: ControlHarness): Promise<void> {
  await harness.runner.start();
  await harness.startControl(INTERNAL);
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
}
