/**
 * An escaped guest can do what a program in QEMU's place can do. The runner's own plan and launcher start a hostile
 * program here instead of QEMU, alongside two sandboxes of a real service.
 */
import assert from 'node:assert/strict';
import { chmodSync, chownSync, copyFileSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../../packages/server/src/config/config.ts';
import type { Confinement } from '../../packages/server/src/lib/protocol/runner-protocol.ts';
import type { JailPlan } from '../../packages/server/src/runner/confinement/jail-plan.ts';
import { Jail } from '../../packages/server/src/runner/confinement/jail.ts';
import { mayRunFrom } from '../../packages/server/src/runner/confinement/qemu-closure.ts';
import { MachineStore } from '../../packages/server/src/runner/machine/machine-store.ts';
import { INSIDE } from '../../packages/server/src/runner/confinement/vm-layout.ts';
import { Api } from '../fixtures/api/api.ts';
import {
  findSandbox,
  listTargets,
  makeSocketDirectory,
  overlayIn,
  planOf,
  type HostilePlace,
  type OwnFiles,
} from '../fixtures/confinement/hostile-place.ts';
import { buildHostile, runHostile, type HostileEnd } from '../fixtures/confinement/hostile.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { makeTestCgroup } from '../fixtures/confinement/test-cgroup.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256 };
const DIRECTORY = '/var/tmp/coppice-e2e-hostile';
const HOSTILE = join(DIRECTORY, 'hostile');
const ORDINARY_UID = 65_534;
const MIB = 1024 * 1024;

/** Expected errors of attempts; EPERM for all others. */
const ANSWERS: readonly [RegExp, string][] = [
  [/^permitted: /u, 'ok'],
  [/^read \//u, 'ENOENT'],
  [/^find socket /u, 'ENOENT'],
  [/^open a socket: Unix datagram$/u, 'EPERM'],
  // QEMU may connect to the block server. In an empty network namespace no other process has an abstract name.
  [/^connect to an abstract name$/u, 'ECONNREFUSED'],
  [/^connect to \//u, 'ENOENT'],
  [/^open a socket: /u, 'EAFNOSUPPORT'],
  [/^open for writing /u, 'EACCES'],
  [/^change the mode of /u, 'EROFS'],
  // The directory of a VM's overlays belongs to the runner.
  [/^make a file beside the scratch disk$/u, 'EACCES'],
  [/^make a directory in the root$/u, 'EROFS'],
  [/^run a file with the setuid bit$/u, 'EACCES'],
  [/^write beyond the limit of file size$/u, 'EFBIG'],
  [/^(?:clone3|io_uring|a call that does not exist)$/u, 'ENOSYS'],
  [/^take back no_new_privs$/u, 'EINVAL'],
];
const LISTS = new Set(['open descriptors', 'names in the root directory']);

function expected(attempt: string): string {
  return ANSWERS.find(([pattern]) => pattern.test(attempt))?.[1] ?? 'EPERM';
}

/** Returns attempts whose result is not the expected one, without those that match `except`. */
function unexpected(results: ReadonlyMap<string, string>, except?: RegExp): string[] {
  return [...results]
    .filter(([attempt]) => !LISTS.has(attempt) && except?.test(attempt) !== true)
    .filter(([attempt, result]) => result !== expected(attempt))
    .map(([attempt, result]) => `${attempt}: ${result}, not ${expected(attempt)}`);
}

describe('a hostile program in QEMU’s place', () => {
  const { tools } = loadConfig().runner;
  let service: Service;
  let api: Api;
  let place: HostilePlace;
  let ids: string[] = [];
  let uid: number;

  before(async () => {
    rmSync(DIRECTORY, { recursive: true, force: true });
    mkdirSync(DIRECTORY, { mode: 0o711 });
    buildHostile(HOSTILE);
    service = await startPrepared({ instance: 3 });
    api = new Api(service);
    const [first, second] = [(await api.create(IMAGE)).id, (await api.create(IMAGE)).id];
    ids = [first, second];
    const own = findSandbox(service, first);
    uid = own.record.uid;
    const jail = await Jail.open({
      launcherPath: tools.jail,
      uid,
      log: pino({ level: 'silent' }),
    });
    const machines = await MachineStore.open({
      directory: join(service.dataDir, 'runner', 'machines'),
      tools,
      confinement: jail.confinement.kind,
      log: pino({ level: 'silent' }),
    });
    place = {
      service,
      jail,
      machine: machines.current,
      program: HOSTILE,
      own,
      other: findSandbox(service, second),
    };
  });

  after(async () => {
    await service[Symbol.asyncDispose]();
    rmSync(DIRECTORY, { recursive: true, force: true });
  });

  const attack = (sockets: string, own?: OwnFiles): string[] => [
    'attack',
    join(sockets, 'report'),
    JSON.stringify(listTargets(place, own)),
  ];

  const run = (kind: Confinement, socketDirectory: string, plan: JailPlan): Promise<HostileEnd> =>
    runHostile({
      kind,
      plan,
      socketDirectory,
      launcherPath: tools.jail,
      ...(plan.uid === undefined ? { uid: ORDINARY_UID } : {}),
    });

  const assertRan = (end: HostileEnd): void => {
    assert.equal(end.code, 0, `${end.signal} ${end.messages}`);
    assert.ok(end.results.size > 90, `only ${end.results.size} attempts were made`);
    assert.equal(end.results.get('open descriptors'), '[3]');
  };

  it('reaches only files of its own VM', async () => {
    assert.equal(place.jail.confinement.kind, 'full', place.jail.confinement.reason);
    assert.equal((await fetch(`${service.address}/healthz`)).status, 200);
    const sockets = makeSocketDirectory(DIRECTORY, 'full', uid);
    const end = await run(
      'full',
      sockets,
      planOf(place, { socketDirectory: sockets, args: attack(INSIDE.sockets) }),
    );
    assertRan(end);
    assert.deepEqual(unexpected(end.results), []);
    assert.equal(
      end.results.get('names in the root directory'),
      '[blocks dev disk firmware hostile image initramfs kernel lib lib64 ram run scratch-base state usr workspace]',
    );
    assert.equal(readFileSync(overlayIn(sockets), 'latin1'), 'mineing');
  });

  it('is held by the same jail when the service runs as an ordinary user', async () => {
    const sockets = makeSocketDirectory(DIRECTORY, 'user-namespace', ORDINARY_UID);
    const { uid: _none, ...plan } = planOf(place, { socketDirectory: sockets, args: attack(INSIDE.sockets) });
    // All files of such a service belong to that user.
    const mounts = plan.mounts.map((mount) => {
      if (mount.target !== INSIDE.image && mount.target !== INSIDE.ram) return mount;
      const copy = join(sockets, mount.target);
      copyFileSync(mount.source, copy);
      chownSync(copy, ORDINARY_UID, ORDINARY_UID);
      chmodSync(copy, 0o600);
      return { ...mount, source: copy };
    });
    const kept = mounts.filter(({ source }) => !source.startsWith(service.dataDir));
    const { tasks: _tasks, ...limits } = plan.limits;
    const end = await run('user-namespace', sockets, { ...plan, limits, mounts: kept });
    assertRan(end);
    assert.deepEqual(unexpected(end.results, /^open for writing/u), []);
    for (const path of [INSIDE.image, INSIDE.ram])
      assert.equal(end.results.get(`open for writing ${path}`), 'EROFS');
  });

  it('without namespaces reaches no other process, no network and no privilege', async () => {
    const sockets = makeSocketDirectory(DIRECTORY, 'reduced', ORDINARY_UID);
    const disk = overlayIn(sockets);
    const files = { image: disk, ram: disk, scratch: disk, sockets };
    const args = attack(sockets, files);
    const { uid: _none, ...plan } = planOf(place, { socketDirectory: sockets, args });
    const reduced = { ...plan, mounts: [], program: HOSTILE };
    const end = await run('reduced', sockets, reduced);
    assertRan(end);
    const ofFiles =
      /^(?:read \/|find socket|connect to \/|open for writing|change the mode|make a dir|run a file)/u;
    assert.deepEqual(unexpected(end.results, ofFiles), []);
    const [scratch, otherSockets] = listTargets(place).paths;
    for (const path of [scratch, otherSockets]) assert.equal(end.results.get(`read ${path}`), 'EACCES');
    for (const path of listTargets(place).sockets)
      assert.equal(end.results.get(`connect to ${path}`), 'EACCES');
    // This kind of confinement does not protect the file; see docs/security.md.
    assert.equal(end.results.get('read /etc/passwd'), 'ok');
  });

  // The count of the Go runtime includes the thread that it could not start.
  it('cannot start more threads than a VM has', async () => {
    const sockets = makeSocketDirectory(DIRECTORY, 'threads', uid);
    const plan = planOf(place, { socketDirectory: sockets, args: ['threads'] });
    const end = await run('full', sockets, plan);
    assert.equal(end.code, 2, end.messages);
    const had = Number(
      /failed to create new OS thread \(have (\d+) already; errno=11\)/u.exec(end.messages)?.[1],
    );
    assert.ok(had > 50 && had <= Number(plan.limits.tasks) + 1, end.messages.slice(0, 300));
  });

  it('is bound by the limits of its cgroups', async () => {
    using cgroup = makeTestCgroup({ memoryBytes: 64 * MIB, tasks: 30 });
    const memory = makeSocketDirectory(DIRECTORY, 'memory', uid);
    const cgroups = cgroup.directories;
    const greedy = await run(
      'full',
      memory,
      planOf(place, { socketDirectory: memory, args: ['memory'], cgroups }),
    );
    assert.equal(greedy.signal, 'SIGKILL', greedy.messages);
    assert.equal(cgroup.countOutOfMemory(), 1);
    const threads = makeSocketDirectory(DIRECTORY, 'cgroup-threads', uid);
    const end = await run(
      'full',
      threads,
      planOf(place, { socketDirectory: threads, args: ['threads'], cgroups }),
    );
    const had = Number(/failed to create new OS thread \(have (\d+) already/u.exec(end.messages)?.[1]);
    assert.ok(had > 5 && had <= 31, end.messages.slice(0, 300));
  });

  it('is reported in one line when it does not exist', async () => {
    const sockets = makeSocketDirectory(DIRECTORY, 'absent', uid);
    const plan = { ...planOf(place, { socketDirectory: sockets, args: [] }), program: '/absent' };
    const end = await run('full', sockets, plan);
    assert.equal(end.code, 1);
    assert.equal(end.messages, 'jail: starting /absent: no such file or directory\n');
  });

  it('is found by the machine that its VM was started with', () => {
    const { directory } = place.machine.closure;
    for (const pid of service.vmPids()) assert.ok(mayRunFrom(pid, directory));
    assert.ok(!mayRunFrom(process.pid, directory));
  });

  it('has harmed neither sandbox', async () => {
    for (const id of ids) assert.equal((await api.exec(id, 'echo unharmed')).stdout, 'unharmed\n');
    const pids = [place.own, place.other].map(({ record }) => record.process?.pid);
    assert.deepEqual(new Set(service.vmPids()), new Set(pids));
  });
});
