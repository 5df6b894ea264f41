/** The routes of persistent disks: lib/protocol/disk-protocol.ts. */
import type http2 from 'node:http2';
import { pipeline } from 'node:stream/promises';
import { AppError } from '@coppice/contract';
import { z } from 'zod';
import {
  DiskId,
  ExportDisk,
  ForkDisk,
  GrowDisk,
  ImportDisk,
  NewDisk,
  TakeSnapshot,
} from '../../lib/protocol/disk-protocol.ts';
import { watchEnd } from '../../lib/streams/whole-stream.ts';
import type { DiskKey } from '../workspace/disk-imports.ts';
import type { DiskOperations } from '../workspace/disk-operations.ts';
import { readJson, respondJson } from './exchange.ts';

interface DiskExchange {
  stream: http2.ServerHttp2Stream;
  url: URL;
  key: DiskKey;
  /** Of a snapshot; empty where the path has none. */
  version: string;
}

export type DiskHandler = (disks: DiskOperations, exchange: DiskExchange) => Promise<void>;

const Version = z.coerce.number().int().positive();

export const DISK_ROUTES: readonly (readonly [method: string, path: string, handle: DiskHandler])[] = [
  [
    'PUT',
    '/disks/:org/:disk',
    async (disks, { stream, key }) => {
      const { size_bytes } = NewDisk.parse(await readJson(stream));
      respondJson(stream, 201, await disks.create(key, size_bytes));
    },
  ],
  [
    'GET',
    '/disks/:org/:disk',
    async (disks, { stream, key }) => respondJson(stream, 200, await disks.state(key)),
  ],
  [
    'DELETE',
    '/disks/:org/:disk',
    async (disks, { stream, key }) => {
      await disks.remove(key);
      respondJson(stream, 200, {});
    },
  ],
  [
    'GET',
    '/disks/:org/:disk/stored',
    async (disks, { stream, key }) => respondJson(stream, 200, await disks.stored(key)),
  ],
  [
    'POST',
    '/disks/:org/:disk/snapshots',
    async (disks, { stream, key }) =>
      respondJson(stream, 201, await disks.snapshot(key, TakeSnapshot.parse(await readJson(stream)))),
  ],
  [
    'DELETE',
    '/disks/:org/:disk/snapshots/:version',
    async (disks, { stream, key, version }) => {
      await disks.removeSnapshot(key, Version.parse(version));
      respondJson(stream, 200, {});
    },
  ],
  [
    'POST',
    '/disks/:org/:disk/fork',
    async (disks, { stream, key }) =>
      respondJson(stream, 201, await disks.fork(key, ForkDisk.parse(await readJson(stream)))),
  ],
  [
    'POST',
    '/disks/:org/:disk/flush',
    async (disks, { stream, key }) => respondJson(stream, 200, await disks.flush(key)),
  ],
  [
    'POST',
    '/disks/:org/:disk/grow',
    async (disks, { stream, key }) => {
      const { size_bytes } = GrowDisk.parse(await readJson(stream));
      respondJson(stream, 200, await disks.grow(key, size_bytes));
    },
  ],
  ['POST', '/disks/:org/:disk/import', importDisk],
  ['GET', '/disks/:org/:disk/export', exportDisk],
  [
    'POST',
    '/disks/:org/collect',
    async (disks, { stream, key }) => respondJson(stream, 200, await disks.collect(key.organization)),
  ],
];

async function importDisk(disks: DiskOperations, { stream, url, key }: DiskExchange): Promise<void> {
  const { format, max_bytes: maxBytes } = ImportDisk.parse(Object.fromEntries(url.searchParams));
  try {
    respondJson(stream, 201, await disks.import(key, readWhole(stream), { format, maxBytes }));
  } catch (error) {
    // Else a refusal would not end the stream.
    stream.resume();
    throw error;
  }
}

/**
 * Yields the body, and fails if it was cut off. A consumer that stops early does not destroy the stream, on which the
 * refusal is sent.
 */
async function* readWhole(stream: http2.ServerHttp2Stream): AsyncGenerator<Buffer> {
  const isWhole = watchEnd(stream);
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) yield chunk as Buffer;
  if (!isWhole()) throw new AppError('invalid_request', 'body: it was cut off');
}

async function exportDisk(disks: DiskOperations, { stream, url, key }: DiskExchange): Promise<void> {
  const { format, version } = ExportDisk.parse(Object.fromEntries(url.searchParams));
  const content = disks.export(key, { format, ...(version !== undefined && { version }) });
  stream.respond({ ':status': 200, 'content-type': 'application/octet-stream' });
  // After the head a reset is the only way to report a failure.
  await pipeline(content, stream).catch(() => stream.close());
}

/** Throws `invalid_request` for a malformed organization or disk. */
export function diskKeyOf({ org = '', disk }: Record<string, string>): DiskKey {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/u.test(org)) throw malformed('organization');
  if (disk !== undefined && !DiskId.safeParse(disk).success) throw malformed('disk');
  return { organization: org, disk: disk ?? '' };
}

function malformed(what: string): AppError {
  return new AppError('invalid_request', `the id of the ${what} is malformed`);
}
