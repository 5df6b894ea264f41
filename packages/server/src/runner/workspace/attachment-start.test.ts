import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { Attachment } from './attachment.ts';
import { findAttachmentRecord, type AttachmentRecord } from './attachment-record.ts';
import type { BlockServer } from './block-server.ts';
import { OverlayDirectory } from './overlay-directory.ts';

const UNIT = 'u0000000000000001';
const RECORD: AttachmentRecord = {
  format: 1,
  organization: 'org1',
  disk: `disk${'1'.repeat(20)}`,
  vm_id: 'run1',
  uid: process.getuid?.() ?? 0,
  epoch: 1,
  size_bytes: 1 << 30,
  version: 2,
  drained_at: '2026-01-01T00:00:00.000Z',
  durability: 'local',
};
const MANIFEST = {
  version: 3,
  kind: 'drain',
  root: 'root',
  size_bytes: 1 << 30,
  epoch: 1,
  runner: '',
  time_ms: 0,
  drained_ms: 0,
  repeated: false,
  changed_bytes: 0,
  frame_bytes: 0,
  map_bytes: 0,
  duration_ms: 0,
};

function attach(path: string, onAsked: (op: string) => void): Attachment {
  const server: Pick<BlockServer, 'ask'> = {
    ask: async ({ op }, answer) => {
      onAsked(op);
      return answer.parse(MANIFEST);
    },
  };
  const directory = new OverlayDirectory(path, UNIT);
  directory.make();
  const parts = { server, runner: 'runner-1', unit: UNIT, directory, log: pino({ level: 'silent' }) };
  return new Attachment(parts, RECORD, { overlays: [0], exportName: 'export' });
}

test('the record of a new attachment is there when its files are kept, and not before', async (t) => {
  const path = mkdtempSync(join(tmpdir(), 'coppice-attachment-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  const attachment = attach(path, () => undefined);
  attachment.start();
  assert.ok(existsSync(join(path, UNIT, 'overlays', '0.qcow2')));
  assert.equal(findAttachmentRecord(join(path, UNIT)), undefined);
  await attachment.kept;
  assert.deepEqual(findAttachmentRecord(join(path, UNIT)), RECORD);
});

test('a VM that ends at once leaves its disk only after the files are kept', async (t) => {
  const path = mkdtempSync(join(tmpdir(), 'coppice-attachment-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  const asked: [op: string, hasRecord: boolean][] = [];
  const attachment = attach(path, (op) =>
    asked.push([op, findAttachmentRecord(join(path, UNIT)) !== undefined]),
  );
  attachment.start();
  attachment.leave();
  await attachment.release();
  assert.deepEqual(asked, [
    ['drain', true],
    ['release', true],
    ['unload', false],
  ]);
  assert.ok(!existsSync(join(path, UNIT)));
});
