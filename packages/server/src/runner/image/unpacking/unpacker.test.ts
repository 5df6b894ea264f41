import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  linkSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { writeTar } from '../../../../../../e2e/fixtures/oci-layout.ts';
import { listProcessesOfUids } from '../../host/host-process.ts';
import { LayerError } from '../tar/layer-error.ts';
import { UNPACKING } from '../testing/store-site.ts';
import { Unpacker, type UnpackProgram } from './unpacker.ts';

const IS_ROOT = process.getuid?.() === 0;
const REASON = { skip: IS_ROOT ? false : 'another user needs root' };
const UID = UNPACKING.uids[0] ?? null;
const TIMEOUT_MS = 30_000;
const LIMITS = {
  maxEntries: 1000,
  maxContentBytes: 1 << 20,
  maxMetadataBytes: 1 << 20,
  timeoutMs: TIMEOUT_MS,
};
const QUIET = { onContentBytes: () => undefined, onBytes: () => undefined };

let root = '';
let tar: Buffer;
before(async () => {
  root = mkdtempSync(join(tmpdir(), 'coppice-unpacker-'));
  await writeTar(join(root, 'layer.tar'), [{ path: 'a/' }, { path: 'a/hello', content: 'hello' }]);
  tar = readFileSync(join(root, 'layer.tar'));
});
after(() => rmSync(root, { recursive: true }));

function makePlace(): string {
  return join(mkdtempSync(join(root, 'staging-')), 'unpacked');
}

function start(directory = makePlace(), program: UnpackProgram = UNPACKING.program): Promise<Unpacker> {
  return Unpacker.start({ program, tar2sqfs: 'tar2sqfs', directory, uid: UID });
}

/** A program of the service's runtime, in the place of the unpacking role. */
function writeProgram(text: string): UnpackProgram {
  const path = join(mkdtempSync(join(root, 'program-')), 'program.mjs');
  writeFileSync(path, text);
  return { path, args: [] };
}

async function* inPieces(data: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < data.length; at += 1000) yield data.subarray(at, at + 1000);
}

const within = (maxBytes = 1 << 20) => ({ maxBytes, signal: AbortSignal.timeout(TIMEOUT_MS) });

test('layers become an image that belongs to the service, read-only', async () => {
  await using unpacker = await start();
  const digests = await Promise.all([
    unpacker.unpackLayer(0, inPieces(gzipSync(tar)), within()),
    unpacker.unpackLayer(1, inPieces(tar), within()),
  ]);
  const digest = `sha256:${createHash('sha256').update(tar).digest('hex')}`;
  assert.deepEqual(digests, [digest, digest]);
  const seen: number[] = [];
  const { signal } = within();
  const made = await unpacker.makeImage(
    { layers: 2, ...LIMITS },
    { signal, onContentBytes: (bytes) => seen.push(bytes), onBytes: (bytes) => seen.push(bytes) },
  );
  assert.deepEqual([made, seen], [{ acls: 0 }, [10, 5]]);
  const path = join(root, 'image.squashfs');
  const size = await unpacker.takeImage(path);
  const found = statSync(path);
  assert.deepEqual([found.size, found.mode & 0o7777, found.uid], [size, 0o444, process.getuid?.()]);
  assert.equal(readFileSync(path).toString('latin1', 0, 4), 'hsqs');
});

test('a damaged or too large layer, and one over the limits of images, is the fault of the layer', async () => {
  await using unpacker = await start();
  const damaged = Buffer.concat([gzipSync(tar).subarray(0, 30), Buffer.from('nonsense')]);
  await assert.rejects(unpacker.unpackLayer(0, inPieces(damaged), within()), LayerError);
  await assert.rejects(
    unpacker.unpackLayer(0, inPieces(tar), within(100)),
    /unpacks to more than 100 bytes/u,
  );
  await unpacker.unpackLayer(0, inPieces(tar), within());
  const narrow = { layers: 1, ...LIMITS, maxEntries: 1 };
  await assert.rejects(unpacker.makeImage(narrow, { ...within(), ...QUIET }), LayerError);
});

test('a source that fails and a caller that leaves end the request with their reason', async () => {
  await using unpacker = await start();
  async function* failing(): AsyncGenerator<Buffer> {
    yield tar.subarray(0, 512);
    throw new Error('the registry went away');
  }
  await assert.rejects(unpacker.unpackLayer(0, failing(), within()), /the registry went away/u);
  const left = new AbortController();
  async function* endless(): AsyncGenerator<Buffer> {
    yield tar.subarray(0, 512);
    left.abort(new Error('the caller left'));
    await delay(TIMEOUT_MS, undefined, { signal: left.signal });
  }
  const asked = unpacker.unpackLayer(0, endless(), { maxBytes: 1 << 20, signal: left.signal });
  await assert.rejects(asked, /the caller left/u);
});

test('the process has no privileges, and none is left afterwards', REASON, async () => {
  const unpacker = await start();
  const [found] = listProcessesOfUids(UID ?? 0, UID ?? 0);
  const status = readFileSync(`/proc/${found?.pid}/status`, 'utf8');
  assert.match(status, new RegExp(`^Uid:\\t${UID}\\t${UID}\\t${UID}\\t${UID}$`, 'mu'));
  assert.match(status, /^CapEff:\t0+$/mu);
  assert.match(status, /^Groups:\t *$/mu);
  await unpacker[Symbol.asyncDispose]();
  assert.deepEqual(listProcessesOfUids(UID ?? 0, UID ?? 0), []);
});

test('a process that does not start, or breaks the protocol, is an error of ours', async () => {
  const ends = writeProgram("process.stderr.write('no memory'); process.exit(1);");
  await assert.rejects(start(makePlace(), ends), { code: 'internal', message: /did not start: no memory/u });
  const serve = (answer: string): UnpackProgram =>
    writeProgram(`import { createServer } from 'node:http';
      createServer((request, response) => response.end(${JSON.stringify(answer)}))
        .listen('socket', () => console.log('ready'));`);
  chmodSync(root, 0o755);
  await using unpacker = await start(makePlace(), serve('{"digest":"sha256:../../etc"}\n'));
  await assert.rejects(unpacker.unpackLayer(0, inPieces(tar), within()), { name: 'ZodError' });
  await assert.rejects(unpacker.makeImage({ layers: 1, ...LIMITS }, { ...within(), ...QUIET }), {
    name: 'ZodError',
  });
});

test('what a hostile process leaves in the place of the image is not taken', async () => {
  for (const plant of [
    (path: string) => symlinkSync('/etc/shadow', path),
    (path: string) => linkSync(join(root, 'layer.tar'), path),
  ]) {
    const directory = makePlace();
    await using unpacker = await start(directory);
    plant(join(directory, 'image'));
    await assert.rejects(unpacker.takeImage(join(root, 'taken')));
  }
});
