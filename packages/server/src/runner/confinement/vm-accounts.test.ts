import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { BARE_SLOTS, TAP_SLOTS } from '../network/vm-network.ts';
import { SeparateAccounts, SharedAccount, UIDS_OF_INSTALLATION } from './vm-accounts.ts';

const LINKER = '/lib64/ld-linux-x86-64.so.2';

test('every slot has its own uid, different from the probe’s and the template’s, and their number is limited', () => {
  const accounts = new SeparateAccounts(100_000);
  const uids = [accounts.probe, accounts.template, accounts.ofSlot(0), accounts.ofSlot(1)];
  assert.deepEqual(uids, [100_000, 100_001, 100_002, 100_003]);
  assert.equal(accounts.ofSlot(TAP_SLOTS + BARE_SLOTS - 1), 100_002 + TAP_SLOTS + BARE_SLOTS - 1);
  assert.throws(() => accounts.ofSlot(TAP_SLOTS + BARE_SLOTS), { code: 'capacity' });
  const behind = 100_002 + TAP_SLOTS + BARE_SLOTS;
  assert.deepEqual([...accounts.images, accounts.egress], [behind, behind + 1, behind + 2]);
  assert.equal(accounts.blocks, behind + 3);
  assert.equal(accounts.blocks, 100_000 + UIDS_OF_INSTALLATION - 1);
});

test('of the runner’s user only VMMs whose working directory matches are listed', async () => {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'accounts-')));
  // For a jailed QEMU only its name is known, not its path.
  const vmm = join(root, 'qemu-system-test');
  copyFileSync('/bin/sleep', vmm);
  chmodSync(vmm, 0o755);
  for (const name of ['v', 'v/u1', 'v/u12']) mkdirSync(join(root, name));
  const start = (name: string, program = vmm) =>
    spawn(program, ['30'], { cwd: join(root, name), stdio: 'ignore' });
  const children = [start('v/u1'), start('v/u12'), start('v/u1', '/usr/bin/sleep'), start('.')];
  // QEMU outside a jail, before it has set its process name.
  children.push(spawn(LINKER, [vmm, '30'], { cwd: join(root, 'v/u1'), stdio: 'ignore' }));
  try {
    await Promise.all(children.map((child) => once(child, 'spawn')));
    const accounts = new SharedAccount(process.getuid?.() ?? 0, [join(root, 'v')]);
    const pids = (found: { pid: number }[]): number[] =>
      found.map(({ pid }) => pid).toSorted((a, b) => a - b);
    assert.deepEqual(pids(accounts.listVmms(join(root, 'v/u1'))), [children[0]?.pid, children[4]?.pid]);
    assert.deepEqual(
      pids(accounts.listAllVmms()),
      [0, 1, 4].map((index) => children[index]?.pid),
    );
    assert.equal(accounts.ofSlot(), process.getuid?.());
  } finally {
    for (const child of children) child.kill('SIGKILL');
    rmSync(root, { recursive: true });
  }
});
