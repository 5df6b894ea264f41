import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { overlayName } from '../vm/vm-files.ts';
import type { VmDisk } from '../vm/vmm.ts';
import { OverlayChain } from './overlay-chain.ts';
import { VmDirectory } from './vm-directory.ts';

/** A stand-in for the disk of a VM. It refuses what QEMU would refuse. */
class BlockLayer implements VmDisk {
  /** Numbers of the open overlays. */
  opened: number[];
  chain: number[];
  isFull = false;
  sizeBytes = 0;
  flattening: PromiseWithResolvers<void> | undefined;

  constructor(opened: number[], chain: number[]) {
    this.opened = opened;
    this.chain = chain;
  }

  get top(): number | undefined {
    return this.chain.at(-1);
  }

  async open(number: number): Promise<void> {
    assert.ok(!this.opened.includes(number));
    this.opened.push(number);
    if (this.isFull) throw new Error('no space');
  }
  async grow(sizeBytes: number): Promise<void> {
    this.sizeBytes = sizeBytes;
  }
  async push(number: number): Promise<void> {
    assert.ok(this.opened.includes(number) && !this.chain.includes(number));
    this.chain.push(number);
  }
  async close(number: number): Promise<void> {
    assert.ok(!this.chain.includes(number), 'in use');
    // Flattened overlays are still the backing of each other.
    const joined = this.opened.filter((each) => each < (this.chain[0] ?? 0));
    assert.ok(!joined.includes(number) || number === Math.max(...joined), 'in use');
    this.opened = this.opened.filter((each) => each !== number);
  }
  async flatten(): Promise<void> {
    this.flattening = Promise.withResolvers();
    await this.flattening.promise;
    this.chain = this.chain.slice(-1);
  }
  async stopFlattening(): Promise<void> {
    this.flattening?.reject(new Error('ended early'));
  }
  async listOverlays(): Promise<number[]> {
    return [...this.chain];
  }
}

function makeSite(context: TestContext, open: number[], chain = open) {
  const path = mkdtempSync(join(tmpdir(), 'coppice-chain-'));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  const directory = new VmDirectory(path);
  mkdirSync(directory.overlays);
  for (const number of open) writeFileSync(directory.overlay(number), '', { mode: 0o600 });
  const layer = new BlockLayer([...open], [...chain]);
  const uid = process.getuid?.() ?? 0;
  const parts = { disk: layer, directory, uid, sizeMiB: 64, log: pino({ level: 'silent' }) };
  const files = (): string[] => readdirSync(directory.overlays).toSorted();
  return { layer, directory, parts, files };
}

test('a capture freezes the top overlay and puts a new one on it', async (context) => {
  const { layer, directory, parts } = makeSite(context, [0]);
  const chain = new OverlayChain([0], parts);
  const number = await chain.prepare();
  assert.deepEqual([layer.top, chain.numbers], [0, [0]]);
  await chain.push(number);
  assert.deepEqual([layer.top, chain.numbers], [1, [0, 1]]);
  assert.equal(statSync(directory.overlay(0)).mode & 0o777, 0o444);
  assert.equal(statSync(directory.overlay(1)).mode & 0o777, 0o600);
});

test('an overlay added after the disk has grown has the new size', async (context) => {
  const { layer, directory, parts } = makeSite(context, [0]);
  const chain = new OverlayChain([0], parts);
  const sizeOf = (number: number): bigint => readFileSync(directory.overlay(number)).readBigUInt64BE(24);
  await chain.push(await chain.prepare());
  assert.equal(sizeOf(1), 64n << 20n);
  await chain.grow(5000);
  assert.equal(layer.sizeBytes, 5000 * 1024 * 1024);
  await chain.push(await chain.prepare());
  assert.equal(sizeOf(2), 5000n << 20n);
});

test('dropping a prepared overlay leaves nothing', async (context) => {
  const { layer, parts, files } = makeSite(context, [0]);
  const chain = new OverlayChain([0], parts);
  await chain.drop(await chain.prepare());
  assert.deepEqual([layer.opened, chain.numbers, files()], [[0], [0], [overlayName(0)]]);
});

test('a failed open of an overlay leaves nothing, and the next open works', async (context) => {
  const { layer, parts, files } = makeSite(context, [0]);
  const chain = new OverlayChain([0], parts);
  layer.isFull = true;
  await assert.rejects(chain.prepare(), /no space/u);
  assert.deepEqual([layer.opened, files()], [[0], [overlayName(0)]]);
  layer.isFull = false;
  assert.equal(await chain.prepare(), 1);
});

test('a long chain is flattened in the background, and the lower overlays are removed', async (context) => {
  const { layer, parts, files } = makeSite(context, [0, 1, 2, 3, 4, 5, 6]);
  const chain = new OverlayChain([0, 1, 2, 3, 4, 5, 6], parts);
  chain.flattenIfLong();
  layer.flattening?.resolve();
  while (chain.numbers.length > 1 || layer.opened.length > 1) await setImmediate();
  assert.deepEqual([chain.numbers, layer.opened], [[6], [6]]);
  while (files().length > 1) await setImmediate();
  assert.deepEqual(files(), [overlayName(6)]);
});

test('a short chain is left alone', (context) => {
  const { layer, parts } = makeSite(context, [0, 1, 2]);
  new OverlayChain([0, 1, 2], parts).flattenIfLong();
  assert.equal(layer.flattening, undefined);
});

test('a new copy of a capture may have a longer chain before it is flattened', (context) => {
  const numbers = Array.from({ length: 13 }, (_, index) => index);
  const { layer, parts } = makeSite(context, numbers);
  new OverlayChain(numbers.slice(0, 12), parts).flattenIfLong({ isNewCopy: true });
  assert.equal(layer.flattening, undefined);
  new OverlayChain(numbers, parts).flattenIfLong({ isNewCopy: true });
  assert.ok(layer.flattening);
});

test('a capture stops a running flatten, and the chain stays complete', async (context) => {
  const numbers = [0, 1, 2, 3, 4, 5, 6];
  const { parts } = makeSite(context, numbers);
  const chain = new OverlayChain(numbers, parts);
  chain.flattenIfLong();
  assert.equal(await chain.prepare(), 7);
  assert.deepEqual(chain.numbers, numbers);
});

test('a chain of the maximum length is flattened before it grows', async (context) => {
  const numbers = Array.from({ length: 24 }, (_, index) => index);
  const { layer, parts } = makeSite(context, numbers);
  const chain = new OverlayChain(numbers, parts);
  const preparing = chain.prepare();
  await setImmediate();
  layer.flattening?.resolve();
  assert.equal(await preparing, 24);
  assert.deepEqual(chain.numbers, [23]);
});

test('a chain of the maximum length that cannot be flattened does not grow', async (context) => {
  const numbers = Array.from({ length: 24 }, (_, index) => index);
  const { layer, parts } = makeSite(context, numbers);
  const preparing = new OverlayChain(numbers, parts).prepare();
  const refused = assert.rejects(preparing, { code: 'capacity' });
  await setImmediate();
  layer.flattening?.reject(new Error('no space'));
  await refused;
});

test('the next process reads the chain from the VMM and removes a prepared overlay', async (context) => {
  const { layer, directory, parts } = makeSite(context, [0, 1, 2], [0, 1]);
  const chain = await OverlayChain.adopt(parts);
  assert.deepEqual(
    [chain.numbers, layer.opened],
    [
      [0, 1],
      [0, 1],
    ],
  );
  assert.equal(existsSync(directory.overlay(2)), false);
  assert.equal(
    statSync(directory.overlay(0)).mode & 0o777,
    0o444,
    'frozen although the freeze was interrupted',
  );
});

test('the next process removes flattened overlays, whether QEMU still has them open or not', async (context) => {
  const { layer, directory, parts, files } = makeSite(context, [0, 1, 2, 9], [9]);
  writeFileSync(directory.overlay(3), '', { mode: 0o600 });
  const chain = await OverlayChain.adopt(parts);
  assert.deepEqual([chain.numbers, layer.opened, files()], [[9], [9], [overlayName(9)]]);
});

test('the next process removes an overlay that was created but not opened', async (context) => {
  const { parts, directory, files } = makeSite(context, [0]);
  writeFileSync(directory.overlay(1), '', { mode: 0o600 });
  const chain = await OverlayChain.adopt(parts);
  assert.deepEqual([chain.numbers, files()], [[0], [overlayName(0)]]);
});
