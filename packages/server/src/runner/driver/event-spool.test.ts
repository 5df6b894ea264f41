import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import type { VmNote } from '../../lib/protocol/egress-messages.ts';
import {
  FIRST_GENERATION,
  type EventPlace,
  type RunnerEvent,
  type VmEnd,
} from '../../lib/protocol/runner-protocol.ts';
import { EventSpool, type EventSpoolOptions } from './event-spool.ts';

const end = (id: string): VmEnd => ({
  id,
  reason: 'destroyed',
  cpu_ms: 1,
  mem_peak_bytes: 2,
  ended_at: new Date(0).toISOString(),
});

const note = (vmId: string, ip = '203.0.113.1'): VmNote => ({
  vmId,
  note: {
    event: 'network.blocked',
    ts: new Date(0).toISOString(),
    data: { ip, reason: 'not_allowed', count: 1 },
  },
});

async function withDirectory(use: (directory: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'spool-'));
  try {
    await use(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

function open(directory: string, options: Partial<EventSpoolOptions> = {}): EventSpool {
  return EventSpool.open(directory, { log: pino({ level: 'silent' }), ...options });
}

function generationOf(spool: EventSpool): string {
  return spool.after(undefined)[0]?.generation ?? 'none';
}

function acknowledge(spool: EventSpool, seq: number): void {
  spool.acknowledge({ generation: generationOf(spool), seq });
}

function describe(event: RunnerEvent): string {
  return event.type === 'vm_ended' ? `${event.seq} end ${event.end.id}` : `${event.seq} note ${event.vm_id}`;
}

function readAll(spool: EventSpool, from = 0): string[] {
  const told: string[] = [];
  for (let place: EventPlace = { generation: generationOf(spool), seq: from }; ;) {
    const events = spool.after(place);
    if (events.length === 0) return told;
    told.push(...events.map(describe));
    place = events.at(-1)!;
  }
}

test('events outlive the process that wrote them', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    await spool.addNotes([note('run1')]);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(open(directory)), ['1 note run1', '2 end run1']);
    assert.equal(open(directory).findEnd('run1')?.id, 'run1');
  });
});

test('sequence numbers continue after everything was acknowledged and the process restarted', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    await spool.add(end('run1'));
    await spool.add(end('run2'));
    acknowledge(spool, 2);
    assert.equal(readdirSync(directory).length, 1);
    const next = open(directory);
    await next.add(end('run3'));
    assert.deepEqual(readAll(next, 2), ['3 end run3']);
  });
});

test('an end is found until it is acknowledged', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    await spool.add(end('run1'));
    assert.equal(spool.findEnd('run1')?.id, 'run1');
    acknowledge(spool, 1);
    assert.equal(spool.findEnd('run1'), undefined);
  });
});

test('acknowledging events that were never sent removes nothing', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    acknowledge(spool, 10);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(spool), ['1 end run1']);
    assert.equal(spool.findEnd('run1')?.id, 'run1');
  });
});

test('events added while the disk is busy share one file, and are announced once it is written', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    let told = 0;
    spool.on('event', () => {
      told += 1;
    });
    const adding = Array.from({ length: 200 }, (_, at) => spool.addNotes([note(`run${at}`)]));
    assert.deepEqual(spool.after(undefined), []);
    await Promise.all(adding);
    assert.equal(readAll(spool).length, 200);
    assert.deepEqual([readdirSync(directory).length, told], [2, 2]);
    // The acknowledged part of a file is not sent again, and the file stays until all of it is acknowledged.
    acknowledge(spool, 100);
    assert.equal(readdirSync(directory).length, 1);
    assert.equal(readAll(spool, 100).length, 100);
  });
});

test('a spool of single ends, the format before notes, is read and acknowledged', async () => {
  await withDirectory(async (directory) => {
    for (const seq of [7, 8]) {
      const event = { seq, type: 'vm_ended', end: end(`run${seq}`) };
      writeFileSync(join(directory, `${String(seq).padStart(12, '0')}.json`), JSON.stringify(event));
    }
    writeFileSync(join(directory, '000000000009.json.new'), 'half');
    const spool = open(directory);
    await spool.addNotes([note('run9')]);
    assert.deepEqual(readAll(spool), ['7 end run7', '8 end run8', '9 note run9']);
    assert.equal(generationOf(spool), FIRST_GENERATION);
    assert.equal(spool.findEnd('run8')?.id, 'run8');
    acknowledge(spool, 8);
    assert.deepEqual(readdirSync(directory), ['000000000009.json']);
  });
});

test('all notes of a VM come before its end', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    const first = spool.addNotes([note('run1'), note('run2')]);
    const ending = spool.add(end('run1'));
    const late = spool.addNotes([note('run1'), note('run2')]);
    await Promise.all([first, ending, late]);
    await spool.addNotes([note('run1')]);
    assert.deepEqual(readAll(spool), ['1 note run1', '2 note run2', '3 end run1', '4 note run2']);
  });
});

test('notes wait for room when the spool is full, and an end takes the notes of its VM with it', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory, { maxBytes: 100 });
    await spool.addNotes([note('run1')]);
    const settled: string[] = [];
    const held = ['run1', 'run2'].map((vm) => spool.addNotes([note(vm)]).then(() => settled.push(vm)));
    await spool.add(end('run1'));
    assert.deepEqual(settled, ['run1']);
    assert.deepEqual(readAll(spool), ['1 note run1', '2 note run1', '3 end run1']);
    acknowledge(spool, 3);
    await Promise.all(held);
    assert.deepEqual(settled, ['run1', 'run2']);
    assert.deepEqual(readAll(spool, 3), ['4 note run2']);
  });
});

test('an event that could not be written gets no number, and its caller gets the error', async () => {
  await withDirectory(async (directory) => {
    const blocked = join(directory, 'blocked');
    const spool = open(blocked);
    rmSync(blocked, { recursive: true });
    writeFileSync(blocked, 'no directory');
    await assert.rejects(spool.add(end('run1')), { code: 'ENOTDIR' });
    assert.equal(spool.findEnd('run1'), undefined);
    rmSync(blocked);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(spool), ['1 end run1']);
  });
});

test('a spool has one generation as long as its files exist, and its events name it', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    await spool.addNotes([note('run1')]);
    const generation = generationOf(spool);
    const next = open(directory);
    await next.add(end('run1'));
    assert.deepEqual([...new Set(next.after(undefined).map((event) => event.generation))], [generation]);
    for (const name of readdirSync(directory)) rmSync(join(directory, name));
    const other = open(directory);
    await other.addNotes([note('run2')]);
    assert.notEqual(generationOf(other), generation);
    assert.deepEqual(readAll(other), ['1 note run2']);
  });
});

test('a missing spool is logged if one existed before, and a first one is not', async () => {
  await withDirectory(async (parent) => {
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    open(join(parent, 'events'), { log, isExpected: false });
    open(join(parent, 'events'), { log, isExpected: true });
    assert.deepEqual(lines, []);
    rmSync(join(parent, 'events'), { recursive: true });
    open(join(parent, 'events'), { log, isExpected: true });
    assert.match(lines.join(''), /the event spool is gone/u);
  });
});

test('an acknowledgement of another generation removes nothing, and its place is before all events', async () => {
  await withDirectory(async (directory) => {
    const spool = open(directory);
    await spool.addNotes([note('run1')]);
    await spool.add(end('run1'));
    spool.acknowledge({ generation: 'another', seq: 2 });
    assert.equal(spool.findEnd('run1')?.id, 'run1');
    assert.equal(readdirSync(directory).length, 2);
    const [first] = spool.after({ generation: 'another', seq: 2 });
    assert.equal(first?.seq, 1);
  });
});

test('a directory removed while the spool is open is recreated with all ends and a warning', async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, 'events');
    const lines: string[] = [];
    const spool = open(directory, { log: pino({}, { write: (line: string) => void lines.push(line) }) });
    await spool.addNotes([note('run1')]);
    await spool.add(end('run1'));
    rmSync(directory, { recursive: true });
    await spool.addNotes([note('run2')]);
    assert.deepEqual(readAll(spool), ['3 note run2', '4 end run1']);
    assert.equal(spool.findEnd('run1')?.id, 'run1');
    assert.deepEqual(readAll(open(directory)), ['3 note run2', '4 end run1']);
    const warnings = lines.filter((line) => line.includes('has removed files of the event spool'));
    assert.equal(warnings.length, 1);
    acknowledge(spool, 3);
    rmSync(directory, { recursive: true });
    assert.deepEqual(spool.after(undefined), [], 'a read also notices it');
    await once(spool, 'event', { signal: AbortSignal.timeout(5000) });
    acknowledge(spool, 5);
    assert.deepEqual(readAll(spool), ['5 end run1']);
  });
});
