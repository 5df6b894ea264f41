/**
 * An escaped guest is whoever runs in QEMU's place. Here a program that tries what such a guest would try is put there,
 * by the plan and the launcher that QEMU itself is started with, beside two sandboxes of a real service.
 */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../packages/server/src/config.ts';
import type { Confinement } from '../packages/server/src/lib/runner-protocol.ts';
import { findVmRecord, type VmRecord } from '../packages/server/src/runner/adopt/vm-record.ts';
import type { JailPlan } from '../packages/server/src/runner/confinement/jail-plan.ts';
import { Jail } from '../packages/server/src/runner/confinement/jail.ts';
import { INSIDE } from '../packages/server/src/runner/confinement/vm-layout.ts';
import type { QemuOptions } from '../packages/server/src/runner/vmm/qemu-arguments.ts';
import { Api } from './fixtures/api.ts';
import { buildHostile, runHostile, type HostileEnd } from './fixtures/hostile.ts';
import { Service } from './fixtures/service.ts';
import { makeTestCgroup } from './fixtures/test-cgroup.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256 };
const DIRECTORY = '/var/tmp/coppice-e2e-hostile';
const HOSTILE = join(DIRECTORY, 'hostile');
const INSIDE_HOSTILE = '/hostile';
const ORDINARY_UID = 65_534;
const OWN = {
  image: INSIDE.image,
  ram: INSIDE.ram,
  scratch: INSIDE.scratch,
  sockets: INSIDE.sockets,
};
const MIB = 1024 * 1024;

/** What an attempt must meet where it is not EPERM. */
const ANSWERS: readonly [RegExp, string][] = [
  [/^permitted: /u, 'ok'],
  [/^read \//u, 'ENOENT'],
  [/^find socket /u, 'ENOENT'],
  [/^open a socket: Unix datagram$/u, 'EPERM'],
  [/^open a socket: /u, 'EAFNOSUPPORT'],
  [/^open for writing /u, 'EACCES'],
  [/^change the mode of /u, 'EROFS'],
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

/** Attempts that met something else than they must, but for those that `except` takes out. */
function unexpected(results: ReadonlyMap<string, string>, except?: RegExp): string[] {
  return [...results]
    .filter(([attempt]) => !LISTS.has(attempt) && except?.test(attempt) !== true)
    .filter(([attempt, result]) => result !== expected(attempt))
    .map(([attempt, result]) => `${attempt}: ${result}, not ${expected(attempt)}`);
}

describe('a hostile program in QEMU’s place', () => {
  const { runner } = loadConfig();
  let service: Service;
  let api: Api;
  let jail: Jail;
  let ids: string[] = [];
  let own: VmRecord;
  let other: VmRecord;

  before(async () => {
    rmSync(DIRECTORY, { recursive: true, force: true });
    mkdirSync(DIRECTORY, { mode: 0o711 });
    buildHostile(HOSTILE);
    service = await Service.start({ instance: 3 });
    api = new Api(service);
    ids = [(await api.create(IMAGE)).id, (await api.create(IMAGE)).id];
    const vms = join(service.dataDir, 'runner', 'vms');
    const records = readdirSync(vms).map((unit) => findVmRecord(join(vms, unit)));
    [own, other] = ids.map((id) => records.find((record) => record?.info.id === id)) as [VmRecord, VmRecord];
    jail = await Jail.open({
      launcherPath: runner.tools.jail,
      qemuPath: runner.tools.qemu,
      directory: join(service.dataDir, 'runner', 'qemu'),
      uid: own.uid,
      log: pino({ level: 'silent' }),
    });
  });

  after(async () => {
    await service[Symbol.asyncDispose]();
    rmSync(DIRECTORY, { recursive: true, force: true });
  });

  /** Whose record is of that unit. */
  const unitOf = (record: VmRecord): string => {
    const vms = join(service.dataDir, 'runner', 'vms');
    const unit = readdirSync(vms).find((name) => findVmRecord(join(vms, name))?.info.id === record.info.id);
    assert.ok(unit !== undefined);
    return unit;
  };

  /** A new directory of that user, with a disk of its own: the VM's real one is in use. */
  const makeSocketDirectory = (name: string, uid: number): string => {
    const directory = join(DIRECTORY, name);
    mkdirSync(directory, { mode: 0o700 });
    writeFileSync(join(directory, 'disk'), 'nothing', { mode: 0o600 });
    for (const path of [directory, join(directory, 'disk')]) chownSync(path, uid, uid);
    return directory;
  };

  /** The very plan of the first sandbox's QEMU, but for the program. */
  const planOf = (socketDirectory: string, args: string[], cgroupProcs: string[] = []): JailPlan => {
    const data = join(service.dataDir, 'runner');
    const template = join(data, 'templates', own.template);
    const image = join(data, 'images', 'images', own.image_digest.replace(':', '-'), 'image.squashfs');
    const options: QemuOptions = {
      name: 'hostile',
      shape: { accelerator: 'tcg', vcpus: own.info.vcpus, memMiB: own.info.mem_mib },
      network: true,
      tscKhz: 1,
      mode: { kind: 'restore', statePath: join(template, 'devices') },
      files: {
        kernelPath: runner.tools.kernel,
        initramfsPath: runner.tools.initramfs,
        ramPath: join(template, 'ram'),
        socketDirectory,
        disks: {
          imagePath: image,
          scratchBasePath: join(data, 'scratch', `v1-${own.info.disk_mib}`, 'base.ext4'),
          scratchPath: join(socketDirectory, 'disk'),
        },
      },
    };
    // What stands at 4 and 5 is more than the plan lets through.
    const plan = jail.buildPlan(options, { uid: own.uid, cgroupProcs, descriptors: ['ignore', 'ignore', 3] });
    const mounts = [...plan.mounts, { source: HOSTILE, target: INSIDE_HOSTILE, executable: true }];
    return { ...plan, mounts, program: INSIDE_HOSTILE, args };
  };

  const postgresSockets = (): string[] => {
    const directory = join(service.runDir, 'control');
    return readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.s\.PGSQL\.\d+$/u.test(name))
      .map((name) => join(directory, name));
  };

  const targets = () => {
    const sockets = join(service.runDir, 'v', unitOf(other));
    const scratch = join(service.dataDir, 'runner', 'vms', unitOf(other), 'scratch.qcow2');
    const pids = [own.process?.pid, other.process?.pid, service.rolePid('runner'), process.pid];
    const found = {
      paths: [scratch, sockets, service.dataDir, service.runDir, `/proc/${other.process?.pid}/root`],
      sockets: [join(service.runDir, 'runner.sock'), join(sockets, 'qmp'), ...postgresSockets()],
      pids,
      own: OWN,
      tap: 3,
    };
    // There is something to be reached, or that it was not reached says nothing.
    for (const path of [...found.paths, ...found.sockets]) assert.ok(existsSync(path), path);
    assert.equal(found.sockets.length, 3, 'PostgreSQL’s socket is where it is looked for');
    for (const pid of pids) assert.ok(existsSync(`/proc/${pid}/stat`));
    return found;
  };

  const attackArgs = (sockets: string, more: object = {}): string[] => [
    'attack',
    join(sockets, 'report'),
    JSON.stringify({ ...targets(), ...more }),
  ];

  const assertRan = (end: HostileEnd): void => {
    assert.equal(end.code, 0, `${end.signal} ${end.messages}`);
    assert.ok(end.results.size > 90, `only ${end.results.size} attempts were made`);
    assert.equal(end.results.get('open descriptors'), '[3]');
  };

  const run = (kind: Confinement, socketDirectory: string, plan: JailPlan, uid?: number) =>
    runHostile({
      kind,
      plan,
      socketDirectory,
      launcherPath: runner.tools.jail,
      ...(uid === undefined ? {} : { uid }),
    });

  it('reaches nothing but its own VM’s files', async () => {
    assert.equal(jail.confinement.kind, 'full', jail.confinement.reason);
    assert.equal((await fetch(`${service.address}/healthz`)).status, 200);
    const sockets = makeSocketDirectory('full', own.uid);
    const end = await run('full', sockets, planOf(sockets, attackArgs(INSIDE.sockets)));
    assertRan(end);
    assert.deepEqual(unexpected(end.results), []);
    assert.equal(
      end.results.get('names in the root directory'),
      '[dev firmware hostile image initramfs kernel lib lib64 ram run scratch scratch-base state usr]',
    );
    assert.equal(readFileSync(join(sockets, 'disk'), 'latin1'), 'mineing');
  });

  it('is held by the same jail where the service is an ordinary user’s', async () => {
    const sockets = makeSocketDirectory('user-namespace', ORDINARY_UID);
    const { uid: _none, ...plan } = planOf(sockets, attackArgs(INSIDE.sockets));
    // All of such a service's files are that user's own.
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
    const end = await run('user-namespace', sockets, { ...plan, limits, mounts: kept }, ORDINARY_UID);
    assertRan(end);
    assert.deepEqual(unexpected(end.results, /^open for writing/u), []);
    for (const path of [INSIDE.image, INSIDE.ram])
      assert.equal(end.results.get(`open for writing ${path}`), 'EROFS');
  });

  it('without namespaces reaches neither other processes nor networks nor privileges', async () => {
    const sockets = makeSocketDirectory('reduced', ORDINARY_UID);
    const disk = join(sockets, 'disk');
    const paths = { own: { image: disk, ram: disk, scratch: disk, sockets } };
    const { uid: _none, ...plan } = planOf(sockets, attackArgs(sockets, paths));
    const reduced = { ...plan, mounts: [], program: HOSTILE };
    const end = await run('reduced', sockets, reduced, ORDINARY_UID);
    assertRan(end);
    const ofFiles = /^(?:read \/|find socket|open for writing|change the mode|make a dir|run a file)/u;
    assert.deepEqual(unexpected(end.results, ofFiles), []);
    const [scratch, otherSockets] = targets().paths;
    for (const path of [scratch, otherSockets]) assert.equal(end.results.get(`read ${path}`), 'EACCES');
    // What this kind does not keep from it, as docs/security.md says.
    assert.equal(end.results.get('read /etc/passwd'), 'ok');
  });

  // The Go runtime counts the thread that it could not start, too.
  it('cannot start more threads than a VM has', async () => {
    const sockets = makeSocketDirectory('threads', own.uid);
    const plan = planOf(sockets, ['threads']);
    const end = await run('full', sockets, plan);
    assert.equal(end.code, 2, end.messages);
    const had = Number(
      /failed to create new OS thread \(have (\d+) already; errno=11\)/u.exec(end.messages)?.[1],
    );
    assert.ok(had > 50 && had <= Number(plan.limits.tasks) + 1, end.messages.slice(0, 300));
  });

  it('is held to the limits of the cgroups that it is started in', async () => {
    using cgroup = makeTestCgroup({ memoryBytes: 64 * MIB, tasks: 30 });
    const memory = makeSocketDirectory('memory', own.uid);
    const greedy = await run('full', memory, planOf(memory, ['memory'], cgroup.procs));
    assert.equal(greedy.signal, 'SIGKILL', greedy.messages);
    assert.equal(cgroup.countOutOfMemory(), 1);
    const threads = makeSocketDirectory('cgroup-threads', own.uid);
    const end = await run('full', threads, planOf(threads, ['threads'], cgroup.procs));
    const had = Number(/failed to create new OS thread \(have (\d+) already/u.exec(end.messages)?.[1]);
    assert.ok(had > 5 && had <= 31, end.messages.slice(0, 300));
  });

  it('sees a program that is not there told in one line', async () => {
    const sockets = makeSocketDirectory('absent', own.uid);
    const plan = { ...planOf(sockets, []), program: '/absent' };
    const end = await run('full', sockets, plan);
    assert.equal(end.code, 1);
    assert.equal(end.messages, 'jail: starting /absent: no such file or directory\n');
  });

  it('has harmed nobody', async () => {
    for (const id of ids) assert.equal((await api.exec(id, 'echo unharmed')).stdout, 'unharmed\n');
    assert.equal(
      own.process?.pid,
      service.vmPids().find((pid) => pid === own.process?.pid),
    );
  });
});
