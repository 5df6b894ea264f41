import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { writeTar } from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { pino } from 'pino';
import { LAUNCHER } from '../../../config/testing/launcher.ts';
import { Jail } from '../../confinement/jail.ts';
import { isAlive, listProcessesOfUids, type ProcessIdentity } from '../../host/host-process.ts';
import { ProcessError } from '../../host/run-process.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { IS_ROOT, makeUnpacking } from '../testing/unpacking.ts';
import { UnpackPlaces, type UnpackPlace, type UnpackPlacesOptions } from './unpack-places.ts';
import { ImageTooLargeError, Unpacker, type UnpackerOptions } from './unpacker.ts';

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
  const place = await places.take(0);
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

test('a packer that fails is reported with its own words, also when it reads nothing', async () => {
  const content = randomBytes(4 * MIB);
  await writeTar(join(root, 'large.tar'), [{ path: 'a', content }]);
  const archive = readFileSync(join(root, 'large.tar'));
  const large = { maxBytes: [8 * MIB], limits: { ...LIMITS, maxContentBytes: 8 * MIB } };
  // The archive fits, and the image with its tables does not.
  await using started = await start({ ...large, maxFileBytes: archive.length });
  await started.unpacker.unpackLayer(0, inPieces(archive), soon());
  await assert.rejects(started.unpacker.makeImage(join(root, 'none'), quiet()), (error) => {
    return error instanceof ProcessError && /file too large/iu.test(error.stderr);
  });
  for (let round = 0; round < 5; round += 1) {
    await using other = await start({ ...large, maxFileBytes: 8 * MIB }, { tar2sqfs: '/usr/bin/false' });
    await other.unpacker.unpackLayer(0, inPieces(archive), soon());
    await assert.rejects(other.unpacker.makeImage(join(root, 'none'), quiet()), {
      name: 'ProcessError',
      message: /false: code 1/u,
    });
  }
});

test('an image over its limit is never written to its end', async () => {
  await writeTar(join(root, 'random.tar'), [{ path: 'random', content: randomBytes(MIB) }]);
  await using started = await start({ maxBytes: [2 * MIB], limits: { ...LIMITS, maxContentBytes: 2 * MIB } });
  const { unpacker, directory } = started;
  await unpacker.unpackLayer(0, inPieces(readFileSync(join(root, 'random.tar'))), soon());
  const made = unpacker.makeImage(join(root, 'too-large'), { ...quiet(), maxBytes: 300_000 });
  await assert.rejects(made, ImageTooLargeError);
  assert.equal(statSync(join(directory, 'image')).size, 300_000);
});

test('a packer that packs nothing makes no image', async () => {
  await using started = await start({}, { tar2sqfs: '/usr/bin/true' });
  await started.unpacker.unpackLayer(0, inPieces(tar), soon());
  await assert.rejects(started.unpacker.makeImage(join(root, 'none'), quiet()));
  assert.equal(existsSync(join(root, 'none')), false);
});

test('without namespaces another user unpacks too', NEEDS_ROOT, async () => {
  const launcherPath = join(root, 'launcher');
  const text = `#!/bin/sh
    test "$1" = --probe && exec '${LAUNCHER}' --probe
    plan=$(mktemp '${root}/plan-XXXXXX'); cat > "$plan"
    if grep -q '"namespaces":true' "$plan"; then echo 'no namespaces here' >&2; exit 1; fi
    exec '${LAUNCHER}' < "$plan"`;
  writeFileSync(launcherPath, text, { mode: 0o755 });
  chmodSync(root, 0o711);
  const jail = await Jail.open({ launcherPath, uid: options.uids[0] ?? 0, log: pino({ level: 'silent' }) });
  assert.equal(jail.confinement.kind, 'reduced');
  await using started = await start({}, { jail });
  chmodSync(dirname(started.directory), 0o711);
  await started.unpacker.unpackLayer(0, inPieces(tar), soon());
  const made = await started.unpacker.makeImage(join(root, 'reduced'), quiet());
  assert.ok(made.sizeBytes > 0);
});

test('a preparation that has ended leaves no process', NEEDS_ROOT, async () => {
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
      attempt(() => fs.writeFileSync('/new-file', 'x')),
      attempt(() => fs.writeFileSync('/layers/0', 'x')),
      await new Promise((resolve) => net.connect(22, '127.0.0.1').on('error', (error) => resolve(error.code))),
    ];
    say({ layer: 0, fault: tried.join(' ') });`);
    await using started = await start({}, script);
    const message = /^EROFS EPERM EROFS EROFS EROFS \S*layers\S* EPERM ENOENT EROFS undefined EAFNOSUPPORT$/u;
    await assert.rejects(started.unpacker.unpackLayer(0, inPieces(tar), soon()), { message });
  },
);

test('a process that breaks the protocol is ended, and that is an error of ours', async () => {
  for (const line of [
    `say({ layer: 0, digest: 'sha256:../../etc' });`,
    `say({ layer: 0 });`,
    `control.write('x'.repeat(100_000));`,
    `for (let i = 0; i < 100_000; i += 1) say({ layer: 0, fault: '' });`,
    `say({ layer: 7, fault: '' });`,
    `say({ bytes: 1 });`,
    `say({ content_bytes: 1 });`,
  ]) {
    await using started = await start(
      { maxBytes: [MIB, MIB] },
      writeScript(`${line} setInterval(() => undefined, 1000);`),
    );
    const asked = started.unpacker.unpackLayer(1, inPieces(tar), soon());
    await assert.rejects(
      asked,
      { code: 'internal', message: 'the unpacking process broke its protocol' },
      line,
    );
  }
});

test('a flood of answers, or of messages, holds the runner up by no second', async () => {
  for (const line of [
    `for (let i = 0; i < 100_000; i += 1) say({ fault: 'no\\u0000thing\\ud800' });`,
    `for (let i = 0; i < 100_000; i += 1) say({ error: 'x', code: 'y' });`,
    `for (let i = 0; i < 100_000; i += 1) fs.writeSync(2, 'x'.repeat(1000));`,
  ]) {
    await using started = await start(
      { maxBytes: Array.from({ length: 256 }, () => MIB) },
      writeScript(`${line} setInterval(() => undefined, 1000);`),
    );
    const delays = monitorEventLoopDelay({ resolution: 5 });
    delays.enable();
    const asked = started.unpacker.unpackLayer(1, inPieces(tar), soon());
    const error: unknown = await asked.catch((reason: unknown) => reason);
    delays.disable();
    assert.ok(error instanceof Error && !/\p{Cc}|\p{Cs}/u.test(error.message), String(error));
    assert.ok(delays.max < 1e9, `${delays.max / 1e6} ms`);
  }
});

test('a process that cannot start, or ends, is an error of ours that holds its words', async () => {
  await using ended = await start({}, writeScript(`fs.writeSync(2, 'no memory'); process.exit(7);`));
  const asked = ended.unpacker.unpackLayer(0, inPieces(tar), soon());
  await assert.rejects(asked, { code: 'internal', message: /ended \(code 7\): no memory/u });
  await assert.rejects(start({}, { node: '/nonexistent/node' }), /nonexistent/u);
});
