import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  judgeClock,
  judgeDisk,
  judgeLimits,
  judgeMemory,
  judgeSocketPath,
  judgeUserNamespaces,
} from './judgements.mjs';
import {
  describeBoot,
  describeCgroups,
  describeNetwork,
  describeObjects,
  describeService,
} from './probes.mjs';

const GIB = 1024 ** 3;

test('a disk is judged by free space and kind: tmpfs is memory, however much is free', () => {
  const disk = { directory: '/d', freeBytes: 9 * GIB, type: 0xef53 };
  assert.deepEqual(judgeDisk(disk), { name: 'disk', status: 'ok', detail: '9.0 GiB free at /d (ext4)' });
  assert.equal(judgeDisk({ ...disk, freeBytes: GIB }).status, 'fail');
  assert.match(judgeDisk({ ...disk, type: 0x01021994 }).detail, /tmpfs\): files in it are memory/u);
  assert.match(judgeDisk({ ...disk, type: 0x1234 }).detail, /file system 0x1234/u);
});

test('available memory counts, and too little memory in total is a failure', () => {
  /** @param {number} total @param {number} available */
  const meminfo = (total, available) =>
    `MemTotal: ${total * 1048576} kB\nMemAvailable:  ${available * 1048576} kB\n`;
  assert.equal(judgeMemory(meminfo(8, 4)).status, 'ok');
  assert.equal(judgeMemory(meminfo(8, 1)).status, 'warn');
  assert.equal(judgeMemory(meminfo(0.5, 0.25)).status, 'fail');
});

test('the hard limit counts, and unlimited is enough', () => {
  const limits =
    'Limit  Soft Limit  Hard Limit  Units\nMax processes   100   unlimited  processes\nMax open files  1024  1048576  files\n';
  const [files, processes, pidMax, maps] = judgeLimits({ limits, pidMax: 4000, maxMapCount: 65_530 });
  assert.deepEqual([files?.detail, processes?.detail], ['1048576', 'unlimited']);
  assert.deepEqual(
    [files?.status, processes?.status, pidMax?.status, maps?.status],
    ['ok', 'ok', 'warn', 'ok'],
  );
});

test('a run directory longer than 70 bytes (not characters) is too long for sockets', () => {
  assert.equal(judgeSocketPath('/'.padEnd(70, 'x')).status, 'ok');
  assert.equal(judgeSocketPath('/'.padEnd(69, 'x') + 'é').status, 'fail');
});

test('clock and user namespaces are judged by the data of the kernel and the CPU', () => {
  assert.equal(judgeClock('tsc', 'flags\t\t: fpu constant_tsc nonstop_tsc\n').status, 'ok');
  assert.match(
    judgeClock('kvm-clock', 'flags\t\t: fpu\n').detail,
    /the CPU lacks constant_tsc, nonstop_tsc/u,
  );
  const open = { limit: 100, debian: undefined, apparmor: '0' };
  assert.match(judgeUserNamespaces(open).detail, /^an ordinary user may/u);
  assert.match(judgeUserNamespaces({ ...open, apparmor: '1' }).detail, /^only root may/u);
});

test('a boot fails the check only when it was refused, not when the machine was slow', () => {
  assert.equal(describeBoot({ error: 'booting a kernel with TCG took longer than 11000 ms' }).status, 'warn');
  assert.equal(describeBoot({ error: 'the probe was broken off' }).status, 'warn');
  assert.equal(describeBoot({ error: 'QEMU did not start: no such file' }).status, 'fail');
  const kvm = describeBoot({ accelerator: 'kvm', reason: 'a kernel booted with KVM', boot_ms: 512 });
  assert.deepEqual(kvm, {
    name: 'accelerator',
    status: 'ok',
    detail: 'kvm: a kernel booted with KVM; a guest kernel booted in 0.5 s',
  });
  const refused = describeBoot({ refusal: 'COPPICE_ACCELERATOR=kvm, but there is no /dev/kvm on this host' });
  assert.equal(refused.status, 'fail');
  assert.match(refused.detail, /^the service does not start: COPPICE_ACCELERATOR=kvm, but/u);
  const unfit = { refusal: 'COPPICE_CPU is x86-64-v4, but …', remedy: 'set COPPICE_CPU to host' };
  assert.equal(describeBoot(unfit).remedy, 'set COPPICE_CPU to host');
});

test('a missing network fails the check where the settings require one; the remedy is a separate field', () => {
  const answer = { obstacle: 'no TAP can be made; load the kernel module tun' };
  assert.deepEqual(describeNetwork(answer, 'auto'), {
    name: 'network',
    status: 'warn',
    detail: 'none: no TAP can be made',
    remedy: 'load the kernel module tun',
  });
  assert.equal(describeNetwork(answer, 'on').status, 'fail');
  assert.equal(describeNetwork(answer, 'off').status, 'ok');
  assert.equal(describeNetwork({ forwarded: true }, 'auto').status, 'ok');
});

test('a drop names the chain and the remedy; a row says when no rule explains the drop or a rule may accept us', () => {
  const chain = {
    where: 'table ip filter, chain FORWARD (its policy is drop)',
    remedy: 'iptables …',
    names_ours: false,
  };
  const dropped = { forwarded: false, outcome: 'no answer', foreign: [chain] };
  const row = describeNetwork(dropped, 'auto');
  assert.match(row.detail, /\(no answer\): dropped by table ip filter, chain FORWARD/u);
  assert.deepEqual([row.status, row.remedy], ['fail', 'iptables …']);
  assert.match(describeNetwork({ ...dropped, foreign: [] }, 'auto').detail, /no nftables rule explains it/u);
  assert.equal(
    describeNetwork({ ...dropped, foreign: [{ ...chain, names_ours: true }] }, 'auto').status,
    'warn',
  );
});

test('the service row shows the status that the service reports', () => {
  const status = { accelerator: 'tcg', network: 'none', network_reason: 'no tun', vms: 2 };
  assert.equal(
    describeService({ state: 'running', status, version: '0.1.0' }).detail,
    'running, version 0.1.0: tcg, no network (no tun), 2 VMs',
  );
  assert.equal(describeService({ state: 'absent' }).status, 'ok');
  assert.equal(describeService({ state: 'closed', reason: 'why' }).status, 'warn');
});

test('a missing sandbox limit is named, for the running service or for one started from here', () => {
  const cgroups = { controllers: ['memory', 'pids'], reason: 'no group has cpu' };
  const [row] = describeCgroups({ state: 'running', cgroups, missing_limits: ['cpu'] });
  assert.equal(row?.status, 'warn');
  assert.equal(row?.detail, 'the running service does not limit the cpu of sandboxes: no group has cpu');
  assert.ok(row?.remedy?.includes('npm run install-service'));
  const [free] = describeCgroups({ state: 'absent', cgroups, missing_limits: [] });
  assert.equal(free?.status, 'ok');
  assert.match(free?.detail ?? '', /^a service started from here limits /u);
  assert.deepEqual(describeCgroups({ error: 'the probe gave no answer' }), []);
});

test('an object store whose conditions do not hold fails the doctor, with the reason', () => {
  assert.equal(describeObjects({ store: 'a directory in /data' }).status, 'ok');
  const held = describeObjects({ store: 's3://b at https://s3', conditions: ['a', 'b'] });
  assert.deepEqual([held.status, held.detail], ['ok', 's3://b at https://s3: 2 conditions hold']);
  const unfit = describeObjects({ error: 'the object store is unfit (deletes): why' });
  assert.deepEqual([unfit.status, unfit.detail], ['fail', 'the object store is unfit (deletes): why']);
});
