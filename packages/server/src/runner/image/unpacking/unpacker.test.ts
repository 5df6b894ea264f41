import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { writeTar } from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { isAlive, listProcessesOfUids, type ProcessIdentity } from '../../host/host-process.ts';
import { ProcessError } from '../../host/run-process.ts';
import { LayerError } from '../tar/layer-error.ts';
import { IS_ROOT, makeUnpacking } from '../testing/unpacking.ts';
import { UnpackPlaces, type UnpackPlace, type UnpackPlacesOptions } from './unpack-places.ts';
import { Unpacker, type UnpackerOptions } from './unpacker.ts';

const NEEDS_ROOT = { skip: IS_ROOT ? false : 'another user needs root' };
const TIMEOUT_MS = 30_000;
const MIB = 1024 * 1024;
const LIMITS = { maxEntries: 1000, maxContentBytes: MIB, maxMetadataBytes: MIB };

let root = '';
let tar: Buffer;
let options: UnpackPlacesOptions;
before(async () => {
  root = mkdtempSync(join(tmpdir(), 'coppice-unpacker-'));
  await writeTar(join(root, 'layer.tar'), [{ path: 'a/' }, { path: 'a/hello', content: 'hello' }]);
  tar = readFileSync(join(root, 'layer.tar'));
  options = await makeUnpacking();
});
after(() => rmSync(root, { recursive: true }));

interface Started extends AsyncDisposable {
  unpacker: Unpacker;
  directory: string;
  place: UnpackPlace;
}

async function start(
  change: Partial<UnpackerOptions> = {},
  programs: Partial<UnpackPlacesOptions> = {},
): Promise<Started> {
  const places = await UnpackPlaces.open({ ...options, ...programs });
  const place = await places.take();
  const directory = join(mkdtempSync(join(root, 'staging-')), 'layers');
  const asked = { directory, maxFileBytes: 4 * MIB, maxBytes: [MIB], limits: LIMITS, ...change };
  const unpacker = await Unpacker.start(place, asked);
  const dispose = async (): Promise<void> => {
    await unpacker[Symbol.asyncDispose]();
    await place[Symbol.asyncDispose]();
  };
  return { unpacker, directory, place, [Symbol.asyncDispose]: dispose };
}

/** A script that takes the place of the unpacking one, as a hostile layer would make it. */
function writeScript(text: string): { script: string } {
  const script = join(mkdtempSync(join(root, 'script-')), 'unpack.mjs');
  writeFileSync(
    script,
    `import fs from 'node:fs'; import net from 'node:net';
     const control = new net.Socket({ fd: 3 });
     const say = (line) => control.write(JSON.stringify(line) + '\\n');
     const attempt = (work) => { try { return String(work()); } catch (error) { return error.code ?? error.message; } };
     ${text}`,
  );
  return { script };
}

async function* inPieces(data: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < data.length; at += 1000) yield data.subarray(at, at + 1000);
}

function listAlive(uid: number): ProcessIdentity[] {
  return listProcessesOfUids(uid, uid).filter(isAlive);
}

const soon = (): AbortSignal => AbortSignal.timeout(TIMEOUT_MS);
const quiet = () => ({ signal: soon(), onContentBytes: () => undefined, onBytes: () => undefined });

test('layers become an image that belongs to the service, read-only', async () => {
  await using started = await start({ maxBytes: [MIB, MIB] });
  const { unpacker } = started;
  const digests = await Promise.all([
    unpacker.unpackLayer(0, inPieces(gzipSync(tar)), soon()),
    unpacker.unpackLayer(1, inPieces(tar), soon()),
  ]);
  const digest = `sha256:${createHash('sha256').update(tar).digest('hex')}`;
  assert.deepEqual(digests, [digest, digest]);
  const seen: number[] = [];
  const path = join(mkdtempSync(join(root, 'made-')), 'image.squashfs');
  const made = await unpacker.makeImage(path, {
    signal: soon(),
    onContentBytes: (bytes) => seen.push(bytes),
    onBytes: (bytes) => seen.push(bytes),
  });
  assert.deepEqual([made.acls, seen], [0, [10, 5]]);
  const found = statSync(path);
  assert.deepEqual([found.size, found.mode & 0o7777, found.uid], [made.sizeBytes, 0o444, process.getuid?.()]);
  assert.equal(readFileSync(path).toString('latin1', 0, 4), 'hsqs');
});

test('a damaged or too large layer, and layers over the limits of images, are the fault of the layers', async () => {
  await using one = await start({ maxBytes: [MIB, 100] });
  const damaged = Buffer.concat([gzipSync(tar).subarray(0, 30), Buffer.alloc(8 * MIB, 'nonsense')]);
  await assert.rejects(one.unpacker.unpackLayer(0, inPieces(damaged), soon()), LayerError);
  await assert.rejects(one.unpacker.unpackLayer(1, inPieces(tar), soon()), /unpacks to more than 100 bytes/u);
  await using other = await start({ limits: { ...LIMITS, maxEntries: 1 } });
  await other.unpacker.unpackLayer(0, inPieces(tar), soon());
  await assert.rejects(other.unpacker.makeImage(join(root, 'none'), quiet()), LayerError);
  assert.equal(existsSync(join(root, 'none')), false);
});

test('a source that fails and a caller that leaves end the work with their reason', async () => {
  await using started = await start({ maxBytes: [MIB, MIB] });
  async function* failing(): AsyncGenerator<Buffer> {
    yield tar.subarray(0, 512);
    throw new Error('the registry went away');
  }
  await assert.rejects(started.unpacker.unpackLayer(0, failing(), soon()), /the registry went away/u);
  const left = new AbortController();
  async function* endless(): AsyncGenerator<Buffer> {
    yield tar.subarray(0, 512);
    left.abort(new Error('the caller left'));
    await delay(TIMEOUT_MS, undefined, { signal: left.signal });
  }
  await assert.rejects(started.unpacker.unpackLayer(1, endless(), left.signal), /the caller left/u);
});

test('a packer that fails is reported with its own words, not as a broken pipe', async () => {
  const content = randomBytes(4 * MIB);
  await writeTar(join(root, 'large.tar'), [{ path: 'a', content }]);
  // The archive fits, and the image with its tables does not.
  const archive = readFileSync(join(root, 'large.tar'));
  const limits = { ...LIMITS, maxContentBytes: 8 * MIB };
  await using started = await start({ maxBytes: [8 * MIB], maxFileBytes: archive.length, limits });
  await started.unpacker.unpackLayer(0, inPieces(archive), soon());
  await assert.rejects(started.unpacker.makeImage(join(root, 'none'), quiet()), (error) => {
    return error instanceof ProcessError && /file too large/iu.test(error.stderr);
  });
});

test('nobody listens to a preparation that has ended, and nothing of it is left', NEEDS_ROOT, async () => {
  const started = await start();
  const uid = started.place.uid ?? 0;
  await started.unpacker.unpackLayer(0, inPieces(tar), soon());
  const [found] = listAlive(uid);
  const status = readFileSync(`/proc/${found?.pid}/status`, 'utf8');
  assert.match(status, /^CapBnd:\t0+$/mu);
  assert.match(status, /^NoNewPrivs:\t1$/mu);
  assert.match(status, /^Seccomp:\t2$/mu);
  await started[Symbol.asyncDispose]();
  assert.deepEqual(listAlive(uid), []);
  await assert.rejects(started.unpacker.makeImage(join(root, 'none'), quiet()));
});

test('a process of an earlier runner is ended before its user is used again', NEEDS_ROOT, async () => {
  const started = await start();
  const uid = started.place.uid ?? 0;
  await started.unpacker.unpackLayer(0, inPieces(tar), soon());
  assert.equal(listAlive(uid).length, 1);
  await UnpackPlaces.open(options);
  assert.deepEqual(listAlive(uid), []);
  await started[Symbol.asyncDispose]();
});

test(
  'a hostile process can make no name, start nothing, reach no network, and see only its files',
  NEEDS_ROOT,
  async () => {
    const script = writeScript(`
    const child = await import('node:child_process');
    const tried = [
      attempt(() => fs.writeFileSync('/layers/new', 'x')),
      attempt(() => fs.symlinkSync('/etc/shadow', '/layers/link')),
      attempt(() => fs.unlinkSync('/layers/0')),
      attempt(() => fs.renameSync('/layers/0', '/layers/1')),
      attempt(() => fs.mkdirSync('/layers/deep')),
      attempt(() => fs.readdirSync('/').join()),
      attempt(() => child.spawnSync(process.argv0).error.code),
      attempt(() => fs.readFileSync('/proc/self/status')),
      attempt(() => fs.writeFileSync('/tmp', 'x')),
      await new Promise((resolve) => net.connect(22, '127.0.0.1').on('error', (error) => resolve(error.code))),
    ];
    say({ layer: 0, fault: tried.join(' ') });`);
    await using started = await start({}, script);
    const message = /^EACCES EPERM EACCES EACCES EACCES \S*layers\S* EPERM ENOENT EROFS EAFNOSUPPORT$/u;
    await assert.rejects(started.unpacker.unpackLayer(0, inPieces(tar), soon()), { message });
  },
);

test('a process that breaks the protocol is ended, and that is an error of ours', async () => {
  for (const line of [
    `say({ layer: 0, digest: 'sha256:../../etc' });`,
    `say({ layer: 0 });`,
    `control.write('x'.repeat(100_000));`,
    `setInterval(() => say({ bytes: 1 }), 0); for (let i = 0; i < 200_000; i += 1) say({ bytes: 1 });`,
  ]) {
    await using started = await start({}, writeScript(`${line} setInterval(() => undefined, 1000);`));
    const asked = started.unpacker.unpackLayer(0, inPieces(tar), soon());
    await assert.rejects(
      asked,
      { code: 'internal', message: 'the unpacking process broke its protocol' },
      line,
    );
  }
});

test('a process that cannot start, or ends, is an error of ours that holds its words', async () => {
  await using ended = await start({}, writeScript(`fs.writeSync(2, 'no memory'); process.exit(7);`));
  const asked = ended.unpacker.unpackLayer(0, inPieces(tar), soon());
  await assert.rejects(asked, { code: 'internal', message: /ended \(code 7\): no memory/u });
  await assert.rejects(start({}, { node: '/nonexistent/node' }), /nonexistent/u);
});
