import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ensureQemuClosure, sweepQemuClosures, type QemuClosure } from './qemu-closure.ts';

/** Answers `-L help` as QEMU does, and is linked to nothing; `ldd` is asked about a real program. */
function writeProgram(path: string, firmware: string): void {
  execFileSync('cp', ['/bin/echo', path], { timeout: 10_000 });
  writeFileSync(join(firmware, 'bios-microvm.bin'), 'firmware');
  writeFileSync(join(firmware, 'vgabios.bin'), 'of no use here');
}

describe('the copy of QEMU', () => {
  let root: string;
  let program: string;
  let closure: QemuClosure;
  before(async () => {
    root = mkdtempSync(join(tmpdir(), 'closure-'));
    program = join(root, 'qemu');
    writeProgram(program, root);
    closure = await ensureQemuClosure(join(root, 'copies'), program);
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  it('holds the program, which nobody may read, and the libraries that it is linked to', () => {
    assert.equal(statSync(join(closure.directory, program)).mode & 0o777, 0o111);
    const linker = '/lib64/ld-linux-x86-64.so.2';
    assert.equal(statSync(join(closure.directory, linker)).size, statSync(linker).size);
    assert.deepEqual(
      closure.mounts.map(({ target }) => target),
      readdirSync(closure.directory).map((name) => `/${name}`),
    );
    assert.ok(closure.mounts.every(({ source }) => source.startsWith(closure.directory)));
  });

  it('is made once for each version of the program', async () => {
    const again = await ensureQemuClosure(join(root, 'copies'), program);
    assert.equal(again.directory, closure.directory);
    utimesSync(program, 1, 1);
    const changed = await ensureQemuClosure(join(root, 'copies'), program);
    assert.notEqual(changed.directory, closure.directory);
    assert.ok(existsSync(closure.directory), 'a VM may still run from it');
    rmSync(changed.directory, { recursive: true });
  });

  it('stays as long as it is current or a process has it for its root directory', () => {
    const parent = join(root, 'copies');
    const [used, unused, unfinished] = ['used', 'unused', 'x.building'].map((name) => join(parent, name));
    for (const directory of [used, unused, unfinished]) mkdirSync(String(directory));
    // The same directory as this process sees at that place, and another one.
    symlinkSync('/usr', join(String(used), 'usr'));
    mkdirSync(join(String(unused), 'usr'));
    const swept = sweepQemuClosures(closure, [process.pid]);
    assert.deepEqual(new Set(swept), new Set([unused, unfinished]));
    assert.ok(existsSync(String(used)) && existsSync(closure.directory));
    assert.deepEqual(sweepQemuClosures(closure, []), [used]);
    assert.ok(existsSync('/usr/bin'), 'what a copy links to is not followed');
  });
});
