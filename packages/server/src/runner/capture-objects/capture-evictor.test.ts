import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { pino } from 'pino';
import type { CaptureInfo } from '../../lib/protocol/runner-protocol.ts';
import { LastUse } from '../cache/last-use.ts';
import { DiskGuard } from '../capacity/disk-guard.ts';
import { CaptureEvictor } from './capture-evictor.ts';
import { writeStoredMark } from './stored-mark.ts';

const HOUR_MS = 3_600_000;
const RESERVE_MIB = 100;
const EACH_MIB = 50;

/** Captures of 50 MiB each, on a disk with little space. */
class World implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), 'cop-evict-'));
  readonly local = new Set<string>();
  readonly inUse = new Set<string>();
  readonly dropped: string[] = [];
  freeMiB = 0;
  onDrop: (id: string) => void = () => undefined;
  readonly evictor: CaptureEvictor;

  constructor() {
    this.evictor = new CaptureEvictor({
      captures: {
        list: () => [...this.local].map((id) => ({ id }) as CaptureInfo),
        directoryOf: (id) => join(this.directory, id),
        isInUse: (id) => this.inUse.has(id),
      },
      disk: new DiskGuard({
        directory: this.directory,
        reserveMiB: RESERVE_MIB,
        freeMiB: () => this.freeMiB,
      }),
      drop: async (id) => {
        await Promise.resolve();
        this.onDrop(id);
        this.local.delete(id);
        this.dropped.push(id);
        this.freeMiB += EACH_MIB;
      },
      log: pino({ level: 'silent' }),
    });
  }

  async add(id: string, { hoursOld = 0, isStored = true } = {}): Promise<void> {
    const directory = join(this.directory, id);
    mkdirSync(directory);
    this.local.add(id);
    if (isStored) await writeStoredMark(directory, { organization: 'org', stored_bytes: 1 });
    LastUse.read(directory).mark(Date.now() - 2 * HOUR_MS);
    const usedAt = (Date.now() - hoursOld * HOUR_MS) / 1000;
    utimesSync(join(directory, 'last-used'), usedAt, usedAt);
  }

  [Symbol.dispose](): void {
    this.evictor[Symbol.dispose]();
    rmSync(this.directory, { recursive: true });
  }
}

let world: World;
beforeEach(() => (world = new World()));
afterEach(() => world[Symbol.dispose]());

test('the least recently used stored captures go first, and no more than needed', async () => {
  await world.add('middle', { hoursOld: 2 });
  await world.add('oldest', { hoursOld: 3 });
  await world.add('newest', { hoursOld: 1 });
  world.freeMiB = 100;
  await world.evictor.makeRoom(80);
  assert.deepEqual(world.dropped, ['oldest', 'middle']);
});

test('a capture that is not stored, is in use or was just used stays, and the request is refused', async () => {
  await world.add('unstored', { hoursOld: 3, isStored: false });
  await world.add('used', { hoursOld: 3 });
  await world.add('fresh', { hoursOld: 0 });
  world.inUse.add('used');
  world.freeMiB = 100;
  await assert.rejects(world.evictor.makeRoom(1), { code: 'capacity' });
  assert.deepEqual(world.dropped, []);
});

test('a capture that the object store has lost stays, and the next one goes', async () => {
  await world.add('lost', { hoursOld: 3 });
  await world.add('kept', { hoursOld: 2 });
  world.onDrop = (id) => {
    if (id === 'lost') throw new AppError('invalid_state', 'the object store does not have it');
  };
  world.freeMiB = 100;
  await world.evictor.makeRoom(EACH_MIB);
  assert.deepEqual(world.dropped, ['kept']);
});

test('with enough room nothing is evicted', async () => {
  await world.add('old', { hoursOld: 3 });
  world.freeMiB = 1000;
  await world.evictor.makeRoom(500);
  assert.deepEqual(world.dropped, []);
});
