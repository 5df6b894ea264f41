/**
 * Persistent disks whose object store is slow, fails, is full or away. A guest continues to write within a bound, and
 * then waits; its file system never sees an error.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { DestroyResult } from '@coppice/contract';
import { SeededChoice } from '../../packages/server/src/control/testing/seeded-choice.ts';
import { FaultProxy } from '../../packages/server/src/lib/objects/testing/fault-proxy.ts';
import { ObjectServer } from '../../packages/server/src/lib/objects/testing/object-server.ts';
import type { Answer } from '../fixtures/api/api.ts';
import { DiskApi } from '../fixtures/disks/disk-api.ts';
import { checkPieces, writePieces } from '../fixtures/disks/disk-pieces.ts';
import { checkStoredDisk, findDisk } from '../fixtures/disks/disk-content.ts';
import { blockServerPids } from '../fixtures/disks/disk-crash.ts';
import { storeIn } from '../fixtures/disks/disk-store.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const MIB = 2 ** 20;
/** The smallest that the setting allows. */
const BACKLOG_MIB = 64;
/** The guest writes until the runner has seen that the bound is exceeded. */
const OVERSHOOT_MIB = 100;
const FULL = '<Error><Code>InsufficientCapacity</Code><Message>The store is full.</Message></Error>';
const SLOW_MS = 200;
/** Longer than the runner lets guests write while it cannot renew its lease. */
const HELD_TIMEOUT_MS = 75_000;
const SAYS_TIMEOUT_MS = 40_000;
const SETTLE_MS = 90_000;

describe('a persistent disk whose object store fails', { concurrency: false }, () => {
  const made = new AsyncDisposableStack();
  let server: ObjectServer;
  let proxy: FaultProxy;
  let service: Service;
  let disks: DiskApi;
  let id = '';

  before(async () => {
    server = made.use(await ObjectServer.start());
    proxy = made.use(await FaultProxy.start(server.port));
    service = made.use(
      await startPrepared({
        instance: 14,
        env: {
          ...storeIn(server, proxy.endpoint),
          COPPICE_DISK_BACKLOG_MIB: String(BACKLOG_MIB),
          // Each read of a block server that has just started is from the store.
          COPPICE_DISK_CACHE_MIB: '0',
        },
      }),
    );
    disks = new DiskApi(service);
    await disks.create('data');
    id = await disks.attach('data');
  });
  beforeEach(() => {
    proxy.rule = () => undefined;
  });
  after(() => made.disposeAsync());

  const dropCaches = async (sandbox: string): Promise<void> => {
    await disks.run(sandbox, 'sync; echo 3 > /proc/sys/vm/drop_caches');
    process.kill(blockServerPids(service).server, 'SIGKILL');
  };
  const check = async (sandbox: string, name: string, size: number): Promise<void> => {
    await dropCaches(sandbox);
    await checkPieces(disks, sandbox, name, size);
    await disks.run(sandbox, 'test -z "$(dmesg | grep -iE "i/o error|ext4-fs error|remount")"');
  };
  /** Waits until the disk says why storing does not proceed. */
  const says = async (name: string, pattern: RegExp, timeoutMs: number): Promise<void> => {
    let said: string | null = null;
    await service
      .waitFor(`the disk ${name} to say ${String(pattern)}`, timeoutMs, async () => {
        said = (await disks.get(name)).waits_for;
        return said !== null && pattern.test(said);
      })
      .catch((error: unknown) => assert.fail(`the disk said last: ${said}; ${String(error)}`));
  };

  /** Waits until the log says that a guest is held. */
  const isHeld = (pattern: RegExp, from: number, timeoutMs: number): Promise<void> =>
    service.waitFor(`a guest held for ${String(pattern)}`, timeoutMs, () =>
      service.output
        .slice(from)
        .split('\n')
        .some((line) => line.includes('a VM is held') && pattern.test(line)),
    );

  it('a slow store does not slow synced writes down', async () => {
    proxy.rule = () => ({ kind: 'delay', durationMs: SLOW_MS });
    const startedAt = performance.now();
    await writePieces(disks, id, 'slow', { count: 30, sizeBytes: 100_000 });
    const tookMs = performance.now() - startedAt;
    assert.ok(tookMs < 30 * SLOW_MS, `${tookMs} ms for 30 synced writes`);
    assert.equal((await disks.flush('data')).dirty_bytes, 0);
    await check(id, 'slow', 100_000);
  });

  it('a store that answers 503 to half of all requests loses nothing', async () => {
    const choice = new SeededChoice(1);
    proxy.rule = () => (choice.below(2) === 0 ? { kind: 'answer', status: 503 } : undefined);
    await writePieces(disks, id, 'half', { count: 50, sizeBytes: 100_000 });
    assert.equal((await disks.flush('data')).dirty_bytes, 0);
    await check(id, 'half', 100_000);
  });

  it('with a full store a guest writes up to the bound, and then waits until there is room', async () => {
    let refused = 0;
    // The lease is renewed: this is about the bound alone.
    proxy.rule = ({ method, url = '' }) => {
      if (method !== 'PUT' || !url.includes('/blocks/')) return undefined;
      refused += 1;
      return { kind: 'answer', status: 507, body: FULL };
    };
    const pieces = BACKLOG_MIB + 2 * OVERSHOOT_MIB;
    const from = service.output.length;
    const writing = writePieces(disks, id, 'much', { count: pieces, sizeBytes: MIB });
    writing.catch(() => undefined);
    await isHeld(/more data waits/u, from, SETTLE_MS);
    await says('data', /./u, SAYS_TIMEOUT_MS);
    const { dirty_bytes: dirty } = await disks.get('data');
    const most = (BACKLOG_MIB + OVERSHOOT_MIB) * MIB;
    assert.ok(dirty > BACKLOG_MIB * MIB && dirty < most, `${dirty} bytes`);
    assert.ok(refused > 0);
    proxy.rule = () => undefined;
    await writing;
    assert.equal((await disks.flush('data')).dirty_bytes, 0);
    await check(id, 'much', MIB);
    await disks.run(id, 'rm /workspace/much*');
  });

  it('while the store is away for a minute guests continue, then wait, and see no error; callers learn the reason', async () => {
    for (const name of ['read', 'destroyed', 'hibernated']) await disks.create(name);
    const [reader, ended, saved] = [
      await disks.attach('read'),
      await disks.attach('destroyed'),
      await disks.attach('hibernated'),
    ] as const;
    await writePieces(disks, reader, 'old', { count: 20, sizeBytes: 100_000 });
    await disks.flush('read');
    // A guest that writes for the first time reads the tables of its file system first.
    for (const sandbox of [id, ended, saved])
      await writePieces(disks, sandbox, 'warm', { count: 20, sizeBytes: 100_000 });
    await dropCaches(reader);
    const from = service.output.length;
    await server.stop();

    const reading = checkPieces(disks, reader, 'old', 100_000);
    // Its error is that of the test, later.
    reading.catch(() => undefined);
    for (const sandbox of [id, ended, saved])
      await writePieces(disks, sandbox, 'away', { count: 20, sizeBytes: 100_000 });
    const destroyed = await disks.api.destroy(ended);
    assert.equal(destroyed.status, 200, destroyed.text);
    const { disk } = destroyed.body as unknown as DestroyResult;
    assert.equal(disk?.status, 'detaching', destroyed.text);
    assert.ok((disk.dirty_bytes ?? 0) > 2_000_000 && disk.waits_for !== null, destroyed.text);
    const hibernating = disks.api.call('POST', `/v1/runs/${saved}/hibernate`);
    await says('hibernated', /./u, SAYS_TIMEOUT_MS);
    await isHeld(/lease/u, from, HELD_TIMEOUT_MS);
    await says('data', /./u, SAYS_TIMEOUT_MS);
    const held = await disks.api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
    assert.equal(held.status, 503, held.text);
    assert.match(held.text, /object store does not answer/u);

    await server.resume();
    await service.waitFor('the guest to continue', SETTLE_MS, async () => {
      const answer = await disks.api.call('POST', `/v1/runs/${id}/exec`, { body: { command: 'true' } });
      return answer.status === 200;
    });
    await reading;
    await checkHibernated(saved, await hibernating);
    await disks.untilFree('destroyed', SETTLE_MS);
    for (const name of ['data', 'read']) await disks.flush(name);
    await check(id, 'away', 100_000);
    const next = await disks.attach('destroyed');
    await check(next, 'away', 100_000);
    for (const [name, sandbox] of [
      ['destroyed', next],
      ['read', reader],
      ['hibernated', saved],
    ] as const) {
      await disks.destroy(sandbox, name);
      await checkStoredDisk(service, findDisk(service, name));
    }
  });

  /** A hibernation that was given up says why, and leaves the sandbox as it was. */
  async function checkHibernated(sandbox: string, answer: Answer): Promise<void> {
    if (answer.status === 200)
      assert.equal((await disks.api.call('POST', `/v1/runs/${sandbox}/resume`)).status, 200);
    else assert.match(answer.text, /object store|disk/u);
    await check(sandbox, 'away', 100_000);
  }
});
