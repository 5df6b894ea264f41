import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { VmEnd } from '../../lib/runner-protocol.ts';
import { EventSpool } from './event-spool.ts';

const end = (id: string): VmEnd => ({
  id,
  reason: 'destroyed',
  cpu_ms: 1,
  mem_peak_bytes: 2,
  ended_at: new Date(0).toISOString(),
});

function withDirectory(use: (directory: string) => void): void {
  const directory = mkdtempSync(join(tmpdir(), 'spool-'));
  try {
    use(directory);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('events outlive the process that wrote them', () => {
  withDirectory((directory) => {
    EventSpool.open(directory).add(end('run1'));
    assert.deepEqual(
      EventSpool.open(directory)
        .after(0)
        .map((event) => event.end.id),
      ['run1'],
    );
  });
});

test('sequence numbers go on after everything was acknowledged and the process restarted', () => {
  withDirectory((directory) => {
    const spool = EventSpool.open(directory);
    spool.add(end('run1'));
    spool.add(end('run2'));
    spool.acknowledge(2);
    assert.equal(readdirSync(directory).length, 1);
    assert.equal(EventSpool.open(directory).add(end('run3')).seq, 3);
  });
});

test('an end is found until it is acknowledged', () => {
  withDirectory((directory) => {
    const spool = EventSpool.open(directory);
    spool.add(end('run1'));
    assert.equal(spool.findEnd('run1')?.id, 'run1');
    spool.acknowledge(1);
    assert.equal(spool.findEnd('run1'), undefined);
  });
});

test('acknowledging what was never sent forgets nothing', () => {
  withDirectory((directory) => {
    const spool = EventSpool.open(directory);
    spool.acknowledge(10);
    spool.add(end('run1'));
    assert.deepEqual(
      spool.after(0).map((event) => event.seq),
      [1],
    );
    assert.equal(spool.findEnd('run1')?.id, 'run1');
  });
});
