/**
 * An upgrade of everything that VMs are started with, and a reboot of the host: captures continue on the machine that
 * they were saved on, which is kept as long as something needs it.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { findVmRecord } from '../../packages/server/src/runner/vm/vm-record.ts';
import { mayRunFrom } from '../../packages/server/src/runner/confinement/qemu-closure.ts';
import { Api } from '../fixtures/api/api.ts';
import { CloneApi } from '../fixtures/clones/clone-api.ts';
import { CloneGuest } from '../fixtures/clones/clone-guest.ts';
import { Service } from '../fixtures/service/service.ts';
import { UpgradeHost } from '../fixtures/captures/upgrade-host.ts';
import { assertGoesOn, readWork, startWork, type Work } from '../fixtures/captures/upgrade-work.ts';

const SHAPE = { image: BASE_IMAGE, mem_mib: 256, disk_mib: 512, timeout: 0 };
const NOTICED_MS = 30_000;

describe('an upgrade and a reboot of the host', () => {
  const host = new UpgradeHost();
  let service: Service;
  let api: Api;
  let clones: CloneApi;
  /** Keys of machines. */
  let earlier: string;
  let later: string;
  let snapshotted: CloneGuest;
  let asleep: CloneGuest;
  let restored: CloneGuest;
  let fresh: CloneGuest;
  let first: { id: string; work: Work };
  let second: { id: string; work: Work };
  let workAsleep: Work;

  const guestOf = ({ id }: { id: string }): CloneGuest => new CloneGuest(api, id);
  const statusOf = async ({ id }: CloneGuest): Promise<unknown> => (await api.get(id))['status'];
  const machineDirectory = (key: string): string => join(service.dataDir, 'runner', 'machines', key);
  const listMachines = (): string[] => readdirSync(machineDirectory(''));

  /** Returns the key of the machine of the sandbox's process. Fails if its record and the process disagree. */
  const machineOf = ({ id }: CloneGuest): string => {
    const vms = join(service.dataDir, 'runner', 'vms');
    const record = readdirSync(vms)
      .map((unit) => findVmRecord(join(vms, unit)))
      .find((found) => found?.info.id === id);
    assert.ok(record?.process, `${id} has no process`);
    const { pid } = record.process;
    const used = listMachines().filter((key) => mayRunFrom(pid, join(machineDirectory(key), 'qemu')));
    assert.deepEqual(used, [record.machine]);
    return record.machine;
  };

  const restart = async (change: () => void = () => undefined): Promise<void> => {
    await service.stop();
    change();
    service.launcher = host.launcher;
    await service.launch();
  };

  const save = async (guest: CloneGuest): Promise<{ id: string; work: Work }> => {
    const work = await readWork(guest);
    return { id: await clones.snapshot(guest.id), work };
  };

  const hibernate = async (): Promise<void> => {
    workAsleep = await readWork(asleep);
    await clones.hibernate(asleep.id);
  };

  const bindingsOf = async (id: string): Promise<Record<string, string>> => {
    const { body } = await api.call('GET', '/v1/snapshots');
    const listed = body as unknown as { id: string; bound_to: Record<string, string> }[];
    const found = listed.find((snapshot) => snapshot.id === id);
    assert.ok(found, `${id} is not in the list`);
    return found.bound_to;
  };

  before(async () => {
    service = await Service.start({ instance: 4, env: host.env });
    api = new Api(service);
    clones = new CloneApi(api);
    snapshotted = guestOf(await api.create(SHAPE));
    asleep = guestOf(await api.create(SHAPE));
    for (const guest of [snapshotted, asleep]) await startWork(guest);
    [earlier = ''] = listMachines();
    first = await save(snapshotted);
    await hibernate();
    await restart(() => host.upgrade());
    later = listMachines().find((key) => key !== earlier) ?? '';
    assert.equal(listMachines().length, 2);
  });
  after(async () => {
    await service?.[Symbol.asyncDispose]();
    host[Symbol.dispose]();
  });

  it('restores a snapshot on the machine that saved it', async () => {
    restored = guestOf(await clones.restore(first.id));
    assert.equal(machineOf(restored), earlier);
    await assertGoesOn(restored, first.work);
  });

  it('resumes a hibernated sandbox on its machine', async () => {
    await clones.resume(asleep.id);
    assert.equal(machineOf(asleep), earlier);
    await assertGoesOn(asleep, workAsleep);
  });

  it('starts a new sandbox on the new machine', async () => {
    fresh = guestOf(await api.create(SHAPE));
    assert.equal(machineOf(fresh), later);
    await startWork(fresh);
    await assertGoesOn(snapshotted, first.work);
  });

  it('forks a restored sandbox on its machine', async () => {
    const before = await readWork(restored);
    const children = (await clones.fork(restored.id, 2)).map(guestOf);
    for (const guest of [...children, restored]) {
      assert.equal(machineOf(guest), earlier);
      await assertGoesOn(guest, before);
    }
    for (const { id } of children) await api.destroy(id);
  });

  it('binds each snapshot to the versions that its sandbox runs on', async () => {
    second = await save(restored);
    const ofFresh = await clones.snapshot(fresh.id);
    const [old, next] = [await bindingsOf(first.id), await bindingsOf(ofFresh)];
    assert.deepEqual(await bindingsOf(second.id), old);
    assert.notEqual(next['agent'], old['agent']);
    const cpu = old['accelerator'] === 'kvm' ? ['cpu'] : [];
    const names = ['accelerator', 'agent', ...cpu, 'kernel', 'machine', 'qemu'];
    for (const bound of [old, next]) assert.deepEqual(Object.keys(bound).toSorted(), names);
    await clones.deleteSnapshot(ofFresh);
  });

  it('continues from saved state after a reboot of the host, and reports all other sandboxes as failed', async () => {
    await hibernate();
    await service.cutPower();
    await restart(() => host.reboot());
    for (const guest of [snapshotted, restored, fresh])
      await service.waitFor(
        `the end of ${guest.id}`,
        NOTICED_MS,
        async () => (await statusOf(guest)) === 'failed',
      );
    assert.equal(await statusOf(asleep), 'hibernated');
    await clones.resume(asleep.id);
    restored = guestOf(await clones.restore(second.id));
    for (const guest of [asleep, restored]) assert.equal(machineOf(guest), earlier);
    await assertGoesOn(asleep, workAsleep);
    await assertGoesOn(restored, second.work);
  });

  it('refuses a restore and a resume whose machine is missing, and names the machine', async () => {
    await hibernate();
    await api.destroy(restored.id);
    const { qemu = '', kernel = '', agent = '' } = await bindingsOf(second.id);
    await service.stop();
    const putBack = host.takeAway(machineDirectory(earlier));
    await service.launch();
    const refused = [
      await api.call('POST', '/v1/runs/restore', { body: { snapshot_id: second.id } }),
      await api.call('POST', `/v1/runs/${asleep.id}/resume`),
    ];
    for (const { status, body, text } of refused) {
      assert.equal(status, 409, text);
      const { code, message } = body['error'] as { code: string; message: string };
      assert.equal(code, 'snapshot_unusable');
      for (const version of [qemu, kernel, agent]) assert.ok(message.includes(version), message);
    }
    assert.equal(await statusOf(asleep), 'hibernated');
    for (const { id } of [first, second]) await clones.deleteSnapshot(id);
    await restart(putBack);
  });

  it('keeps a machine that only a hibernated sandbox needs, and removes it after that sandbox', async () => {
    assert.deepEqual(new Set(listMachines()), new Set([earlier, later]));
    await clones.resume(asleep.id);
    await assertGoesOn(asleep, workAsleep);
    await api.destroy(asleep.id);
    await restart();
    assert.deepEqual(listMachines(), [later]);
  });
});
