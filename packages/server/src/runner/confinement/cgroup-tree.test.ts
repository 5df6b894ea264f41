/**
 * Uses a real tree below this process's own groups, named after the process and removed afterwards. Only a process
 * started here enters it.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { CgroupTree } from './cgroup-tree.ts';
import { readGroupUsage } from './cgroup-usage.ts';
import { buildUnitLimits } from './unit-limits.ts';

const LIMITS = buildUnitLimits({ shape: { accelerator: 'kvm', vcpus: 1, memMiB: 128 }, tmpfsMiB: 0 });
const BURN_MS = 200;

function open(slug: string): CgroupTree {
  return CgroupTree.open({ slug: `test_${process.pid}_${slug}`, log: pino({ level: 'silent' }) });
}

/** Version 2 is skipped: opening it may move the processes of this process's group. */
function skipReason(): string | false {
  const isV1 = existsSync('/sys/fs/cgroup/memory/cgroup.procs');
  return isV1 && process.getuid?.() === 0 ? false : 'needs root and a version 1 hierarchy';
}

function enter(groups: readonly string[], pid: number | undefined): void {
  for (const group of groups) writeFileSync(join(group, 'cgroup.procs'), String(pid));
}

/** Burns CPU time rather than wall time, as a busy machine gives a process less. */
async function burn(groups: readonly string[]): Promise<void> {
  const program = `process.stdin.once('data', () => { const from = process.cpuUsage(); while (process.cpuUsage(from).user < ${BURN_MS * 1000}); process.exit(); })`;
  const child = spawn(process.execPath, ['-e', program], {
    stdio: ['pipe', 'ignore', 'ignore'],
    timeout: 20_000,
  });
  enter(groups, child.pid);
  child.stdin.end('go');
  await once(child, 'close');
}

function withTree(t: TestContext, slug: string): CgroupTree {
  const tree = open(slug);
  t.after(() => {
    if (!existsSync(dirname(tree.directoriesOf('any')[0]!))) return;
    tree.sweep(new Set());
    tree.close();
  });
  return tree;
}

test('a VM instance is limited, accounted until its end, and removed', { skip: skipReason() }, async (t) => {
  const tree = withTree(t, 'life');
  assert.ok(tree.status.controllers.includes('memory'), tree.status.reason);
  const directories = await tree.create('unit', LIMITS);
  const memory = directories.find((each) => readdirSync(each).includes('memory.limit_in_bytes'));
  assert.equal(readFileSync(`${memory}/memory.limit_in_bytes`, 'utf8').trim(), String(LIMITS.memBytes));
  await burn(directories);
  const usage = readGroupUsage(directories);
  assert.ok((usage.cpuMs ?? 0) > BURN_MS / 2, `${usage.cpuMs} ms`);
  assert.ok((usage.memPeakBytes ?? 0) > 1 << 20, `${usage.memPeakBytes} bytes`);
  await tree.remove(directories);
  assert.deepEqual(
    directories.filter((directory) => existsSync(directory)),
    [],
  );
  await tree.remove(directories);
});

test('a sweep leaves kept VM instances and groups that hold a process', { skip: skipReason() }, async (t) => {
  const tree = withTree(t, 'sweep');
  await tree.create('kept', LIMITS);
  await tree.create('left', LIMITS);
  const busy = await tree.create('busy', LIMITS);
  const child = spawn('/bin/sleep', ['20'], { stdio: 'ignore', timeout: 20_000 });
  enter(busy, child.pid);
  tree.sweep(new Set(['kept']));
  const exists = (unit: string): boolean => tree.directoriesOf(unit).every((each) => existsSync(each));
  assert.deepEqual([exists('kept'), exists('left'), exists('busy')], [true, false, true]);
  child.kill('SIGKILL');
  await once(child, 'close');
  await tree.remove(tree.directoriesOf('busy'));
  tree.sweep(new Set());
  tree.close();
  assert.equal(existsSync(dirname(tree.directoriesOf('kept')[0]!)), false);
});

test('usage that was never counted is unknown, not zero', () => {
  assert.deepEqual(readGroupUsage(['/nonexistent']), { cpuMs: undefined, memPeakBytes: undefined });
});
