/** Guests that use everything they can get: the effects on neighbours and the host, and on the guest itself. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Api } from '../fixtures/api/api.ts';
import { findUnitCgroup } from '../fixtures/host/cgroups.ts';
import { assertResources, hostResources } from '../fixtures/host/leaks.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, vcpus: 1, disk_mib: 256, timeout: 0 };
const BURN = 'while :; do :; done';
const WINDOW_MS = 4000;

describe('a guest that uses everything it can get', () => {
  let service: Service;
  let api: Api;
  before(async () => {
    service = await startPrepared({ instance: 2 });
    api = new Api(service);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
  });

  const unitOf = (id: string): string => {
    const vms = join(service.dataDir, 'runner', 'vms');
    const unit = readdirSync(vms).find((each) =>
      readFileSync(join(vms, each, 'vm.json'), 'utf8').includes(`"id":"${id}"`),
    );
    assert.ok(unit, `no record of ${id}`);
    return unit;
  };
  const readCgroup = (id: string, file: string): number => {
    const directory = findUnitCgroup(service.dataDir, unitOf(id), file);
    assert.ok(directory, `no group with ${file}`);
    return Number(readFileSync(join(directory, file), 'utf8'));
  };

  it('forks without end: the command ends at its timeout, and the next one runs', async () => {
    const { id } = await api.create(IMAGE);
    // The command itself needs no more processes at its start.
    const command = 'bomb() { bomb | bomb & }; { sleep 1; bomb; } & exec sleep 60';
    const bomb = await api.exec(id, command, { timeout: 10 });
    assert.equal(bomb.timed_out, true, JSON.stringify(bomb).slice(0, 2000));
    assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
    await api.destroy(id);
  });

  it('fills its memory: its own kernel kills the process, and the host gives no more than the reservation', async () => {
    const { id } = await api.create(IMAGE);
    const program = 'a = []\nwhile True: a.append(b"x" * (1 << 20))';
    const filler = await api.exec(id, `python3 -c '${program}'`, { timeout: 60 });
    assert.equal(filler.exit_code, 137, JSON.stringify(filler));
    assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
    const [peak, limit] = ['memory.max_usage_in_bytes', 'memory.limit_in_bytes'].map((file) =>
      readCgroup(id, file),
    );
    assert.ok(peak! < limit!, `${peak} of ${limit} bytes`);
    await api.destroy(id);
  });

  it('fills its disk: writes fail, and work again after it has freed space', async () => {
    const { id } = await api.create(IMAGE);
    const filler = await api.exec(id, 'dd if=/dev/zero of=/workspace/full bs=1M', { timeout: 60 });
    assert.match(filler.stderr, /No space left on device/u);
    const upload = await api.call('POST', `/v1/runs/${id}/files/upload?path=/workspace/more`, {
      raw: Buffer.alloc(8 << 20, 1),
    });
    assert.equal(upload.status, 507, upload.text);
    assert.equal(
      (await api.exec(id, 'rm /workspace/full; echo more > /workspace/f; cat /workspace/f')).stdout,
      'more\n',
    );
    await api.destroy(id);
  });

  it('burns CPU: a neighbour with as many vCPUs gets as much CPU time', async () => {
    const two = { ...IMAGE, vcpus: 2 };
    const ids = [(await api.create(two)).id, (await api.create(two)).id];
    for (const [index, id] of ids.entries()) {
      const burners = Array.from({ length: index === 0 ? 8 : 2 }, () => `(${BURN}) &`).join(' ');
      await api.exec(id, `${burners} true`);
    }
    const used = (): number[] => ids.map((id) => readCgroup(id, 'cpuacct.usage'));
    const before = used();
    await delay(WINDOW_MS);
    const [greedy = 0, modest = 0] = used().map((value, index) => value - (before[index] ?? 0));
    assert.ok(modest > greedy * 0.6, `${modest / 1e6} ms beside ${greedy / 1e6} ms`);
    for (const id of ids) await api.destroy(id);
  });

  it('dies by itself: its usage up to the end is recorded', async () => {
    const before = hostResources(service);
    const { id } = await api.create(IMAGE);
    await api.exec(id, `(${BURN}) & sleep 3`);
    const pid = service.vmPids().find((each) => !before.qemuPids.includes(each));
    process.kill(pid!, 'SIGKILL');
    await service.waitFor('the record to fail', 5000, async () => (await api.get(id))['status'] === 'failed');
    const ended = service.output.split('\n').find((line) => line.includes('"VM ended"') && line.includes(id));
    assert.ok(ended, 'the log has no end of the VM');
    const { cpu_ms: cpuMs } = JSON.parse(ended) as { cpu_ms: number };
    assert.ok(cpuMs > 1500, `${cpuMs} ms`);
    await assertResources(service, before);
  });
});
