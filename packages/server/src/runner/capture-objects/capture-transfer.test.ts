/** The process that moves a capture, in the place of which a script runs. */
import assert from 'node:assert/strict';
import { chmodSync, closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { z } from 'zod';
import { runTransfer, type Transfer } from './capture-transfer.ts';

const directory = mkdtempSync(join(tmpdir(), 'cop-transfer-'));
after(() => rmSync(directory, { recursive: true }));
const ID = `snap${'1'.repeat(20)}`;
const Bytes = z.object({ sent_bytes: z.int() });

function run(script: string, more: Partial<Transfer> = {}): Promise<{ sent_bytes: number }> {
  const program = join(directory, 'program');
  writeFileSync(program, `#!/bin/sh\nread -r request\n${script}\n`);
  chmodSync(program, 0o755);
  const transfer = {
    organization: 'org',
    captureId: ID,
    about: 'about',
    files: [],
    timeoutMs: 1000,
    signal: new AbortController().signal,
    ...more,
  };
  return runTransfer({ command: program, args: ['store'], env: {} }, transfer, Bytes);
}

test('the program gets the request, and the files under the descriptors that it names', async () => {
  const seen = join(directory, 'seen');
  const [file, seed] = ['file', 'seed'].map((name) => {
    writeFileSync(join(directory, name), `content of ${name}`);
    return openSync(join(directory, name), 'r');
  });
  const files = [
    { name: 'ram', descriptor: file! },
    { name: 'image.squashfs', descriptor: file! + 0, seed: seed! },
  ];
  const script = `{ echo "$request"; cat <&3; echo; cat <&5; } > ${seen}; echo '{"result":{"sent_bytes":7}}'`;
  assert.deepEqual(
    await run(script, { files: [files[0]!, { ...files[1]!, descriptor: openSync(seen, 'a') }] }),
    {
      sent_bytes: 7,
    },
  );
  const [request, ram, image] = readFileSync(seen, 'utf8').split('\n');
  assert.deepEqual(JSON.parse(request!), {
    org: 'org',
    capture: ID,
    about: 'about',
    files: [
      { name: 'ram', fd: 3, seed_fd: 0 },
      { name: 'image.squashfs', fd: 4, seed_fd: 5 },
    ],
    timeout_ms: 1000,
  });
  assert.deepEqual([ram, image], ['content of file', 'content of seed']);
  closeSync(file!);
  closeSync(seed!);
});

test('errors keep their codes', async () => {
  const answer = (code: string): string => `echo '{"error":{"code":"${code}","message":"of a chunk"}}'`;
  await assert.rejects(run(answer('corrupt')), { reason: 'corrupt', message: 'of a chunk' });
  await assert.rejects(run(answer('no_capture')), { code: 'not_found', reason: 'no_capture' });
  await assert.rejects(run(answer('store_full')), { code: 'unavailable', reason: 'store_full' });
});

test('a program that dies, says nothing or is missing is an error', async () => {
  await assert.rejects(run('echo out of memory >&2; kill -9 $$'), {
    code: 'unavailable',
    message: /SIGKILL: out of memory/u,
  });
  await assert.rejects(run('exit 0'), SyntaxError);
  await assert.rejects(run(`echo '{"result":{}}'`), { name: 'ZodError' });
  const nothing = { command: join(directory, 'missing'), args: [], env: {} };
  const transfer = { organization: 'org', captureId: ID, about: '', files: [], timeoutMs: 1000 };
  const { signal } = new AbortController();
  await assert.rejects(runTransfer(nothing, { ...transfer, signal }, Bytes), { code: 'ENOENT' });
});

test('a signal ends the program, and its reason is the error', async () => {
  const abort = new AbortController();
  const ended = run('exec sleep 60', { signal: abort.signal });
  setTimeout(() => abort.abort(new Error('given up')), 50);
  await assert.rejects(ended, { message: 'given up' });
});
