/**
 * The unpacking process: a program of its own, which set-up bundles into one file (`unpack.mjs`). It runs in the launcher's
 * jail, with the archives of one image in reach and nothing else. It reads stored layers from its descriptors, unpacks
 * them, and on command writes the merged archive to a descriptor, for tar2sqfs.
 */
import { Socket } from 'node:net';
import { readLayers, writeFlatTar } from '../layers/flatten.ts';
import { unpackLayer } from '../layers/layer-unpacking.ts';
import { LayerError } from '../../../lib/tar/layer-error.ts';
import { TarWriter } from '../../../lib/tar/tar-writer.ts';
import {
  CONTROL,
  FIRST_LAYER,
  MERGE,
  MERGED,
  PROGRESS_INTERVAL_MS,
  shorten,
  type UnpackLine,
  type UnpackStart,
} from './unpack-messages.ts';

const start = JSON.parse(process.argv[2] ?? '') as UnpackStart;
const { signal } = new AbortController();
const control = new Socket({ fd: CONTROL });

function say(line: UnpackLine): void {
  control.write(`${JSON.stringify(line)}\n`);
}

function explain(error: unknown): UnpackLine {
  if (error instanceof LayerError) return { fault: shorten(error.message) };
  const code = (error as NodeJS.ErrnoException).code?.slice(0, 40);
  return { error: shorten(String(error)), ...(code !== undefined && { code }) };
}

/** A layer that fails ends its own input only: the runner decides what becomes of the others. */
async function unpack(layer: number): Promise<void> {
  const input = ignoreErrors(new Socket({ fd: FIRST_LAYER + layer }));
  try {
    const digest = await unpackLayer(input, {
      targetPath: start.paths[layer] ?? '',
      maxBytes: start.maxBytes[layer] ?? 0,
      signal,
    });
    say({ layer, digest });
  } catch (error) {
    const reason = explain(error);
    say('fault' in reason ? { layer, fault: reason.fault } : reason);
    input.destroy();
  }
}

async function merge(): Promise<void> {
  const { paths } = start;
  const tree = await readLayers(paths, start.limits, signal);
  say({ content_bytes: tree.contentBytes });
  const progress = new Progress();
  // tar2sqfs ends at the end of the archive, maybe before this end of the pipe is closed.
  const output = ignoreErrors(new Socket({ fd: MERGED, allowHalfOpen: true }));
  await writeFlatTar(tree, paths, new TarWriter((chunk) => writeTo(output, chunk)), {
    signal,
    onBytes: (bytes) => progress.add(bytes),
  });
  progress.end();
  await endOf(output);
  say({ acls: tree.acls });
}

/** The reads and writes fail too, with the same error. */
function ignoreErrors(socket: Socket): Socket {
  return socket.on('error', () => undefined);
}

function writeTo(output: Socket, chunk: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    output.write(chunk, (error) => (error ? reject(error) : resolve()));
  });
}

function endOf(output: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    output.end((error?: Error | null) => (error ? reject(error) : resolve()));
  });
}

/** Tells how many bytes were written, a few times a second. */
class Progress {
  #bytes = 0;
  #saidAtMs = 0;

  add(bytes: number): void {
    this.#bytes += bytes;
    if (performance.now() - this.#saidAtMs > PROGRESS_INTERVAL_MS) this.end();
  }

  end(): void {
    if (this.#bytes > 0) say({ bytes: this.#bytes });
    this.#bytes = 0;
    this.#saidAtMs = performance.now();
  }
}

/** Without the runner there is nothing to do. */
control.on('error', () => process.exit(1));
control.once('close', () => process.exit(1));

let command = '';
control.setEncoding('latin1');
control.on('data', (text: string) => {
  command += text;
  if (command !== MERGE) return;
  command = '';
  merge()
    .catch((error: unknown) => say(explain(error)))
    .finally(() => control.end());
});

for (let layer = 0; layer < start.maxBytes.length; layer += 1) void unpack(layer);
