import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { MachineStore, type Machine, type MachineStoreOptions } from './machine-store.ts';

const NOTHING: ReadonlySet<string> = new Set();

/** A host with a program for QEMU, a kernel and an initramfs. */
class Host {
  readonly directory: string;
  readonly tools: MachineStoreOptions['tools'];

  constructor(context: TestContext) {
    const root = mkdtempSync(join(tmpdir(), 'machines-'));
    context.after(() => rmSync(root, { recursive: true, force: true }));
    const [qemu, kernel, initramfs] = ['qemu', 'kernel', 'initramfs'].map((name) => join(root, name));
    this.tools = { qemu: String(qemu), kernel: String(kernel), initramfs: String(initramfs) };
    this.directory = join(root, 'machines');
    // It accepts any options.
    copyFileSync('/bin/echo', this.tools.qemu);
    writeFileSync(this.tools.kernel, makeKernel('6.1.0-56-cloud-amd64'));
    writeFileSync(this.tools.initramfs, 'agent one');
  }

  open(how: Partial<MachineStoreOptions> = {}): Promise<MachineStore> {
    const { directory, tools } = this;
    const log = pino({ level: 'silent' });
    return MachineStore.open({ directory, tools, confinement: 'user-namespace', log, ...how });
  }

  upgradeQemu(time: number): void {
    utimesSync(this.tools.qemu, time, time);
  }

  upgradeAgent(): void {
    writeFileSync(this.tools.initramfs, 'agent two');
  }

  listKeys(): Set<string> {
    return new Set(readdirSync(this.directory));
  }
}

/** The part of a kernel's header that names its release. */
function makeKernel(release: string): Buffer {
  const kernel = Buffer.alloc(2048);
  kernel.write('HdrS', 0x202);
  kernel.writeUInt16LE(0x400, 0x20e);
  kernel.write(`${release} (someone@somewhere) #1 SMP`, 0x600);
  return kernel;
}

function programOf({ closure }: Machine): string {
  return join(closure.directory, closure.program);
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;
const inodeOf = (path: string): number => statSync(path).ino;

test('a machine has its own read-only QEMU, kernel and initramfs, and reports their versions', async (context) => {
  const host = new Host(context);
  const { current } = await host.open();
  assert.deepEqual(host.listKeys(), new Set([current.key]));
  assert.equal(readFileSync(current.initramfsPath, 'utf8'), 'agent one');
  assert.deepEqual(readFileSync(current.kernelPath), readFileSync(host.tools.kernel));
  assert.deepEqual(readFileSync(programOf(current)), readFileSync(host.tools.qemu));
  assert.deepEqual([current.kernelPath, current.initramfsPath].map(modeOf), [0o444, 0o444]);
  assert.deepEqual(current.versions, {
    qemu: current.versions.qemu,
    kernel: '6.1.0-56-cloud-amd64',
    agent: 'a04f560d4d61',
  });
  assert.match(current.versions.qemu, /^echo /u);
});

test('a machine is made once, and again when a part of it is gone', async (context) => {
  const host = new Host(context);
  const first = (await host.open()).current;
  const made = inodeOf(first.kernelPath);
  const second = (await host.open()).current;
  assert.deepEqual([second.key, inodeOf(second.kernelPath)], [first.key, made]);
  rmSync(programOf(first));
  const third = (await host.open()).current;
  assert.equal(third.key, first.key);
  assert.ok(existsSync(programOf(third)));
  assert.deepEqual(host.listKeys(), new Set([first.key]));
});

test('QEMU is unreadable in a jail; outside a jail, and as an ordinary user, its own user can read it', async (context) => {
  const host = new Host(context);
  const { current } = await host.open({ confinement: 'full' });
  assert.equal(modeOf(programOf(current)), 0o111);
  for (const confinement of ['user-namespace', 'reduced'] as const) {
    const again = await host.open({ confinement });
    assert.deepEqual([again.current.key, modeOf(programOf(current))], [current.key, 0o555]);
  }
});

test('another QEMU or agent makes another machine, and shared files are on disk once', async (context) => {
  const host = new Host(context);
  const before = (await host.open()).current;
  host.upgradeQemu(1);
  const upgraded = (await host.open()).current;
  host.upgradeAgent();
  const store = await host.open();
  const keys = [before, upgraded, store.current].map(({ key }) => key);
  assert.equal(new Set(keys).size, 3);
  assert.deepEqual(host.listKeys(), new Set(keys));
  for (const machine of [before, upgraded]) assert.deepEqual(store.find(machine.key), machine);
  assert.equal(store.find('another'), undefined);
  assert.equal(inodeOf(before.kernelPath), inodeOf(store.current.kernelPath));
  assert.equal(inodeOf(upgraded.initramfsPath), inodeOf(before.initramfsPath));
  assert.notEqual(inodeOf(store.current.initramfsPath), inodeOf(before.initramfsPath));
  assert.notEqual(inodeOf(programOf(upgraded)), inodeOf(programOf(before)));
  assert.equal(inodeOf(programOf(upgraded)), inodeOf(programOf(store.current)));
  const linker = (machine: Machine): string => join(machine.closure.directory, machine.closure.linker);
  assert.equal(inodeOf(linker(before)), inodeOf(linker(store.current)));
});

test('a sweep removes machines that nothing needs, and unfinished ones', async (context) => {
  const host = new Host(context);
  const old = (await host.open()).current;
  host.upgradeQemu(1);
  const kept = (await host.open()).current;
  host.upgradeAgent();
  const store = await host.open();
  mkdirSync(join(host.directory, 'x.building'));
  mkdirSync(join(host.directory, 'unreadable'));
  store.sweep(new Set([kept.key, old.key]), []);
  assert.deepEqual(host.listKeys(), new Set([old.key, kept.key, store.current.key]));
  store.sweep(new Set([kept.key]), [process.pid]);
  assert.deepEqual(host.listKeys(), new Set([kept.key, store.current.key]));
  assert.deepEqual([store.find(old.key), store.find(kept.key)?.key], [undefined, kept.key]);
  assert.equal(readFileSync(kept.initramfsPath, 'utf8'), 'agent one', 'links to it are gone, not the file');
  store.sweep(NOTHING, []);
  assert.deepEqual(host.listKeys(), new Set([store.current.key]));
});

test('a machine stays as long as a VM runs from it, even when no key is kept', async (context) => {
  const host = new Host(context);
  const { closure, key } = (await host.open({ confinement: 'reduced' })).current;
  const libraries = closure.libraryDirectories.map((path) => join(closure.directory, path)).join(':');
  const linker = join(closure.directory, closure.linker);
  const vm = spawn(linker, ['--library-path', libraries, '/bin/sleep', '30'], { stdio: 'ignore' });
  await once(vm, 'spawn');
  host.upgradeQemu(1);
  const store = await host.open({ confinement: 'reduced' });
  const pids = [Number(vm.pid)];
  store.sweep(NOTHING, pids);
  assert.deepEqual(host.listKeys(), new Set([key, store.current.key]));
  vm.kill('SIGKILL');
  await once(vm, 'exit');
  store.sweep(NOTHING, pids);
  assert.deepEqual(host.listKeys(), new Set([store.current.key]));
});

test('a sweep also removes the copies of QEMU that earlier releases made', async (context) => {
  const host = new Host(context);
  const formerDirectory = `${host.directory}-former`;
  const store = await host.open({ formerDirectory });
  store.sweep(NOTHING, []);
  mkdirSync(join(formerDirectory, 'a', 'usr'), { recursive: true });
  store.sweep(NOTHING, [process.pid]);
  assert.equal(existsSync(formerDirectory), false);
});
