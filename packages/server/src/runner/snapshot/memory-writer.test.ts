import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, mock, test } from 'node:test';
import { AppError } from '@coppice/contract';
import { DeadlineError, pollUntil } from '../../lib/waiting/deadline.ts';
import { MemoryWriter, sumFiles, type MemorySource } from './memory-writer.ts';
import {
  buildCapturePrograms,
  startTestVm,
  type CapturePrograms,
  type TestVm,
} from './testing/capture-programs.ts';

const MIB = 1 << 20;
const RAM_BYTES = 32 * MIB;
const POLL = { timeoutMs: 20_000, intervalMs: 10 };

let programs: CapturePrograms;
let root: string;

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'coppice-memory-'));
  programs = await buildCapturePrograms(root);
});

after(() => rm(root, { recursive: true, force: true }));

/** Starts a VM that has changed a megabyte of RAM, over a base with a megabyte of data. */
async function startVm(): Promise<AsyncDisposable & { vm: TestVm; source: MemorySource }> {
  const directory = await mkdtemp(join(root, 'vm-'));
  const basePath = join(directory, 'base');
  const base = await open(basePath, 'wx');
  await base.truncate(RAM_BYTES);
  await base.write(Buffer.alloc(MIB, 7), 0, MIB, 4 * MIB);
  await base.close();
  const vm = await startTestVm(programs.vm, basePath, RAM_BYTES);
  await vm.order(`fill ${16 * MIB} ${MIB} 1`);
  const source = { pid: vm.pid, basePath, targetPath: join(directory, 'target'), sizeBytes: RAM_BYTES };
  return { vm, source, [Symbol.asyncDispose]: () => vm[Symbol.asyncDispose]() };
}

async function writeScript(text: string): Promise<string> {
  const path = join(await mkdtemp(join(root, 'script-')), 'program');
  await writeFile(path, `#!/bin/sh\n${text}\n`);
  await chmod(path, 0o755);
  return path;
}

test('the file holds what the VM sees at the time of the copy, and the digest matches', async () => {
  await using site = await startVm();
  const { vm, source } = site;
  await using writer = await MemoryWriter.start(programs.capture, source);
  assert.equal(writer.baseBytes, MIB);
  assert.equal(writer.dirtyBytes, MIB);
  await vm.order(`fill ${16 * MIB} ${MIB / 2} 2`);
  await vm.order(`fill ${4 * MIB} 8192 3`);
  const copied = await writer.copy();
  assert.equal(copied.bytes, MIB + 8192);
  assert(copied.elapsedMs > 0);
  const finished = await writer.finish({ sync: true });
  await writer.abort();

  const seenPath = `${source.targetPath}.seen`;
  await vm.order(`dump ${seenPath}`);
  assert((await readFile(source.targetPath)).equals(await readFile(seenPath)));
  const sums = await sumFiles(programs.capture, [source.targetPath, seenPath]);
  const expected = { sizeBytes: RAM_BYTES, digest: finished.digest };
  assert.deepEqual(
    [...sums],
    [source.targetPath, seenPath].map((path) => [path, expected]),
  );
  assert(finished.allocatedBytes >= 2 * MIB && finished.allocatedBytes < RAM_BYTES);
});

test('without sync there is no digest', async () => {
  await using site = await startVm();
  await using writer = await MemoryWriter.start(programs.capture, site.source);
  await writer.copy();
  assert.equal((await writer.finish({ sync: false })).digest, '');
  assert(existsSync(site.source.targetPath));
});

test('an aborted save leaves no file', async () => {
  await using site = await startVm();
  const { targetPath } = site.source;
  for (const steps of [0, 1]) {
    await using writer = await MemoryWriter.start(programs.capture, site.source);
    if (steps === 1) await writer.copy();
    assert(existsSync(targetPath));
    await Promise.all([writer.abort(), writer.abort()]);
    assert(!existsSync(targetPath));
    await assert.rejects(writer.copy(), /ended with 1/u);
  }
  const writer = await MemoryWriter.start(programs.capture, site.source);
  // Either may come first.
  await Promise.allSettled([writer.copy(), writer.abort()]);
  assert(!existsSync(targetPath));
});

test('a VM that goes away causes an error and leaves no file', async () => {
  await using site = await startVm();
  await using writer = await MemoryWriter.start(programs.capture, site.source);
  await site[Symbol.asyncDispose]();
  await assert.rejects(writer.copy(), /saving the memory of a VM: the VM's process is gone/u);
  await writer.abort();
  assert(!existsSync(site.source.targetPath));
  await assert.rejects(MemoryWriter.start(programs.capture, site.source), /process is gone/u);
});

test('an existing file is refused and left alone', async () => {
  await using site = await startVm();
  await writeFile(site.source.targetPath, 'mine');
  await assert.rejects(MemoryWriter.start(programs.capture, site.source), /file exists/u);
  assert.equal(await readFile(site.source.targetPath, 'utf8'), 'mine');
});

test('a full disk is reported with its directory', async () => {
  await using site = await startVm();
  const limited = await writeScript(`ulimit -f 1024\nexec ${programs.capture} "$@"`);
  await assert.rejects(MemoryWriter.start(limited, site.source), (error) => {
    assert(error instanceof AppError);
    assert.equal(error.code, 'capacity');
    return error.message.includes(join(site.source.targetPath, '..'));
  });
  assert(!existsSync(site.source.targetPath));
});

test('a program that is missing, ends early or answers nonsense causes an error', async () => {
  const source = { pid: 1, basePath: '/absent', targetPath: join(root, 'absent', 'target'), sizeBytes: 4096 };
  const refused: [program: string, message: RegExp][] = [
    [join(root, 'absent'), /ENOENT/u],
    [await writeScript('echo broken >&2; exit 3'), /ended with 3: broken/u],
    [await writeScript('kill -9 $$'), /ended with SIGKILL/u],
    [await writeScript('echo nonsense; cat >/dev/null'), /not JSON: nonsense/u],
    [await writeScript(`echo '{"step":"ready"}'; cat >/dev/null`), /base_bytes/u],
  ];
  for (const [program, message] of refused) {
    await assert.rejects(MemoryWriter.start(program, source), message);
  }
});

test('a program that does not answer is killed, and its file is removed', async () => {
  const targetPath = join(await mkdtemp(join(root, 'hang-')), 'target');
  const program = await writeScript(`read plan; echo > '${targetPath}'; exec sleep 60`);
  const source = { pid: 1, basePath: '/absent', targetPath, sizeBytes: 4096 };
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const starting = assert.rejects(MemoryWriter.start(program, source), DeadlineError);
    while (!existsSync(targetPath)) await new Promise((resolve) => void setImmediate(resolve));
    mock.timers.tick(10 * 60_000);
    await starting;
  } finally {
    mock.timers.reset();
  }
  assert(!existsSync(targetPath));
});

test('a killed runner leaves no file', async () => {
  await using site = await startVm();
  const url = new URL('memory-writer.ts', import.meta.url).href;
  const script = `import { MemoryWriter } from '${url}';
    const writer = await MemoryWriter.start('${programs.capture}', ${JSON.stringify(site.source)});
    process.stdout.write('ready');
    await new Promise(() => setInterval(() => writer, 1000));`;
  const runner = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    await once(runner.stdout, 'data', { signal: AbortSignal.timeout(POLL.timeoutMs) });
    assert(existsSync(site.source.targetPath));
  } finally {
    runner.kill('SIGKILL');
  }
  await pollUntil({ ...POLL, step: 'the end of the file' }, () =>
    existsSync(site.source.targetPath) ? undefined : true,
  );
});

test('a file whose digest cannot be computed is named', async () => {
  const good = await writeScript('');
  assert.deepEqual(await sumFiles(programs.capture, []), new Map());
  assert.equal((await sumFiles(programs.capture, [good])).get(good)?.sizeBytes, 11);
  const absent = join(root, 'absent');
  await assert.rejects(sumFiles(programs.capture, [good, absent]), /summing .*\/absent: .*no such file/u);
  await assert.rejects(sumFiles(absent, [good]), /ENOENT/u);
});
