import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { HOSTCTL } from '../../../config/testing/hostctl.ts';
import { EgressEndedError, EgressSession } from './egress-session.ts';

const PORTS = '{ dnsUdp: 1, dnsTcp: 2, proxy: 3, credentials: 4 }';
const READY = `process.send({ type: 'ready', ports: ${PORTS} });`;

interface Started {
  session: EgressSession;
  notes: unknown[];
  stop: AbortController;
}

/** Runs a test with a session of a program with this code, and ends it afterwards. */
async function withProgram(
  code: string,
  use: (started: Started) => Promise<void>,
  mustBeUnprivileged = false,
): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'egress-'));
  const stop = new AbortController();
  const path = join(directory, 'program.mjs');
  writeFileSync(path, code);
  const notes: unknown[] = [];
  try {
    const { session } = await EgressSession.start({
      program: { path, args: [], hostctl: HOSTCTL, mustBeUnprivileged },
      start: { resolver: '127.0.0.1', resolvers: [], closed: { openPrivateRanges: [], own: [] } },
      onNotes: (said) => notes.push(said),
      signal: stop.signal,
      log: pino({ level: 'silent' }),
    });
    await use({ session, notes, stop });
  } finally {
    stop.abort();
    rmSync(directory, { recursive: true });
  }
}

const FORGET = { type: 'forget', address: '10.202.0.6' } as const;

test('answers are matched to requests by number', async () => {
  const code = `const held = [];
    process.on('message', ({ type, id }) => {
      if (type === 'start') { ${READY} return; }
      held.push(id);
      if (held.length === 2) for (const each of held.reverse()) process.send({ type: 'done', id: each, error: 'no ' + each });
    });`;
  await withProgram(code, async ({ session }) => {
    const answers = await Promise.all([session.ask(FORGET), session.ask(FORGET)]);
    assert.deepEqual(
      answers.map((answer) => answer.type === 'done' && answer.error),
      ['no 1', 'no 2'],
    );
  });
});

test('a process that sends an invalid message is killed, and pending requests reject', async () => {
  const code = `process.on('message', ({ type }) => {
      if (type === 'start') { ${READY} return; }
      process.send({ type: 'notes', id: 1, notes: [{ vmId: 'run1', note: { event: 'other' } }] });
    });`;
  await withProgram(code, async ({ session, notes }) => {
    await assert.rejects(session.ask(FORGET), EgressEndedError);
    assert.equal(await session.ended, 'SIGKILL');
    assert.deepEqual(notes, []);
    await assert.rejects(session.ask(FORGET), EgressEndedError);
  });
});

test('a process that ends before it is ready, or closes its channel, gives no session', async () => {
  await assert.rejects(
    withProgram('process.exit(3);', async () => undefined),
    /ended before it was ready \(code 3\)/u,
  );
  await assert.rejects(
    withProgram('process.disconnect(); setInterval(() => 0, 1000);', async () => undefined),
    /ended before it was ready \(SIGKILL\)/u,
  );
});

test('a process that keeps root privileges is refused', async () => {
  assert.equal(process.getuid?.(), 0, 'this test needs root, as the service has it');
  const code = `process.on('message', ({ type }) => { if (type === 'start') ${READY} });`;
  await assert.rejects(
    withProgram(code, async () => undefined, true),
    /runs as root/u,
  );
  const dropping = `process.setgroups([]); process.setgid(65534); process.setuid(65534); ${code}`;
  await withProgram(dropping, async ({ session }) => assert.ok(session), true);
});

test('the process has no secret of the operator in its environment', async () => {
  process.env['COPPICE_BOOTSTRAP_KEY'] = 'canary-4';
  const code = `process.on('message', ({ type, id }) => {
      if (type === 'start') { ${READY} return; }
      process.send({ type: 'done', id, error: JSON.stringify(process.env) });
    });`;
  try {
    await withProgram(code, async ({ session }) => {
      assert.doesNotMatch(JSON.stringify(await session.ask(FORGET)), /canary/u);
    });
  } finally {
    delete process.env['COPPICE_BOOTSTRAP_KEY'];
  }
});
