import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { VmNote } from '../../egress/egress-messages.ts';
import type { RunnerEvent, VmEnd } from '../../lib/runner-protocol.ts';
import { EventSpool } from './event-spool.ts';

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

function describe(event: RunnerEvent): string {
  return event.type === 'vm_ended' ? `${event.seq} end ${event.end.id}` : `${event.seq} note ${event.vm_id}`;
}

function readAll(spool: EventSpool, from = 0): string[] {
  const told: string[] = [];
  for (let seq = from; ;) {
    const events = spool.after(seq);
    if (events.length === 0) return told;
    told.push(...events.map(describe));
    seq = events.at(-1)!.seq;
  }
}

test('events outlive the process that wrote them', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    await spool.addNotes([note('run1')]);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(EventSpool.open(directory)), ['1 note run1', '2 end run1']);
    assert.equal(EventSpool.open(directory).findEnd('run1')?.id, 'run1');
  });
});

test('sequence numbers go on after everything was acknowledged and the process restarted', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    await spool.add(end('run1'));
    await spool.add(end('run2'));
    spool.acknowledge(2);
    assert.equal(readdirSync(directory).length, 1);
    const next = EventSpool.open(directory);
    await next.add(end('run3'));
    assert.deepEqual(readAll(next, 2), ['3 end run3']);
  });
});

test('an end is found until it is acknowledged', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    await spool.add(end('run1'));
    assert.equal(spool.findEnd('run1')?.id, 'run1');
    spool.acknowledge(1);
    assert.equal(spool.findEnd('run1'), undefined);
  });
});

test('acknowledging what was never sent forgets nothing', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    spool.acknowledge(10);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(spool), ['1 end run1']);
    assert.equal(spool.findEnd('run1')?.id, 'run1');
  });
});

test('what comes while the disk is busy is one file, and is told after that', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    let told = 0;
    spool.on('event', () => {
      told += 1;
    });
    const adding = Array.from({ length: 200 }, (_, at) => spool.addNotes([note(`run${at}`)]));
    assert.deepEqual(spool.after(0), []);
    await Promise.all(adding);
    assert.equal(readAll(spool).length, 200);
    assert.deepEqual([readdirSync(directory).length, told], [2, 2]);
    // Part of a file that was acknowledged is not told again, and the file stays until all of it is.
    spool.acknowledge(100);
    assert.equal(readdirSync(directory).length, 1);
    assert.equal(readAll(spool, 100).length, 100);
  });
});

test('a spool of single ends, as it was before there were notes, is read and acknowledged', async () => {
  await withDirectory(async (directory) => {
    for (const seq of [7, 8]) {
      const event = { seq, type: 'vm_ended', end: end(`run${seq}`) };
      writeFileSync(join(directory, `${String(seq).padStart(12, '0')}.json`), JSON.stringify(event));
    }
    writeFileSync(join(directory, '000000000009.json.new'), 'half');
    const spool = EventSpool.open(directory);
    await spool.addNotes([note('run9')]);
    assert.deepEqual(readAll(spool), ['7 end run7', '8 end run8', '9 note run9']);
    assert.equal(spool.findEnd('run8')?.id, 'run8');
    spool.acknowledge(8);
    assert.deepEqual(readdirSync(directory), ['000000000009.json']);
  });
});

test('notes of a VM come before its end, and none after it', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory);
    const first = spool.addNotes([note('run1'), note('run2')]);
    const ending = spool.add(end('run1'));
    const late = spool.addNotes([note('run1'), note('run2')]);
    await Promise.all([first, ending, late]);
    await spool.addNotes([note('run1')]);
    assert.deepEqual(readAll(spool), ['1 note run1', '2 note run2', '3 end run1', '4 note run2']);
  });
});

test('notes wait for room when the spool is full, and an end takes those of its VM along', async () => {
  await withDirectory(async (directory) => {
    const spool = EventSpool.open(directory, { maxBytes: 100 });
    await spool.addNotes([note('run1')]);
    const settled: string[] = [];
    const held = ['run1', 'run2'].map((vm) => spool.addNotes([note(vm)]).then(() => settled.push(vm)));
    await spool.add(end('run1'));
    assert.deepEqual(settled, ['run1']);
    assert.deepEqual(readAll(spool), ['1 note run1', '2 note run1', '3 end run1']);
    spool.acknowledge(3);
    await Promise.all(held);
    assert.deepEqual(settled, ['run1', 'run2']);
    assert.deepEqual(readAll(spool, 3), ['4 note run2']);
  });
});

test('what could not be written has no number, and its caller hears of it', async () => {
  await withDirectory(async (directory) => {
    const gone = join(directory, 'gone');
    const spool = EventSpool.open(gone);
    rmSync(gone, { recursive: true });
    await assert.rejects(spool.add(end('run1')), { code: 'ENOENT' });
    assert.equal(spool.findEnd('run1'), undefined);
    EventSpool.open(gone);
    await spool.add(end('run1'));
    assert.deepEqual(readAll(spool), ['1 end run1']);
  });
});
