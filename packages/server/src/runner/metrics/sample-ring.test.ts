import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { SampleRing, type VmSample } from './sample-ring.ts';

const HOUR = 361;

function sampleOf(atMs: number): VmSample {
  return {
    atMs,
    monotonicMs: atMs + 0.5,
    instance: 1,
    cpuMs: 2 * atMs,
    memBytes: 2 ** 40 + atMs,
    diskBytes: 5,
    readBytes: 6,
    writtenBytes: 7,
    receivedBytes: 8,
    sentBytes: 9,
    receivedPackets: 10,
    sentPackets: 11,
  };
}

test('the ring has the last hour of samples, oldest first, whatever their number', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 3 * HOUR }), (count) => {
      const samples = Array.from({ length: count }, (_, index) => sampleOf(index));
      const ring = new SampleRing();
      for (const sample of samples) ring.push(sample);
      assert.deepEqual(ring.list(), samples.slice(-HOUR));
      assert.deepEqual(ring.last, samples.at(-1));
    }),
    { numRuns: 50, examples: [[0], [1], [8], [9], [HOUR], [HOUR + 1], [2 * HOUR]] },
  );
});
