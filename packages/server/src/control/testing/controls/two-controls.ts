/** Two controls that share a database, each with a runner of its own machine, or both without one. */
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
    await both.one.runner.start();
    await startShared(both.one);
    await both.other.runner.start();
    await both.startOther();
    return both;
  }

  /** Starts the first of them, which has no runner yet. */
  static async startWithoutRunners(limits: Partial<ControlLimits> = {}): Promise<TwoControls> {
    const url = await makeMigratedDatabase();
    const both = new TwoControls(await prepareOn(url, limits), await prepareOn(url, limits));
    await both.one.startControl(INTERNAL);
    return both;
  }

  /** Starts the other one, too. */
  async startOther(): Promise<void> {
    const [from, to] = [this.one, this.other].map(({ config }) => config.dataDir);
    await mkdir(to ?? '', { recursive: true });
    // What one seals, the other opens.
    await copyFile(join(from ?? '', MASTER_KEY_NAME), join(to ?? '', MASTER_KEY_NAME));
    await startShared(this.other);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.other[Symbol.asyncDispose]();
    await this.one[Symbol.asyncDispose]();
  }
}

async function startShared(harness: ControlHarness): Promise<void> {
  await harness.startControl(INTERNAL);
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
}
