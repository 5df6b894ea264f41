import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  commandInside,
  commandOutside,
  mayRunFrom,
  openClosure,
  surveyQemu,
  type QemuClosure,
  type QemuFiles,
} from './qemu-closure.ts';

/** Accepts any options and links to the common libraries. */
const PROGRAM = '/bin/echo';
const LINKER = '/lib64/ld-linux-x86-64.so.2';

describe('the copy of QEMU', () => {
  let root: string;
  let files: QemuFiles;
  let closure: QemuClosure;
  before(async () => {
    root = mkdtempSync(join(tmpdir(), 'closure-'));
    files = await surveyQemu(PROGRAM);
    for (const { source, target } of files.files) {
      mkdirSync(dirname(join(root, 'copy', target)), { recursive: true });
      cpSync(source, join(root, 'copy', target));
    }
    closure = openClosure(join(root, 'copy'), files);
  });
  after(() => rmSync(root, { recursive: true, force: true }));

  it('holds the program and its libraries, at the same paths as on the host', () => {
    const targets = files.files.map(({ target }) => target);
    assert.deepEqual([files.program, files.linker], [PROGRAM, LINKER]);
    assert.ok(targets.includes(PROGRAM) && targets.includes(LINKER));
    assert.ok(targets.some((target) => basename(target) === 'libc.so.6'));
    const places = readdirSync(closure.directory).map((name) => `/${name}`);
    assert.deepEqual(
      closure.mounts.map(({ target }) => target),
      places,
    );
    assert.deepEqual(commandInside(closure), { program: PROGRAM, args: ['-L', '/firmware'] });
  });

  it('starts outside a jail by its own linker, with its own libraries, under the program’s name', () => {
    const { program, args } = commandOutside(closure);
    assert.equal(program, join(closure.directory, LINKER));
    const [option, libraries, copy, ...others] = args;
    assert.deepEqual([option, copy], ['--library-path', join(closure.directory, PROGRAM)]);
    const directories = libraries?.split(':') ?? [];
    assert.ok(directories.some((directory) => readdirSync(directory).includes('libc.so.6')));
    assert.ok(!directories.includes(dirname(String(copy))));
    assert.deepEqual(others, ['-L', join(closure.directory, 'firmware'), '-name', 'process=echo']);
  });

  it('is in use by a process that runs its linker or has it as its root directory', async () => {
    const linker = join(closure.directory, closure.linker);
    const libraries = closure.libraryDirectories.map((path) => join(closure.directory, path)).join(':');
    const child = spawn(linker, ['--library-path', libraries, '/bin/sleep', '30'], { stdio: 'ignore' });
    try {
      await once(child, 'spawn');
      const pid = Number(child.pid);
      const other = join(root, 'other');
      mkdirSync(join(other, 'usr'), { recursive: true });
      assert.deepEqual([mayRunFrom(pid, closure.directory), mayRunFrom(pid, other)], [true, false]);
      // The same directory as this process sees at that path.
      const rooted = join(root, 'rooted');
      mkdirSync(rooted);
      symlinkSync('/usr', join(rooted, 'usr'));
      assert.equal(mayRunFrom(process.pid, rooted), true);
      assert.equal(mayRunFrom(process.pid, closure.directory), false);
    } finally {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
    assert.equal(mayRunFrom(Number(child.pid), closure.directory), false);
  });

  it('cannot be made of a program that does not load', async () => {
    await assert.rejects(surveyQemu(join(root, 'absent')));
  });
});
