import assert from 'node:assert/strict';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { createServer, connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isJournal } from './journal.ts';

const directory = mkdtempSync(join(tmpdir(), 'journal-'));
after(() => rmSync(directory, { recursive: true }));

function identify(descriptor: number): string {
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return `${dev}:${ino}`;
}

test('an output is the journal if it is the socket that systemd names, and not if it has been redirected', async () => {
  await using server = createServer().listen(join(directory, 'stdout'));
  await once(server, 'listening');
  const socket: Socket = connect(join(directory, 'stdout'));
  await once(socket, 'connect');
  const { fd } = Reflect.get(socket, '_handle') as { fd: number };
  const file = openSync(join(directory, 'file'), 'w');
  try {
    const journal = identify(fd);
    assert.equal(isJournal(fd, journal), true);
    assert.equal(isJournal(file, journal), false);
    assert.equal(isJournal(fd, identify(file)), false);
    for (const text of ['', '1', 'x:y', `${journal}:1`, ` ${journal}`, undefined])
      assert.equal(isJournal(fd, text ?? ''), false, text);
  } finally {
    closeSync(file);
    socket.destroy();
  }
});
