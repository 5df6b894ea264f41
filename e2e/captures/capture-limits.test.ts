/** Limits of forks, snapshots and hibernations on a small disk, and clients that disconnect. */
import assert from 'node:assert/strict';
import { copyFileSync, renameSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Api, type Answer } from '../fixtures/api/api.ts';
import { findData, flipByte } from '../fixtures/captures/capture-damage.ts';
import { SmallDisk } from '../fixtures/captures/capture-disk.ts';
import { CountingGuest, SMALL } from '../fixtures/captures/capture-guest.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { Holds, type HeldStep } from '../fixtures/faults/holds.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { Terminal } from '../fixtures/streams/terminal.ts';

const DISK_MIB = 4096;
const RESERVE_MIB = 64;
/** Less than any capture takes; more than the limit at which writing VMs are paused, plus room for PostgreSQL. */
const LEFT_MIB = 40;
const QUOTA_GIB = 0.45;
const QUOTA_BYTES = Math.round(QUOTA_GIB * 2 ** 30);
/** More snapshots than fit into the quota. */
const MAX_SNAPSHOTS = 8;
const SETTLE_TIMEOUT_MS = 30_000;
const TYPED = 'abcdefghijklmnopqrstuvwxyz';
const TYPING_MS = 10;

describe('limits of captures', { concurrency: false }, () => {
  const holds = new Holds();
  let disk: SmallDisk;
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  let guest: CountingGuest;

  before(async () => {
    disk = SmallDisk.mount('coppice-e2e-capture-limits', DISK_MIB);
    service = await startPrepared({
      instance: 11,
      dataDir: join(disk.path, 'data'),
      env: {
        COPPICE_DISK_RESERVE_MIB: String(RESERVE_MIB),
        COPPICE_SNAPSHOT_QUOTA_GIB: String(QUOTA_GIB),
        COPPICE_FAULT_DIR: holds.directory,
      },
    });
    api = new Api(service);
    clones = new CloneApi(api);
    guest = await CountingGuest.create(api);
  });
  after(async () => {
    holds.releaseAll();
    await service?.[Symbol.asyncDispose]();
    disk?.[Symbol.dispose]();
    holds[Symbol.dispose]();
  });

  const post = (path: string, body?: unknown, more: { signal?: AbortSignal } = {}): Promise<Answer> =>
    api.call('POST', path, { ...(body === undefined ? {} : { body }), ...more });
  const ofGuest = (what: string): string => `/v1/runs/${guest.id}/${what}`;
  const codeOf = (answer: Answer): unknown => (answer.body['error'] as { code?: unknown } | undefined)?.code;

  const assertError = (answer: Answer, status: number, code: string): void => {
    assert.deepEqual([answer.status, codeOf(answer)], [status, code], answer.text);
  };

  const listSnapshots = async (): Promise<{ id: string; size_bytes: number }[]> =>
    (await api.call('GET', '/v1/snapshots')).body as unknown as { id: string; size_bytes: number }[];

  const restoreAndDestroy = async (snapshotId: string): Promise<void> => {
    const restored = new CountingGuest(api, (await clones.restore(snapshotId)).id);
    await restored.waitUntilCounting(0);
    await restored.destroy();
  };

  /** Fails unless the sandbox has continued and nothing was made. */
  const assertUntouched = async (since: number): Promise<void> => {
    assert.deepEqual(await guest.status(), { status: 'running', reason: null });
    await guest.waitUntilCounting(since);
    const { captures, units } = await assertConsistent(api);
    assert.deepEqual(captures, []);
    assert.deepEqual(
      units.map(({ id }) => id),
      [guest.id],
    );
  };

  describe("the host's disk is full", () => {
    const CALLS = [
      { what: 'snapshot', body: {} },
      { what: 'hibernate', body: undefined },
      { what: 'fork', body: { count: 2 } },
    ] as const;

    for (const { what, body } of CALLS) {
      it(`a ${what} is refused, and the sandbox continues`, async () => {
        const since = await guest.count();
        using _filler = disk.fill(LEFT_MIB);
        const refused = await post(ofGuest(what), body);
        assertError(refused, 429, 'capacity');
        assert.match(refused.text, /disk: \d+ MiB needed, \d+ MiB free at /u);
        assert.ok(refused.headers.get('retry-after'));
        await assertUntouched(since);
      });

      it(`a ${what} that runs out of space while memory is saved is refused, and the sandbox continues`, async () => {
        const since = await guest.count();
        using hold = holds.hold('capture.prepare');
        const refused = post(ofGuest(what), body);
        await hold.reached();
        using _filler = disk.fill(LEFT_MIB);
        hold.release();
        assertError(await refused, 429, 'capacity');
        assert.match((await refused).text, /disk: no room at /u);
        await assertUntouched(since);
      });
    }

    it('a snapshot that runs out of space while the sandbox is stopped is refused, and the sandbox continues', async () => {
      const since = await guest.count();
      using hold = holds.hold('capture.freeze');
      const refused = post(ofGuest('snapshot'), {});
      await hold.reached();
      using _filler = disk.fill(LEFT_MIB);
      // More than the free space, and not included in the estimate.
      await api.exec(guest.id, 'head -c 80M /dev/urandom > /dev/shm/much');
      hold.release();
      assertError(await refused, 429, 'capacity');
      assert.match((await refused).text, /disk: no room at /u);
      await api.exec(guest.id, 'rm /dev/shm/much');
      await assertUntouched(since);
    });

    for (const [what, step] of [
      ['snapshot', 'capture.publish'],
      ['snapshot', 'capture.devices'],
      ['hibernate', 'capture.devices'],
      ['hibernate', 'capture.publish'],
      ['fork', 'capture.finish'],
    ] as const) {
      it(`a ${what} that finds no free block at ${step} is refused, and the sandbox continues`, async () => {
        const since = await guest.count();
        using hold = holds.hold(step);
        const answered = post(ofGuest(what), what === 'fork' ? { count: 1 } : {});
        await hold.reached();
        {
          using _filler = disk.fillUp();
          hold.release();
          assertError(await answered, 429, 'capacity');
          assert.match((await answered).text, /disk: /u);
        }
        await assertUntouched(since);
      });
    }

    it('sandboxes and snapshots can be deleted when the disk has no free block', async () => {
      const since = await guest.count();
      const snapshotId = await clones.snapshot(guest.id);
      const [child] = await clones.fork(guest.id, 1);
      {
        using _filler = disk.fillUp();
        const ended = await api.destroy(child!.id);
        assert.equal(ended.status, 200, ended.text);
        await clones.deleteSnapshot(snapshotId);
      }
      await assertUntouched(since);
    });

    it('all of these operations succeed when there is space again', async () => {
      const since = await guest.count();
      const snapshotId = await clones.snapshot(guest.id);
      const [child] = await clones.fork(guest.id, 1);
      assert.equal((await api.destroy(child!.id)).status, 200);
      await clones.hibernate(guest.id);
      await clones.resume(guest.id);
      await clones.deleteSnapshot(snapshotId);
      await assertUntouched(since);
    });
  });

  it('snapshots over the quota are refused and leave nothing, and deleting one makes room', async () => {
    let refused: Answer | undefined;
    for (let made = 0; made < MAX_SNAPSHOTS && refused === undefined; made += 1) {
      const answer = await post(ofGuest('snapshot'), {});
      if (answer.status !== 201) refused = answer;
    }
    assert.ok(refused, `${MAX_SNAPSHOTS} snapshots fit into ${QUOTA_BYTES} bytes`);
    assertError(refused, 429, 'capacity');
    const snapshots = await listSnapshots();
    const usedBytes = snapshots.reduce((sum, { size_bytes }) => sum + size_bytes, 0);
    assert.ok(
      snapshots.length > 0 && usedBytes <= QUOTA_BYTES,
      `${snapshots.length} take ${usedBytes} bytes`,
    );
    assert.match(refused.text, new RegExp(`take ${usedBytes} bytes.*the limit is ${QUOTA_BYTES}`, 'u'));
    const { captures } = await assertConsistent(api);
    assert.equal(captures.length, snapshots.length);
    await clones.deleteSnapshot(snapshots[0]!.id);
    await clones.deleteSnapshot(await clones.snapshot(guest.id));
    for (const { id } of snapshots.slice(1)) await clones.deleteSnapshot(id);
    await assertUntouched(0);
  });

  describe('a snapshot with one flipped byte', () => {
    let sound = '';
    let damaged = '';
    const fileOf = (name: string): string => join(service.dataDir, 'runner', 'captures', damaged, name);

    before(async () => {
      await api.exec(guest.id, 'head -c 1M /dev/urandom > /workspace/data; sync');
      sound = await clones.snapshot(guest.id);
      damaged = await clones.snapshot(guest.id);
    });
    after(async () => {
      for (const id of [sound, damaged]) await clones.deleteSnapshot(id);
    });

    const assertRefused = async (name: RegExp): Promise<void> => {
      for (const path of ['/v1/runs/restore', ofGuest('rollback')]) {
        const refused = await post(path, { snapshot_id: damaged });
        assertError(refused, 409, 'snapshot_unusable');
        assert.match(refused.text, name);
      }
      await restoreAndDestroy(sound);
    };

    for (const name of ['ram', 'devices', 'disk/0.qcow2']) {
      it(`in ${name} is refused by that name until the byte is restored`, async () => {
        const path = fileOf(name);
        // Captures share files through hard links: a copy confines the damage to this capture.
        copyFileSync(path, `${path}.sound`);
        renameSync(`${path}.sound`, path);
        const offset = findData(path);
        flipByte(path, offset);
        await assertRefused(new RegExp(`damaged: ${name} `, 'u'));
        flipByte(path, offset);
        await restoreAndDestroy(damaged);
      });
    }

    it('in its memory is refused after a restart of the runner, even if the times of the file are unchanged', async () => {
      const path = fileOf('ram');
      const { atime, mtime } = statSync(path);
      const offset = findData(path);
      flipByte(path, offset);
      utimesSync(path, atime, mtime);
      await service.killRole('runner');
      await assertRefused(/damaged: ram /u);
      flipByte(path, offset);
      await restoreAndDestroy(damaged);
    });

    it('in manifest.json is refused, also after a restart of the runner', async () => {
      flipByte(fileOf('manifest.json'), statSync(fileOf('manifest.json')).size >> 1);
      await assertRefused(/damaged: its manifest /u);
      await service.killRole('runner');
      await assertRefused(/damaged: its manifest /u);
      assert.deepEqual((await listSnapshots()).map(({ id }) => id).toSorted(), [sound, damaged].toSorted());
    });

    it('is refused when its memory file is missing', async () => {
      flipByte(fileOf('manifest.json'), statSync(fileOf('manifest.json')).size >> 1);
      rmSync(fileOf('ram'));
      await service.killRole('runner');
      await assertRefused(/damaged: ram /u);
    });
  });

  describe('a client that disconnects', () => {
    /** Sends the request and disconnects when the step is reached. */
    const leaveAt = async (step: HeldStep, path: string, body?: unknown): Promise<void> => {
      const abort = new AbortController();
      using hold = holds.hold(step);
      const call = post(path, body, { signal: abort.signal }).catch(() => undefined);
      await hold.reached();
      abort.abort();
      assert.equal(await call, undefined);
    };

    for (const step of ['record.snapshot', 'capture.stop', 'capture.finish'] as const) {
      it(`while its snapshot is at ${step} still gets the snapshot`, async () => {
        const since = await guest.count();
        await leaveAt(step, ofGuest('snapshot'), {});
        await service.waitFor(
          'the snapshot',
          SETTLE_TIMEOUT_MS,
          async () => (await listSnapshots()).length === 1,
        );
        const id = (await listSnapshots())[0]!.id;
        const restored = new CountingGuest(api, (await clones.restore(id)).id);
        await restored.waitUntilCounting(since);
        await restored.destroy();
        await clones.deleteSnapshot(id);
        await assertUntouched(since);
      });
    }

    for (const step of ['record.fork', 'capture.stop', 'fork.children'] as const) {
      it(`while its fork is at ${step} still gets the children`, async () => {
        const since = await guest.count();
        const before = await listChildren();
        await leaveAt(step, ofGuest('fork'), { count: 2 });
        const findNew = async (): Promise<string[]> =>
          (await listChildren('running')).filter((id) => !before.includes(id));
        await service.waitFor('the children', SETTLE_TIMEOUT_MS, async () => (await findNew()).length === 2);
        for (const id of await findNew()) {
          const child = new CountingGuest(api, id);
          await child.waitUntilCounting(since);
          await child.destroy();
        }
        await assertUntouched(since);
      });
    }

    for (const step of ['record.hibernate', 'capture.stop', 'hibernate.retire'] as const) {
      it(`while its hibernation is at ${step} finds the sandbox hibernated, and can resume it`, async () => {
        const since = await guest.count();
        await leaveAt(step, ofGuest('hibernate'));
        const isHibernated = async (): Promise<boolean> => (await guest.status()).status === 'hibernated';
        await service.waitFor('the hibernation', SETTLE_TIMEOUT_MS, isHibernated);
        assert.deepEqual((await assertConsistent(api)).units, []);
        await clones.resume(guest.id);
        await assertUntouched(since);
      });
    }

    const listChildren = async (status?: string): Promise<string[]> => {
      const { nodes } = (await api.call('GET', ofGuest('tree'))).body as {
        nodes: { id: string; status: string; parent_id: string | null }[];
      };
      const children = nodes.filter((node) => node.parent_id === guest.id);
      return children.filter((node) => status === undefined || node.status === status).map(({ id }) => id);
    };
  });

  it('terminal input during a capture is delivered after it, and does not damage the capture', async () => {
    const terminal = await Terminal.open(api, guest.id);
    await terminal.ask('echo ready$((1+1)); read typed; echo "got:$typed"', /ready2/u);
    using hold = holds.hold('capture.memory');
    const saving = clones.snapshot(guest.id);
    await hold.reached();
    // Devices are saved already, memory is not: input that arrived now would be in only one of the two.
    for (const letter of TYPED) {
      terminal.type(letter);
      await delay(TYPING_MS);
    }
    terminal.type('\r');
    await delay(TYPING_MS);
    hold.release();
    const snapshotId = await saving;
    await terminal.shows(new RegExp(`got:${TYPED}`, 'u'));
    terminal.socket.close();
    await restoreAndDestroy(snapshotId);
    await clones.deleteSnapshot(snapshotId);
  });

  describe('states that do not allow an operation', () => {
    const assertAllRefused = async (
      id: string,
      calls: readonly (readonly [string, unknown?])[],
    ): Promise<void> => {
      for (const [what, body] of calls)
        assertError(await post(`/v1/runs/${id}/${what}`, body), 409, 'invalid_state');
    };
    const NEEDS_GUEST = [['fork', { count: 1 }], ['snapshot', {}], ['hibernate']] as const;

    it('fork, snapshot and hibernate of a sandbox in hibernation give 409 at once', async () => {
      using hold = holds.hold('capture.memory');
      const hibernated = post(ofGuest('hibernate'));
      await hold.reached();
      await assertAllRefused(guest.id, NEEDS_GUEST);
      assert.equal((await api.get(guest.id))['operation'], 'hibernating');
      hold.release();
      assert.equal((await hibernated).status, 200);
    });

    it('fork, snapshot and hibernate of a hibernated sandbox give 409', async () => {
      await assertAllRefused(guest.id, NEEDS_GUEST);
      const exec = await post(ofGuest('exec'), { command: 'true' });
      assertError(exec, 409, 'invalid_state');
      await clones.resume(guest.id);
    });

    it('resume of a running sandbox gives 409', () => assertAllRefused(guest.id, [['resume']]));

    it('fork, snapshot and hibernate of a sandbox in destruction give 409 at once', async () => {
      const { id } = await api.create(SMALL);
      using hold = holds.hold('end.kill');
      const destroyed = api.destroy(id);
      await hold.reached();
      await assertAllRefused(id, NEEDS_GUEST);
      hold.release();
      assert.equal((await destroyed).status, 200);
    });

    it('fork, snapshot, hibernate, resume and rollback of a destroyed sandbox give 409', async () => {
      const { id } = await api.create(SMALL);
      const snapshotId = await clones.snapshot(id);
      assert.equal((await api.destroy(id)).status, 200);
      await assertAllRefused(id, [...NEEDS_GUEST, ['resume'], ['rollback', { snapshot_id: snapshotId }]]);
      await clones.deleteSnapshot(snapshotId);
    });
  });
});
